"""What a run used is charged to its key once, whatever happens between two writes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from podium.core.errors import StoreError
from podium.core.run import Run
from podium.server.access.keys import make_key
from podium.store.keys import Amount, Key, KeyUsage, Rules, charge_of
from podium.store.sql import run_store as sql_module
from podium.store.sql.quotas import KEPT_DAYS
from podium.store.sql.run_store import SqlRunStore

TODAY = "2026-01-02"


class Calendar:
    """Says what the time is; a day can pass."""

    def __init__(self) -> None:
        self.day = 2

    def __call__(self) -> str:
        return f"2026-01-{self.day:02d}T12:00:00.000+00:00"


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
async def replicas(where: str, calendar: Calendar) -> AsyncIterator[tuple[SqlRunStore, ...]]:
    """Two processes over one database."""
    async with AsyncExitStack() as stack:
        stores = [await SqlRunStore.open(where, clock=calendar) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        yield tuple(stores)


@pytest.fixture
async def key(replicas: tuple[SqlRunStore, ...]) -> Key:
    made = make_key("Ada", Rules()).key
    await replicas[0].keys.add(made)
    return made


async def charged(store: SqlRunStore, key: Key) -> Amount:
    return (await store.keys.quotas.charges(key.id, TODAY)).total


async def test_the_end_of_a_run_and_its_charge_are_one_write(
    replicas: tuple[SqlRunStore, ...],
    key: Key,
    make_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = replicas[0]
    run = replace(make_run(), owner=key.id)

    async def killed(*_: object) -> None:
        raise StoreError("the process was killed here")

    with monkeypatch.context() as patched:
        patched.setattr(sql_module, "record_usage", killed)
        with pytest.raises(StoreError):
            await store.finish(run)
    assert await store.list() == []
    await store.finish(run)
    assert await charged(store, key) == Amount(0.75, 45)
    (row,) = await store.keys.usage()
    assert row == KeyUsage(
        key_id=key.id,
        day=TODAY,
        model="podium-ultra",
        input_tokens=30,
        output_tokens=15,
        cost_usd=0.75,
    )


async def test_an_end_that_is_written_twice_is_charged_once(
    replicas: tuple[SqlRunStore, ...], key: Key, make_run: Callable[..., Run]
) -> None:
    run = replace(make_run(), owner=key.id)
    await replicas[0].finish(run)
    await replicas[0].finish(run)
    for store in replicas:
        await store.keys.quotas.record([], [charge_of(run, TODAY)])
    assert await charged(replicas[1], key) == Amount(0.75, 45)
    assert await replicas[1].keys.quotas.charged_for(run.id) == Amount(0.75, 45)


async def test_a_run_that_waits_and_continues_is_charged_every_call_once(
    replicas: tuple[SqlRunStore, ...], key: Key, make_run: Callable[..., Run]
) -> None:
    for steps in range(1, 6):
        run = replace(make_run(steps=steps, status="waiting", answer=None), owner=key.id)
        await replicas[0].save_until(run, "2026-01-02T13:00:00.000+00:00")
        assert await charged(replicas[1], key) == Amount(0.25 * steps, 15 * steps)


async def test_a_sum_that_comes_late_takes_nothing_back(
    replicas: tuple[SqlRunStore, ...], key: Key, make_run: Callable[..., Run]
) -> None:
    late = charge_of(replace(make_run(steps=1), owner=key.id), TODAY)
    await replicas[1].keys.quotas.record([], [charge_of(replace(make_run(), owner=key.id), TODAY)])
    await replicas[0].keys.quotas.record([], [late])
    assert await charged(replicas[0], key) == Amount(0.75, 45)


async def test_processes_that_charge_the_same_runs_at_once_charge_each_once(
    replicas: tuple[SqlRunStore, ...], key: Key, make_run: Callable[..., Run]
) -> None:
    dice = random.Random(7)
    charges = [
        charge_of(replace(make_run(f"run_{number:016x}", steps=steps), owner=key.id), TODAY)
        for number in range(6)
        for steps in (1, 2, 3)
    ]
    for _ in range(4):
        await asyncio.gather(
            *(store.keys.quotas.record([], dice.sample(charges, 5)) for store in replicas * 4)
        )
    await replicas[0].keys.quotas.record([], charges[2::3])
    assert await charged(replicas[1], key) == Amount(6 * 0.75, 6 * 45)


async def test_usage_after_midnight_is_charged_to_the_new_day(
    replicas: tuple[SqlRunStore, ...], key: Key, calendar: Calendar, make_run: Callable[..., Run]
) -> None:
    store = replicas[0]
    await store.finish(replace(make_run(steps=1, status="waiting"), owner=key.id))
    calendar.day = 3
    await store.finish(replace(make_run(steps=3), owner=key.id))
    rows = {row.day: row.cost_usd for row in await store.keys.usage()}
    assert rows == {"2026-01-02": 0.25, "2026-01-03": 0.5}


async def test_a_run_without_a_key_is_charged_to_no_key(
    replicas: tuple[SqlRunStore, ...], key: Key, make_run: Callable[..., Run]
) -> None:
    store = replicas[0]
    await store.finish(make_run("run_1"), replace(make_run("run_2"), owner="a program of its own"))
    assert await store.keys.usage() == []
    assert await store.keys.quotas.charged_for("run_2") == Amount()


async def test_charges_of_a_deleted_run_are_kept_for_a_while(
    replicas: tuple[SqlRunStore, ...], key: Key, calendar: Calendar, make_run: Callable[..., Run]
) -> None:
    store = replicas[0]
    deleted = replace(make_run("run_deleted"), owner=key.id)
    kept = replace(make_run("run_kept"), owner=key.id)
    never_kept = replace(make_run("run_never_kept"), owner=key.id)
    await store.finish(deleted, kept)
    await store.keys.quotas.record([], [charge_of(never_kept, TODAY)])
    calendar.day += KEPT_DAYS
    await store.delete(deleted.id)
    await store.delete_expired()
    await store.keys.quotas.record([], [charge_of(deleted, TODAY)])
    assert await charged(store, key) == Amount(3 * 0.75, 3 * 45)
    assert await store.keys.quotas.charged_for(never_kept.id) == Amount()
    calendar.day += KEPT_DAYS
    await store.delete_expired()
    assert await store.keys.quotas.charged_for(deleted.id) == Amount()
    assert await store.keys.quotas.charged_for(kept.id) == Amount(0.75, 45)
