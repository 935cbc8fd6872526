from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from podium.core.run import Run
from podium.store.sql.database import DatabaseClock
from podium.store.sql.run_store import SqlRunStore
from support.postgres import Postgres


def seconds_off(stamp: str) -> float:
    return abs((datetime.fromisoformat(stamp) - datetime.now(UTC)).total_seconds())


async def test_a_wrong_local_clock_is_replaced_by_the_databases(postgres: Postgres) -> None:
    store = await SqlRunStore.open(await postgres.empty())
    clock = DatabaseClock(lambda: datetime.now(UTC) - timedelta(hours=1))
    assert seconds_off(clock()) > 3500
    async with store._transaction() as connection:
        await clock.sync(connection)
    await store.close()
    assert seconds_off(clock()) < 30


async def test_a_late_local_clock_loses_no_runs(
    postgres: Postgres, make_run: Callable[..., Run]
) -> None:
    where = await postgres.empty()
    right = await SqlRunStore.open(where)
    late = DatabaseClock(lambda: datetime.now(UTC) - timedelta(hours=1))
    wrong = await SqlRunStore.open(where, clock=late)
    await wrong.begin(replace(make_run(status="running"), process="another-machine:1"))
    assert await right.list_abandoned(9) == []
    for store in (right, wrong):
        await store.close()


async def test_a_corrected_local_clock_still_uses_the_databases_time(
    postgres: Postgres,
) -> None:
    off = timedelta(hours=-1)
    clock = DatabaseClock(lambda: datetime.now(UTC) + off)
    store = await SqlRunStore.open(await postgres.empty(), clock=clock)
    off = timedelta(0)
    assert seconds_off(clock()) < 30, "an hour later all leases would be over"
    await store.close()


@pytest.mark.parametrize("looks", [False, True])
async def test_a_machine_that_slept_takes_the_databases_time_with_its_next_beat(
    postgres: Postgres, make_run: Callable[..., Run], looks: bool
) -> None:
    slept = 0.0
    clock = DatabaseClock(seconds=lambda: time.monotonic() - slept)
    store = await SqlRunStore.open(await postgres.empty(), clock=clock)
    await store.begin(make_run(status="running"))
    slept = 3600.0
    assert seconds_off(clock()) > 3500
    await (store.list_abandoned(9) if looks else store.heartbeat([make_run().id]))
    assert seconds_off(clock()) < 30
    assert seconds_off((await store.list())[0].updated_at) < 30
    await store.close()


def test_without_a_database_it_is_this_machines_own_time() -> None:
    assert seconds_off(DatabaseClock()()) < 30
