from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks import engine as chain
from benchmarks.timing import Chains
from podium.core.request import Reply, Request
from podium.core.workflow import Shape


@pytest.mark.parametrize(
    "contestant",
    [
        chain.bare_taskgroup,
        lambda: chain.engine(watched=False),
        lambda: chain.engine(watched=True),
        chain.runner,
    ],
    ids=["taskgroup", "engine", "engine_watched", "runner"],
)
async def test_every_contestant_asks_the_worker_five_times_a_chain(
    contestant: Callable[[], Chains], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    reply = chain.IdleWorker.reply

    async def counting(self: chain.IdleWorker, request: Request) -> Reply:
        nonlocal asked
        asked += 1
        return await reply(self, request)

    monkeypatch.setattr(chain.IdleWorker, "reply", counting)
    contender = contestant()
    contender.chains_a_block = 1
    await contender.block()
    assert asked == 2 * chain.LENGTH


def test_the_workflow_is_a_chain_of_five() -> None:
    workflow = chain.chain_workflow("idle")
    assert workflow.shape is Shape.CHAIN
    assert len(workflow) == 5
