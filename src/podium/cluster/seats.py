"""Who among the seats of a cluster gets what, and what becomes of it when a seat is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podium.errors import PodiumError, StoreError


class Seats:
    """The seats that were taken in a cluster. `lost` tells, in words, what is left of the work
    and how to go on when every one of them is gone."""

    def __init__(self, seats: Sequence[Any], exceptions: Any, *, lost: str) -> None:
        self._busy = dict.fromkeys(seats, 0)
        self._told = lost
        self._raised = exceptions.RayTaskError  # Ray's own wrapping of what a seat raised
        self._gone = (exceptions.RayActorError, exceptions.ObjectLostError)

    def __len__(self) -> int:
        return len(self._busy)

    async def perform(self, *work: Any) -> Any:
        """Have the seat with least to do perform it. A seat that is lost meanwhile, with its
        machine or by itself, is not given anything again, and another one performs it instead."""
        while self._busy:
            seat = min(self._busy, key=self._busy.__getitem__)
            self._busy[seat] += 1
            try:
                return await seat.perform.remote(*work)
            except self._raised as error:
                raise error.cause if isinstance(error.cause, PodiumError) else error from None
            except self._gone:
                self._busy.pop(seat, None)
            finally:
                if seat in self._busy:
                    self._busy[seat] -= 1
        raise StoreError(f"the Ray cluster has lost every machine; {self._told}")
