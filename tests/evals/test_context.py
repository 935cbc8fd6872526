from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from podium.core.errors import RequestRefused, Unavailable
from podium.core.request import Price, Request, user
from podium.evals.sample import (
    MAX_UNANSWERED_CALLS,
    MAX_UNANSWERED_SECONDS,
    CountedWorker,
    RepeatCachedWorker,
    sample_context,
)
from podium.workers.cached import ReplyCache
from podium.workers.scripted import ScriptedWorker

ASKED = Request((user("Why?"),))


def remembered(worker: ScriptedWorker) -> RepeatCachedWorker:
    counted = CountedWorker(worker, Counter())
    return RepeatCachedWorker(counted, ReplyCache(None, 1_000_000))


async def test_every_repeat_is_a_draw_of_its_own_and_stays_the_same() -> None:
    worker = remembered(ScriptedWorker("ann", ["first", "second", "third"]))
    replies = []
    for repeat in (0, 1, 0, 1):
        with sample_context(repeat):
            replies.append((await worker.reply(ASKED)).text)
    assert replies == ["first", "second", "first", "second"]


async def test_a_kept_reply_is_recalled_and_costs_nothing() -> None:
    price = Price(input=1_000_000, output=1_000_000)
    worker = remembered(ScriptedWorker("ann", "Because of that.", price=price))
    seen = []
    for _ in range(2):
        with sample_context() as now:
            await worker.reply(ASKED)
        seen.append((now.cached_calls, now.paid_usd))
    assert seen == [(0, 4.0), (1, 0.0)]


async def test_tasks_started_in_a_sample_context_belong_to_it() -> None:
    """As the steps of a workflow do, which are tasks of their own."""
    worker = CountedWorker(
        ScriptedWorker("ann", "yes", price=Price(input=0, output=1_000_000)), Counter()
    )

    async def measured(times: int) -> float:
        with sample_context() as now:
            await asyncio.gather(*(worker.reply(ASKED) for _ in range(times)))
        return now.paid_usd

    assert list(await asyncio.gather(measured(2), measured(3))) == [2.0, 3.0]


async def test_a_worker_that_stops_answering_is_not_asked_for_ever() -> None:
    now = [0.0]
    silent = ScriptedWorker("ann", [Unavailable("gone")] * MAX_UNANSWERED_CALLS + ["back"])
    asked = Counter[str]()
    worker = CountedWorker(silent, asked, clock=lambda: now[0])
    for _ in range(MAX_UNANSWERED_CALLS):
        with pytest.raises(Unavailable):
            await worker.reply(ASKED)
    now[0] = MAX_UNANSWERED_SECONDS
    with pytest.raises(RequestRefused, match="ann left 20 calls in a row unanswered"):
        await worker.reply(ASKED)
    assert asked["ann"] == silent.calls == MAX_UNANSWERED_CALLS


async def test_a_worker_that_is_down_for_a_moment_is_asked_on() -> None:
    silent = ScriptedWorker("ann", [Unavailable("gone")] * MAX_UNANSWERED_CALLS + ["back"])
    worker = CountedWorker(silent, Counter(), clock=lambda: 0.0)
    for _ in range(MAX_UNANSWERED_CALLS):
        with pytest.raises(Unavailable):
            await worker.reply(ASKED)
    assert (await worker.reply(ASKED)).text == "back"
