from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import update

from podium.core.errors import ConfigError
from podium.core.run import Run
from podium.store import RunStore
from podium.store.sql.run_store import SqlRunStore
from podium.store.sql.tables import RUNS

FIRST, SECOND, THIRD = "run_0000000000000001", "run_0000000000000002", "run_0000000000000003"
DAY = {"since": "2026-01-02", "until": "2026-01-02"}

MakeRun = Callable[..., Run]


async def test_sums_are_by_day_tier_and_owner(store: SqlRunStore, make_run: MakeRun) -> None:
    late = "2026-01-02T23:59:59.999+00:00"
    await store.finish(
        make_run(FIRST, steps=1),
        make_run(SECOND, steps=3, created_at=late),
        replace(make_run(THIRD, steps=2), owner="key_a", tier="mini"),
        make_run("run_0000000000000004", created_at="2026-01-03T00:00:00.000+00:00"),
    )
    unowned, owned = sorted(
        await store.statistics.daily_totals(**DAY), key=lambda sums: sums.key_id
    )
    assert (unowned.requests, unowned.input_tokens, unowned.cost_usd) == (2, 60, 1.0)
    assert (owned.key_id, owned.model, owned.requests) == ("key_a", "podium-mini", 1)
    assert owned.cost_usd == 0.5
    assert [sums.key_id for sums in await store.statistics.daily_totals(**DAY, owner="")] == [""]


async def test_unknown_usage_is_counted_and_not_added(
    store: SqlRunStore, make_run: MakeRun
) -> None:
    run = make_run(FIRST, steps=1)
    step = run.rounds[0].steps[0]
    unknown = replace(step, attempts=(replace(step.attempts[0], cost_usd=None),))
    await store.finish(replace(run, rounds=(replace(run.rounds[0], steps=(unknown,)),)))
    (sums,) = await store.statistics.daily_totals(**DAY)
    assert (sums.cost_usd, sums.unknown_cost_count, sums.unknown_usage_count) == (0.0, 1, 0)


async def test_a_run_still_in_progress_is_in_no_sum(store: SqlRunStore, make_run: MakeRun) -> None:
    await store.begin(make_run(FIRST, status="running"))
    assert await store.statistics.daily_totals(**DAY) == []
    assert await store.statistics.list_revisions(**DAY, limit=5) == []


async def test_runs_come_back_whole_and_the_newest_are_marked_first(
    store: SqlRunStore, make_run: MakeRun
) -> None:
    later = make_run(SECOND, created_at="2026-01-02T04:00:00.000+00:00")
    await store.finish(make_run(FIRST), later)
    accounts = store.statistics
    marks = await accounts.list_revisions(**DAY, limit=1)
    assert [mark.id for mark in marks] == [SECOND]
    loaded = await accounts.load([FIRST, SECOND, "run_gone"])
    assert sorted(loaded, key=lambda run: run.id) == [make_run(FIRST), later]


async def test_a_damaged_run_does_not_cost_the_others(
    store: SqlRunStore, make_run: MakeRun
) -> None:
    await store.finish(make_run(FIRST), make_run(SECOND))
    async with store._transaction() as connection:
        await connection.execute(update(RUNS).where(RUNS.c.id == FIRST).values(document="{"))
    assert [run.id for run in await store.statistics.load([FIRST, SECOND])] == [SECOND]


def test_without_a_database_there_is_nothing_to_add_up() -> None:
    with pytest.raises(ConfigError, match="no database for statistics"):
        _ = RunStore().statistics
