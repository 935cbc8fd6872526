"""Doing in one go what several want at once.

Whoever comes while nothing is being done is served at once; whoever comes meanwhile waits, and is
served together with all others who do. So nobody waits who is alone, and the more there are, the
less each of them costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

MOST: Final = 64
"""How many are served together, so that what they want is no large thing to do."""

Want = TypeVar("Want")

_Waiting = tuple[Want, asyncio.Future[None]]


class Gathering(Generic[Want]):
    """Gathers what is wanted. `alone` does one thing, `together` several or none of them: where it
    raises, each is done alone, so that no one's fault is another's. It belongs to one event loop.
    """

    def __init__(
        self,
        *,
        alone: Callable[[Want], Awaitable[None]],
        together: Callable[[Sequence[Want]], Awaitable[None]],
    ) -> None:
        self._alone = alone
        self._together = together
        self._waiting: list[_Waiting[Want]] = []
        self._at_work: asyncio.Task[None] | None = None

    async def add(self, want: Want) -> None:
        """Have that done, and wait until it is. Who is cancelled meanwhile need not know whether
        it was."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((want, done))
        if self._at_work is None or self._at_work.done():
            self._at_work = loop.create_task(self._work())
        await done

    async def close(self) -> None:
        """Wait for what is being done."""
        if self._at_work is not None:
            await asyncio.wait({self._at_work})

    async def _work(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            some = [each for each in some if not each[1].cancelled()]
            try:
                await self._serve(some)
            finally:  # whoever waits must not wait for ever
                for _, done in some:
                    done.cancel()

    async def _serve(self, some: Sequence[_Waiting[Want]]) -> None:
        if len(some) > 1 and await self._is_done_together([want for want, _ in some]):
            for _, done in some:
                _tell(done, None)
        else:
            await asyncio.gather(*(self._serve_alone(*each) for each in some))

    async def _is_done_together(self, wants: Sequence[Want]) -> bool:
        try:
            await self._together(wants)
        except Exception:  # noqa: BLE001 - whose fault it is shows when each is done alone
            return False
        return True

    async def _serve_alone(self, want: Want, done: asyncio.Future[None]) -> None:
        try:
            await self._alone(want)
        except Exception as error:  # noqa: BLE001 - it is for whoever wanted this
            _tell(done, error)
        else:
            _tell(done, None)


def _tell(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # whoever waited is gone
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
