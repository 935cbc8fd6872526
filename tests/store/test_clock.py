from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from podium.run import Run
from podium.store.clock import DatabaseClock
from podium.store.sql import SqlRunStore
from support.postgres import Postgres


def seconds_off(stamp: str) -> float:
    return abs((datetime.fromisoformat(stamp) - datetime.now(UTC)).total_seconds())


async def test_a_machine_whose_clock_is_wrong_takes_the_databases(postgres: Postgres) -> None:
    store = await SqlRunStore.open(await postgres.empty())
    clock = DatabaseClock(lambda: datetime.now(UTC) - timedelta(hours=1))
    assert seconds_off(clock()) > 3500
    async with store._transaction() as connection:
        await clock.set_by(connection)
    await store.close()
    assert seconds_off(clock()) < 30


async def test_the_runs_of_a_machine_whose_clock_is_late_are_not_taken_from_it(
    postgres: Postgres, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await postgres.empty()
    right = await SqlRunStore.open(place)
    late = DatabaseClock(lambda: datetime.now(UTC) - timedelta(hours=1))
    monkeypatch.setattr("podium.store.sql.DatabaseClock", lambda: late)
    wrong = await SqlRunStore.open(place)
    await wrong.begin(replace(make_run(status="running"), process="another-machine:1"))
    assert await right.abandoned(9) == []
    for store in (right, wrong):
        await store.close()


def test_without_a_database_it_is_this_machines_own_time() -> None:
    assert seconds_off(DatabaseClock()()) < 30
