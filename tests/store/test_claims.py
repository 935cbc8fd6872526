"""Runs that are taken up, by one process at a time, and runs that are only held."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncConnection

from podium._util.process import this_process
from podium.core.errors import Conflict, NotFound, RunTakenOver, StoreError
from podium.core.run import Run, RunStatus
from podium.store import IdempotentRequest
from podium.store.base import LEASE_SECONDS, RECENT_HOURS, RunStore
from podium.store.sql import run_store
from podium.store.sql.run_store import SqlRunStore
from store.shared import ELSEWHERE, Clock, Two, at
from support.postgres import Postgres


@pytest.mark.parametrize("status", [s for s in get_args(RunStatus) if s != "running"])
async def test_a_run_is_taken_up_as_it_was_and_is_running_from_then_on(
    store: RunStore, make_run: Callable[..., Run], status: RunStatus
) -> None:
    run = make_run(status=status)
    await store.finish(run)
    assert await store.claim("last", ELSEWHERE) == run
    now = await store.load(run.id)
    assert (now.status, now.process, now.rounds) == ("running", ELSEWHERE, run.rounds)
    assert (await store.list())[0].status == "running"


async def test_a_run_that_was_taken_up_and_is_let_go_is_as_it_was(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    await store.finish(make_run(status="waiting"))
    run = await store.claim("last", this_process())
    await store.release_claim(run)
    assert await store.load("last") == run
    await store.release_claim(replace(run, question="Another?"))
    assert await store.claim("last", this_process()) == run


async def test_a_run_that_is_only_held_is_not_kept_because_it_was_let_go(
    where: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(where, clock=clock)
    await store.save_until(make_run(status="waiting"), at(10))
    await store.release_claim(await store.claim("last", this_process()))
    clock.second = 11
    assert await store.delete_expired() == 1
    await store.close()


async def test_a_released_interrupted_run_can_be_claimed_by_any_process(
    two: Two, make_run: Callable[..., Run]
) -> None:
    here, other, clock = two
    await other.begin(replace(make_run(status="running", answer=None), process=ELSEWHERE))
    clock.second = 11
    await here.release_claim(await here.claim("last", this_process(), takeover=True))
    assert [len(await store.list_abandoned(9)) for store in two[:2]] == [1, 1]
    assert await here.heartbeat([make_run().id]) == []
    with pytest.raises(RunTakenOver):
        await other.save(make_run().id, make_run().steps[0])


async def test_a_claim_that_is_cut_off_does_not_block_the_run(
    two: Two,
    make_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, _, clock = two
    await here.finish(make_run(status="waiting"))
    take = here._claims.claim

    async def cut_off(*arguments: Any, **named: Any) -> None:
        await take(*arguments, **named)
        raise asyncio.CancelledError

    with monkeypatch.context() as cutting:
        cutting.setattr(here._claims, "claim", cut_off)
        with pytest.raises(asyncio.CancelledError):
            await here.claim("last", this_process())
    assert not await here.is_claimed(make_run().id)
    clock.second = 11
    assert (await here.claim("last", this_process())).status == "waiting"


async def test_of_two_processes_one_takes_the_run_up(
    where: str, make_run: Callable[..., Run]
) -> None:
    stores = [await SqlRunStore.open(where) for _ in range(2)]
    for n in range(10):
        run = make_run(f"run_{n}", status="waiting")
        await stores[0].finish(run)
        claims = [store.claim(run.id, ELSEWHERE) for store in stores for _ in range(2)]
        ended = await asyncio.gather(*claims, return_exceptions=True)
        assert [end for end in ended if not isinstance(end, Conflict)] == [run]
    for store in stores:
        await store.close()


async def test_an_unclaimed_run_is_not_taken_over(store: RunStore) -> None:
    with pytest.raises(NotFound):
        await store.claim("run_1", ELSEWHERE)
    assert not await store.is_claimed("run_1")


async def test_a_run_without_heartbeats_can_be_taken_over(
    where: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    theirs, ours = [await SqlRunStore.open(where, clock=clock, lease_seconds=8) for _ in range(2)]
    run = replace(make_run(status="running", answer=None), process=ELSEWHERE)
    await theirs.begin(run)
    clock.second = 8
    assert await ours.is_claimed(run.id)
    assert await theirs.heartbeat([run.id, "run_unknown"]) == []
    clock.second = 16
    assert await ours.is_claimed(run.id)
    assert await ours.list_abandoned(9) == []
    with pytest.raises(Conflict, match="still running in process another-machine:1"):
        await ours.claim(run.id, this_process())
    clock.second += 1
    assert not await ours.is_claimed(run.id)
    assert [item.id for item in await ours.list_abandoned(9)] == [run.id]
    assert await theirs.list_abandoned(9) == [], "whoever performs it does not take it over"
    assert await ours.claim(run.id, this_process()) == run
    assert await ours.is_claimed(run.id)
    assert await ours.list_abandoned(9) == []
    await ours.close()
    await theirs.close()


Writing = Callable[[SqlRunStore, Run], Awaitable[None]]


@pytest.mark.parametrize(
    "write",
    [
        lambda store, run: store.begin(run),
        lambda store, run: store.save(run.id, run.rounds[0]),
        lambda store, run: store.save(run.id, run.steps[-1]),
        lambda store, run: store.finish(run),
        lambda store, run: store.save_until(run, at(0)),
        lambda store, run: store.finish(replace(run, id="run_other"), run),
    ],
)
async def test_a_process_that_lost_a_run_cannot_write_it(
    two: Two, make_run: Callable[..., Run], write: Writing
) -> None:
    paused, other, clock = two
    run = replace(make_run(status="running", answer=None), process=ELSEWHERE)
    begun = replace(run, rounds=(replace(run.rounds[0], steps=run.steps[:1]),))
    await paused.begin(begun)
    clock.second = 11
    await other.claim(run.id, this_process())
    now = await other.load(run.id)
    with pytest.raises(RunTakenOver, match="taken over by process .* missed its heartbeat"):
        await write(paused, replace(run, status="interrupted"))
    assert await other.load(run.id) == now
    assert [item.id for item in await other.list()] == [run.id]
    await other.finish(replace(now, status="answered", answer="Theirs."))
    with pytest.raises(RunTakenOver):
        await paused.save(run.id, run.steps[-1])
    assert (await other.load(run.id)).answer == "Theirs."


async def test_an_end_that_could_not_be_written_is_written_later_unless_another_took_the_run_over(
    where: str, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    here, there = [await SqlRunStore.open(where, clock=clock) for _ in range(2)]
    kept, lost = (make_run(f"run_{n}", status="running", answer=None) for n in range(2))

    async def fails(*_: object) -> None:
        raise StoreError("the database is away")

    for run in (kept, lost):
        await here.begin(run)
        with monkeypatch.context() as away:
            away.setattr(run_store, "replace_runs", fails)
            with pytest.raises(StoreError, match="away"):
                await here.finish(replace(run, status="answered"))
    clock.second += LEASE_SECONDS + 1
    await there.claim(lost.id, ELSEWHERE, takeover=True)
    await here.finish(replace(kept, status="answered"))
    with pytest.raises(RunTakenOver):
        await here.finish(replace(lost, status="answered"))
    assert [(await there.load(run.id)).status for run in (kept, lost)] == ["answered", "running"]
    await here.close()
    await there.close()


async def test_a_run_with_an_unwritten_end_can_be_taken_over_again(
    where: str, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(where, clock=clock)
    run = replace(make_run(status="running", answer=None), process=ELSEWHERE)
    await store.begin(run)

    async def fails(*_: object) -> None:
        raise StoreError("the database is away")

    with monkeypatch.context() as away:
        away.setattr(run_store, "replace_runs", fails)
        with pytest.raises(StoreError, match="away"):
            await store.finish(replace(run, status="answered"))
    clock.second += LEASE_SECONDS + 1
    assert not await store.is_claimed(run.id)
    await store.claim(run.id, ELSEWHERE)
    assert await store.is_claimed(run.id)
    await store.close()


async def test_beginning_a_run_twice_writes_it_once(two: Two, make_run: Callable[..., Run]) -> None:
    paused, other, clock = two
    run = make_run(status="running", answer=None)
    request = IdempotentRequest(
        owner="", key="n", digest="d", run_id=run.id, process=ELSEWHERE, created_at=""
    )
    await paused.idempotency.register(request)
    clock.second = 11  # a guardrail takes its time over the question, say
    assert await other.idempotency.take_over(
        await other.idempotency.register(request), this_process()
    )
    await other.begin(replace(run, process=this_process()))
    now = await other.load(run.id)
    with pytest.raises(RunTakenOver, match=f"taken over by process {this_process()}"):
        await paused.begin(replace(run, process=ELSEWHERE))
    assert await other.load(run.id) == now
    await other.save(run.id, run.steps[0])


async def test_a_heartbeat_returns_the_lost_runs(two: Two, make_run: Callable[..., Run]) -> None:
    paused, other, clock = two
    for name in ("run_lost", "run_kept"):
        await paused.begin(replace(make_run(name, status="running"), process=ELSEWHERE))
    clock.second = 11
    await other.claim("run_lost", this_process())
    assert await paused.heartbeat(["run_lost", "run_kept", "run_unknown"]) == ["run_lost"]
    assert await other.heartbeat(["run_lost"]) == []
    assert await other.list_abandoned(9) == [], "the other one was heard of just now"


async def test_runs_that_were_lost_to_others_are_not_remembered_for_ever(
    two: Two,
    make_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_store, "MAX_LOST", 2)
    paused, other, clock = two
    runs = [f"run_{number}" for number in range(4)]
    for name in runs:
        await paused.begin(replace(make_run(name, status="running"), process=ELSEWHERE))
    clock.second = 11
    for name in runs:
        await other.claim(name, this_process())
        assert await paused.heartbeat([name]) == [name]
    assert list(paused._claims.numbers) == runs[-2:]
    with pytest.raises(RunTakenOver):
        await paused.finish(make_run(runs[-1]))


async def test_a_process_that_regains_a_run_writes_it_again(
    two: Two, make_run: Callable[..., Run]
) -> None:
    first, second, clock = two
    run = replace(make_run(status="running", answer=None), process=ELSEWHERE)
    await first.begin(run)
    clock.second = 11
    await second.claim(run.id, ELSEWHERE)
    with pytest.raises(RunTakenOver):
        await first.finish(run)
    clock.second = 22
    await first.claim(run.id, ELSEWHERE)
    await first.save(run.id, run.steps[0])
    with pytest.raises(RunTakenOver):
        await second.finish(run)


async def test_runs_that_are_only_held_or_long_silent_are_not_abandoned(
    two: Two, make_run: Callable[..., Run]
) -> None:
    first, second, clock = two
    held = make_run("run_held", status="waiting")
    await first.save_until(held, at(3599))
    await first.claim(held.id, ELSEWHERE)
    await first.begin(replace(make_run("run_1", status="running"), process=ELSEWHERE))
    await first.finish(make_run("run_2", status="interrupted"))
    clock.second = 11
    assert [item.id for item in await second.list_abandoned(9)] == ["run_1"]
    assert await second.list_abandoned(0) == []
    clock.second = RECENT_HOURS * 3600 + 1
    assert await second.list_abandoned(9) == []


async def test_takeovers_are_counted_until_a_step_is_done(
    two: Two, make_run: Callable[..., Run]
) -> None:
    first, second, clock = two
    run = replace(make_run(status="running", answer=None), process=ELSEWHERE)
    await first.begin(run)
    for count, store in enumerate((second, first, second, first)):
        clock.second += 11
        assert [item.takeovers for item in await store.list_abandoned(9)] == [count]
        await store.claim(run.id, ELSEWHERE, takeover=True)
        await store.begin(run)
    await first.save(run.id, run.steps[0])
    clock.second += 11
    assert [item.takeovers for item in await second.list_abandoned(9)] == [0]
    await second.claim(run.id, ELSEWHERE)
    clock.second += 11
    assert [item.takeovers for item in await first.list_abandoned(9)] == [0], (
        "nobody took that over"
    )


async def test_a_run_with_a_dead_process_is_unclaimed(
    two: Two, make_run: Callable[..., Run]
) -> None:
    theirs, ours, _ = two
    machine = this_process().rpartition(":")[0]
    run = replace(make_run(status="running", answer=None), process=f"{machine}:999999999")
    await theirs.begin(run)
    assert not await ours.is_claimed(run.id)
    assert [item.id for item in await ours.list_abandoned(9)] == [run.id]
    assert await ours.claim(run.id, this_process()) == run


async def test_a_beat_does_not_touch_a_run_that_has_ended(
    where: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(where, clock=clock)
    await store.finish(make_run())
    clock.second = 9
    await store.heartbeat([make_run().id])
    (summary,) = await store.list()
    await store.close()
    assert summary.updated_at == at(0)


async def test_a_run_that_is_held_is_forgotten_when_its_time_is_over(
    where: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(where, clock=clock)
    run = make_run("run_held", status="waiting")
    await store.finish(make_run("run_kept"))
    await store.begin(run)
    await store.save_until(run, at(10))
    assert await store.load(run.id) == run
    clock.second = 10
    assert await store.delete_expired() == 0
    clock.second = 11
    assert await store.delete_expired() == 1
    assert [item.id for item in await store.list()] == ["run_kept"]
    await store.close()


async def test_a_held_run_in_progress_is_not_forgotten_meanwhile_and_not_kept_afterwards(
    where: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(where, clock=clock)
    await store.save_until(make_run(status="waiting"), at(10))
    clock.second = 20
    run = await store.claim("last", ELSEWHERE)
    assert await store.delete_expired() == 0
    clock.second += LEASE_SECONDS + 1
    assert await store.delete_expired() == 1, "its process is gone"
    await store.save_until(run, at(10))
    await store.finish(run)
    assert await store.delete_expired() == 0, "it is to be kept now"
    await store.close()


async def test_a_run_that_ends_during_its_heartbeat_is_not_lost(
    where: str, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqlRunStore.open(where)
    run = make_run(status="running")
    await store.begin(run)
    said = store._claims._renew

    async def and_ends(connection: AsyncConnection, known: Sequence[str], now: str) -> int:
        await said(connection, known, now)
        store._claims.drop(known)
        return 0

    monkeypatch.setattr(store._claims, "_renew", and_ends)
    assert list(await store.heartbeat([run.id])) == []
    await store.close()


async def test_a_process_that_hangs_in_a_write_does_not_block_its_runs(
    postgres: Postgres, make_run: Callable[..., Run]
) -> None:
    where = await postgres.empty()
    paused, other = [await SqlRunStore.open(where, lease_seconds=0.2) for _ in range(2)]
    run = replace(make_run(status="running", answer=None), process=ELSEWHERE)
    await paused.begin(run)

    claimed: list[Run] = []

    async def fall_silent() -> None:
        async with paused._transaction() as connection:
            await paused._claims.touch(connection, {run.id}, set())
            await asyncio.sleep(0.25)
            async with asyncio.timeout(20):
                claimed.append(await other.claim(run.id, this_process()))

    with pytest.raises(StoreError, match="cannot use the store"):
        await fall_silent()
    assert claimed == [run]
    await other.close()
    await paused.close()


async def test_runs_that_were_cut_off_are_found_through_the_index(tmp_path: Path) -> None:
    file = tmp_path / "podium.db"
    store = await SqlRunStore.open(file)
    said: list[tuple[str, Any]] = []

    def note(_c: Any, _u: Any, statement: str, parameters: Any, *_: Any) -> None:
        said.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        await store.list_abandoned(9)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
        await store.close()
    connection = sqlite3.connect(file)
    ((statement, parameters),) = said
    plan = str(connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall())
    connection.close()
    assert "USING INDEX runs_running" in plan


async def test_writers_of_the_same_rows_in_another_order_do_not_deadlock(
    postgres: Postgres, make_run: Callable[..., Run]
) -> None:
    store = await SqlRunStore.open(await postgres.empty())
    ids = [f"run_{number:02}" for number in range(30)]
    for run_id in ids:
        await store.begin(make_run(run_id, status="running", answer=None, steps=1))
    async with asyncio.timeout(20):
        for _ in range(5):
            beats = (store.heartbeat(order) for order in (ids, ids[::-1], ids[15:] + ids[:15]))
            assert await asyncio.gather(*beats) == [[], [], []]
    await store.close()
