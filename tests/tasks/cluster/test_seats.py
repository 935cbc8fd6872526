from __future__ import annotations

import asyncio
from typing import Any

import pytest

from podium.core.errors import ConfigError, StoreError
from podium.tasks.cluster import MAX_LOST_ACTORS, ActorPool
from support.ray_cluster import EXCEPTIONS, Gone, LostObject, Wrapped


class FakeSeat:
    """A seat in this process, which counts what it is given and may be gone."""

    def __init__(self, end: object) -> None:
        self.perform = self
        self.given = 0
        self._end = end

    async def remote(self, *_: Any) -> object:
        self.given += 1
        await asyncio.sleep(0)
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


def seats_of(*seats: FakeSeat) -> ActorPool:
    return ActorPool(seats, EXCEPTIONS, hint="what was done is kept")


async def test_work_goes_to_the_least_loaded_process() -> None:
    seats = [FakeSeat("done") for _ in range(3)]
    taken = seats_of(*seats)
    assert await asyncio.gather(*(taken.perform("work") for _ in range(9))) == ["done"] * 9
    assert [seat.given for seat in seats] == [3, 3, 3]


@pytest.mark.parametrize("loss", [Gone(), LostObject()], ids=["at work", "with its result"])
async def test_a_seat_that_is_gone_is_not_given_anything_again_and_without_any_it_ends(
    loss: Exception,
) -> None:
    gone, here = FakeSeat(loss), FakeSeat("done")
    taken = seats_of(gone, here)
    for _ in range(3):
        assert await taken.perform("work") == "done"
    assert (gone.given, here.given, len(taken)) == (1, 3, 1)
    with pytest.raises(StoreError, match="has lost all actors; what was done is kept"):
        await seats_of(gone).perform("work")


async def test_work_that_kills_its_seat_is_given_to_a_few_and_leaves_the_others_to_the_rest() -> (
    None
):
    dead = [FakeSeat(Gone("out of memory")) for _ in range(MAX_LOST_ACTORS)]
    spared = FakeSeat("done")
    taken = seats_of(*dead, spared)
    with pytest.raises(
        StoreError,
        match=r"3 actors of the Ray cluster were lost .*Gone: out of memory.*what was done is kept",
    ):
        await taken.perform("what kills")
    assert ([seat.given for seat in dead], spared.given) == ([1, 1, 1], 0)
    assert await taken.perform("the rest") == "done"


async def test_losing_the_last_worker_process_is_not_reported_as_a_task_failure() -> None:
    taken = seats_of(*(FakeSeat(Gone()) for _ in range(MAX_LOST_ACTORS)))
    with pytest.raises(StoreError, match="has lost all actors"):
        await taken.perform("work")


async def test_what_a_person_must_change_comes_out_as_it_is() -> None:
    refused = FakeSeat(Wrapped(ConfigError("no price is known")))
    with pytest.raises(ConfigError, match="no price is known"):
        await seats_of(refused).perform("work")


async def test_what_a_seat_lost_itself_is_no_loss_of_the_seat() -> None:
    """Ray's wrapping is of the kind of what it wraps, too."""

    class WrappedLoss(Wrapped, Gone):
        pass

    seat = FakeSeat(WrappedLoss(Gone()))
    taken = seats_of(seat)
    with pytest.raises(WrappedLoss):
        await taken.perform("work")
    assert len(taken) == 1
