"""Names that clients give their requests."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import pytest

from podium._util.process import this_process
from podium.core.errors import ConfigError
from podium.store import IdempotentRequest, RunStore
from podium.store.sql.records import IDEMPOTENCY_HOURS
from podium.store.sql.run_store import SqlRunStore

MINE = IdempotentRequest(
    owner="key_1", key="mine", digest="ab", run_id="run_1", process="here:1", created_at=""
)


def at(hour: float) -> str:
    return f"2026-01-{2 + int(hour) // 24:02}T{int(hour) % 24:02}:00:00.000+00:00"


async def test_the_first_to_give_a_name_has_it(where: str) -> None:
    store = await SqlRunStore.open(where, clock=lambda: at(0))
    first = await store.idempotency.register(MINE)
    assert first == replace(MINE, created_at=at(0))
    for other in (replace(MINE, run_id="run_2"), replace(MINE, run_id="run_3", digest="cd")):
        assert await store.idempotency.register(other) == first
    theirs = replace(MINE, owner="key_2", run_id="run_4")
    assert (await store.idempotency.register(theirs)).run_id == "run_4", "a name is its owner's own"
    await store.close()


async def test_of_several_at_once_one_has_the_name(where: str) -> None:
    stores = [await SqlRunStore.open(where) for _ in range(2)]
    requests = [replace(MINE, run_id=f"run_{n}") for n in range(8)]
    giving = [stores[n % 2].idempotency.register(request) for n, request in enumerate(requests)]
    found = await asyncio.gather(*giving)
    assert len({request.run_id for request in found}) == 1
    for store in stores:
        await store.close()


async def test_of_several_one_takes_up_what_was_never_begun(where: str) -> None:
    hour = iter(range(9))
    store = await SqlRunStore.open(where, clock=lambda: at(next(hour)))
    found = await store.idempotency.register(MINE)
    taken = await store.idempotency.take_over(found, "there:2")
    assert not await store.idempotency.take_over(found, "there:3")
    again = await store.idempotency.register(replace(MINE, run_id="run_9"))
    assert (again.run_id, again.process) == ("run_1", "there:2")
    assert again == taken
    await store.close()


async def test_an_idempotency_key_is_taken_over_after_the_lease(where: str) -> None:
    now = 0
    store = await SqlRunStore.open(where, clock=lambda: at(now), lease_seconds=3601)
    found = await store.idempotency.register(MINE)
    now = 1
    assert not await store.idempotency.take_over(found, "there:2"), "it may still begin"
    now = 2
    assert await store.idempotency.take_over(found, "there:2")
    await store.close()


async def test_an_idempotency_key_of_a_dead_process_is_taken_over_at_once(where: str) -> None:
    store = await SqlRunStore.open(where)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()
    here = this_process().rpartition(":")[0]
    found = await store.idempotency.register(replace(MINE, process=f"{here}:{process.pid}"))
    assert await store.idempotency.take_over(found, "there:2")
    await store.close()


async def test_an_idempotency_key_without_a_run_is_dropped_by_its_owner(where: str) -> None:
    store = await SqlRunStore.open(where)
    given = await store.idempotency.register(MINE)
    await store.idempotency.remove(replace(given, run_id="run_other"))
    assert (await store.idempotency.register(replace(MINE, run_id="run_2"))).run_id == "run_1"
    await store.idempotency.remove(given)
    assert (await store.idempotency.register(replace(MINE, run_id="run_2"))).run_id == "run_2"
    await store.close()


async def test_an_idempotency_key_that_was_taken_over_is_not_dropped_by_its_first_owner(
    where: str,
) -> None:
    hour = iter(range(9))
    store = await SqlRunStore.open(where, clock=lambda: at(next(hour)))
    given = await store.idempotency.register(MINE)
    taken = await store.idempotency.take_over(given, "there:2")
    assert taken is not None
    await store.idempotency.remove(given)
    assert (await store.idempotency.register(replace(MINE, run_id="run_2"))).run_id == "run_1"
    await store.idempotency.remove(taken)
    assert (await store.idempotency.register(replace(MINE, run_id="run_2"))).run_id == "run_2"
    await store.close()


@pytest.mark.parametrize("tidied", [True, False])
async def test_an_idempotency_key_expires_after_a_day(where: str, tidied: bool) -> None:
    now = 0
    store = await SqlRunStore.open(where, clock=lambda: at(now))
    await store.idempotency.register(MINE)
    now = IDEMPOTENCY_HOURS
    assert (await store.idempotency.register(replace(MINE, run_id="run_2"))).run_id == "run_1"
    now += 1
    if tidied:
        await store.delete_expired()
    assert (await store.idempotency.register(replace(MINE, run_id="run_2"))).run_id == "run_2"
    await store.close()


def test_a_store_without_a_database_has_no_idempotency_keys() -> None:
    with pytest.raises(ConfigError, match="no database for idempotency keys"):
        _ = RunStore().idempotency
