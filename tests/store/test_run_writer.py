"""What is new of several runs at once, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sqlalchemy import Connection, event

from podium._util.process import this_process
from podium.core.errors import RunTakenOver, StoreError
from podium.core.run import Run
from podium.store.sql.run_store import SqlRunStore
from store.shared import ELSEWHERE, Two

MakeRun = Callable[..., Run]


def ended(make_run: MakeRun, count: int = 12) -> tuple[Run, ...]:
    """Some runs, as they will be."""
    runs = (make_run(f"run_{number:016x}", steps=1, answer=None) for number in range(count))
    return tuple(replace(run, status="running", process=ELSEWHERE) for run in runs)


def as_begun(run: Run) -> Run:
    return replace(run, rounds=())


def as_planned(run: Run) -> Run:
    return replace(run, rounds=tuple(replace(round_, steps=()) for round_ in run.rounds))


def commits_of(store: SqlRunStore) -> list[Connection]:
    """The commits that the store makes from now on."""
    made: list[Connection] = []
    event.listen(store.database.engine.sync_engine, "commit", made.append)
    return made


async def test_usage_of_concurrent_runs_takes_few_transactions(two: Two, make_run: MakeRun) -> None:
    store, other, _ = two
    runs, commits = ended(make_run), commits_of(store)

    async def are(expected: list[Run], *writes: Awaitable[None]) -> None:
        commits.clear()
        await asyncio.gather(*writes)
        assert len(commits) <= 2
        assert [await other.load(run.id) for run in runs] == expected

    begun = [as_begun(run) for run in runs]
    await are(begun, *map(store.begin, begun))
    await are([*map(as_planned, runs)], *(store.save(run.id, run.rounds[0]) for run in runs))
    await are([*runs], *(store.save(run.id, run.steps[0]) for run in runs))


async def test_a_run_that_another_took_over_costs_no_other_its_step(
    two: Two, make_run: MakeRun
) -> None:
    store, other, clock = two
    runs = ended(make_run, 3)
    await asyncio.gather(*(store.begin(as_planned(run)) for run in runs))
    clock.second = 11
    await other.claim(runs[1].id, this_process(), takeover=True)
    results = await asyncio.gather(
        *(store.save(run.id, run.steps[0]) for run in runs), return_exceptions=True
    )
    assert [type(item) for item in results] == [type(None), RunTakenOver, type(None)]
    assert [len((await other.load(run.id)).steps) for run in runs] == [1, 0, 1]


async def test_a_run_that_another_has_begun_costs_no_other_its_beginning(
    two: Two, make_run: MakeRun
) -> None:
    store, other, clock = two
    runs = ended(make_run, 3)
    await other.begin(runs[1])
    results = await asyncio.gather(*map(store.begin, runs), return_exceptions=True)
    assert [type(item) for item in results] == [type(None), RunTakenOver, type(None)]
    clock.second = 11
    assert [item.id for item in await store.list_abandoned(9)] == [runs[1].id], "it has the others"


async def test_a_step_without_its_round_affects_no_other_plan(two: Two, make_run: MakeRun) -> None:
    store, other, _ = two
    runs = ended(make_run, 2)
    await asyncio.gather(*(store.begin(as_begun(run)) for run in runs))
    results = await asyncio.gather(
        store.save(runs[0].id, runs[0].steps[0]),
        store.save(runs[1].id, runs[1].rounds[0]),
        return_exceptions=True,
    )
    assert [type(item) for item in results] == [StoreError, type(None)]
    assert [len((await other.load(run.id)).rounds) for run in runs] == [0, 1]


async def test_only_where_a_step_is_done_it_was_worth_while_to_take_a_run_over(
    two: Two, make_run: MakeRun
) -> None:
    store, other, clock = two
    runs = ended(make_run, 3)
    await asyncio.gather(*map(store.begin, runs))
    clock.second = 11
    for run in runs:
        await other.claim(run.id, ELSEWHERE, takeover=True)
    failed = replace(runs[0].steps[0], status="failed", reply="", error="no")
    await asyncio.gather(
        other.save(runs[0].id, failed),
        other.save(runs[1].id, runs[1].steps[0]),
        other.save(runs[2].id, runs[2].rounds[0]),
    )
    clock.second = 30
    found = {item.id: item.takeovers for item in await store.list_abandoned(9)}
    assert [found[run.id] for run in runs] == [1, 0, 1]


async def test_nothing_is_written_any_more_when_a_store_is_closed(
    where: str, make_run: MakeRun
) -> None:
    store = await SqlRunStore.open(where)
    before = asyncio.all_tasks()
    writing = {asyncio.create_task(store.begin(run)) for run in ended(make_run)}
    await asyncio.sleep(0.001)
    for task in writing:  # its caller is gone
        task.cancel()
    await store.close()
    assert asyncio.all_tasks() <= before | writing
    await asyncio.wait(writing)
