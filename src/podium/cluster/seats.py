"""Who among the seats of a cluster gets what, and what becomes of it when a seat is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from podium.errors import PodiumError, StoreError

MOST_SEATS_LOST: Final = 3
"""How many seats one piece of work may be lost with. More are no accident: the work kills them, and
would leave none for the rest."""


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
        machine or by itself, is not given anything again, and another one performs it instead.
        Work that was lost with several is given to no more."""
        lost = 0
        while self._busy and lost < MOST_SEATS_LOST:
            seat = min(self._busy, key=self._busy.__getitem__)
            self._busy[seat] += 1
            try:
                return await seat.perform.remote(*work)
            except self._raised as error:
                raise error.cause if isinstance(error.cause, PodiumError) else error from None
            except self._gone as error:
                self._busy.pop(seat, None)
                lost, cause = lost + 1, error
            finally:
                if seat in self._busy:
                    self._busy[seat] -= 1
        if self._busy:
            raise StoreError(
                f"{lost} seats of the Ray cluster were lost at the same piece of work, the last by "
                f"{type(cause).__name__}: {cause}; see why in Ray's logs (often it is memory); "
                f"{self._told}"
            ) from cause
        raise StoreError(f"the Ray cluster has lost every machine; {self._told}")
