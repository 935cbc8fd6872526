from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from benchmarks.chaos import faults
from benchmarks.chaos.faults import CALLS, Billed, CallRecorder, measure_faults, planned_run
from podium.core.errors import BadReply, RateLimited, WorkerError
from podium.core.request import NO_USAGE, UNKNOWN_USAGE, Delta, Price, Reply, Request, Usage, user
from podium.core.run import Run
from podium.store.sql.run_store import SqlRunStore
from podium.workers.scripted import ScriptedWorker

ASK = Request((user("why?"),))
USED = Usage(3, 2, 0, 0, 0)


async def test_every_run_ends_and_is_billed_to_the_token() -> None:
    row = await measure_faults(24, seed=3, in_flight=8)
    assert row.holds, row
    assert row.runs == 24
    assert row.answered_share is not None
    assert row.figures["faults"] != 0


async def test_a_store_that_keeps_less_than_there_was_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finish = SqlRunStore.finish

    async def flaky_workers(self: SqlRunStore, *runs: Run) -> None:
        await finish(self, *(replace(run, rounds=()) for run in runs))

    monkeypatch.setattr(SqlRunStore, "finish", flaky_workers)
    row = await measure_faults(3, seed=3)
    assert row.lost == 3
    assert not row.holds


async def test_a_run_that_does_not_end_in_time_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "LONGEST_RUN_SECONDS", 0.0)
    assert (await measure_faults(2, seed=3)).stuck == 2


async def test_usage_that_is_changed_between_worker_and_record_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        CallRecorder, "_note", lambda self, usage: CALLS.get().append(Billed("nobody", usage, None))
    )
    assert (await measure_faults(2, seed=3)).usage_mismatch == 2


def test_the_same_seed_plans_the_same_runs() -> None:
    assert [planned_run(n, 1) for n in range(9)] == [planned_run(n, 1) for n in range(9)]
    assert {planned_run(n, 1).streams for n in range(9)} == {True, False}
    assert any(planned_run(n, 1).budget.calls for n in range(99))


async def test_a_recorder_notes_the_usage_of_each_call() -> None:
    calls: list[Billed] = []
    CALLS.set(calls)
    lines: list[Reply | WorkerError] = [Reply("yes", USED), RateLimited("later"), BadReply("what?")]
    witness = CallRecorder(ScriptedWorker("solo", lines, price=Price(input=1, output=1)))
    await witness.reply(ASK)
    with pytest.raises(RateLimited):
        await witness.reply(ASK)
    with pytest.raises(BadReply):
        await witness.reply(ASK)
    assert calls == [
        Billed("solo", USED, 5e-6),
        Billed("solo", NO_USAGE, 0.0),
        Billed("solo", UNKNOWN_USAGE, None),
    ]


async def test_a_witness_of_a_stream_knows_the_usage_only_where_its_reply_came() -> None:
    calls: list[Billed] = []
    CALLS.set(calls)
    witness = CallRecorder(ScriptedWorker("solo", Reply("two words", USED)))
    pieces = [piece async for piece in witness.stream(ASK)]
    assert isinstance(pieces[-1], Reply)
    stream: AsyncGenerator[Delta | Reply] = witness.stream(ASK)
    await anext(stream)
    await stream.aclose()
    assert [call.usage for call in calls] == [USED, UNKNOWN_USAGE]
