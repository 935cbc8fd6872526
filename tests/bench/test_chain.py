from __future__ import annotations

import pytest

from benchmarks import engine as chain
from benchmarks.timing import time_block
from podium.core.request import Reply, Request
from podium.core.workflow import Shape


@pytest.mark.parametrize("name", ["taskgroup", "engine", "engine_watched", "runner"])
async def test_every_contestant_asks_the_worker_five_times_a_chain(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    reply = chain.IdleWorker.reply

    async def counting(self: chain.IdleWorker, request: Request) -> Reply:
        nonlocal asked
        asked += 1
        return await reply(self, request)

    monkeypatch.setattr(chain.IdleWorker, "reply", counting)
    await time_block(chain.contestants()[name], 1)
    assert asked == 2 * chain.LENGTH


def test_the_workflow_is_a_chain_of_five() -> None:
    workflow = chain.chain_workflow("idle")
    assert workflow.shape is Shape.CHAIN
    assert len(workflow) == 5
