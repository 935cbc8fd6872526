"""Runs that are taken up, by one process at a time, and runs that are only held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest

from podium.errors import Conflict, NotFound
from podium.process import this_process
from podium.run import Run, RunStatus
from podium.store.base import LEASE_SECONDS, RunStore
from podium.store.sql import SqlRunStore

ELSEWHERE = "another-machine:1"


def at(second: float) -> str:
    return f"2026-01-02T03:{int(second) // 60:02}:{int(second) % 60:02}.000+00:00"


class Clock:
    """A clock that stands where it is set."""

    def __init__(self) -> None:
        self.second = 0.0

    def __call__(self) -> str:
        return at(self.second)


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


async def test_a_run_that_was_taken_up_is_let_go_by_writing_it_as_it_was(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    await store.finish(make_run(status="waiting"))
    run = await store.claim("last", this_process())
    await store.finish(run)
    assert await store.claim("last", this_process()) == run


async def test_of_two_processes_one_takes_the_run_up(
    place: str, make_run: Callable[..., Run]
) -> None:
    stores = [await SqlRunStore.open(place) for _ in range(2)]
    for n in range(10):
        run = make_run(f"run_{n}", status="waiting")
        await stores[0].finish(run)
        claims = [store.claim(run.id, ELSEWHERE) for store in stores for _ in range(2)]
        ended = await asyncio.gather(*claims, return_exceptions=True)
        assert [end for end in ended if not isinstance(end, Conflict)] == [run]
    for store in stores:
        await store.close()


async def test_a_run_that_nobody_has_is_not_taken_up(store: RunStore) -> None:
    with pytest.raises(NotFound):
        await store.claim("run_1", ELSEWHERE)
    assert not await store.is_performed("run_1")


async def test_a_run_whose_process_is_silent_for_too_long_may_be_taken_up(
    place: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(place, clock=clock)
    run = replace(make_run(status="running", answer=None), process=ELSEWHERE)
    await store.begin(run)
    clock.second = LEASE_SECONDS
    assert await store.is_performed(run.id)
    await store.beat([run.id, "run_unknown"])
    clock.second = 2 * LEASE_SECONDS
    assert await store.is_performed(run.id)
    with pytest.raises(Conflict, match="still going on in process another-machine:1"):
        await store.claim(run.id, this_process())
    clock.second += 1
    assert not await store.is_performed(run.id)
    assert await store.claim(run.id, this_process()) == run
    assert await store.is_performed(run.id)
    await store.close()


async def test_a_run_whose_process_is_known_to_be_gone_is_nobodys(
    store: RunStore, make_run: Callable[..., Run]
) -> None:
    machine = this_process().rpartition(":")[0]
    run = replace(make_run(status="running", answer=None), process=f"{machine}:999999999")
    await store.begin(run)
    assert not await store.is_performed(run.id)
    assert await store.claim(run.id, this_process()) == run


async def test_a_beat_does_not_touch_a_run_that_has_ended(
    place: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(place, clock=clock)
    await store.finish(make_run())
    clock.second = 9
    await store.beat([make_run().id])
    (summary,) = await store.list()
    await store.close()
    assert summary.updated_at == at(0)


async def test_a_run_that_is_held_is_forgotten_when_its_time_is_over(
    place: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(place, clock=clock)
    run = make_run("run_held", status="waiting")
    await store.finish(make_run("run_kept"))
    await store.begin(run)
    await store.hold(run, at(10))
    assert await store.load(run.id) == run
    clock.second = 10
    assert await store.delete_held() == 0
    clock.second = 11
    assert await store.delete_held() == 1
    assert [each.id for each in await store.list()] == ["run_kept"]
    await store.close()


async def test_a_held_run_that_goes_on_is_not_forgotten_meanwhile_and_not_kept_afterwards(
    place: str, make_run: Callable[..., Run]
) -> None:
    clock = Clock()
    store = await SqlRunStore.open(place, clock=clock)
    await store.hold(make_run(status="waiting"), at(10))
    clock.second = 20
    run = await store.claim("last", ELSEWHERE)
    assert await store.delete_held() == 0
    clock.second += LEASE_SECONDS + 1
    assert await store.delete_held() == 1, "its process is gone"
    await store.hold(run, at(10))
    await store.finish(run)
    assert await store.delete_held() == 0, "it is to be kept now"
    await store.close()
