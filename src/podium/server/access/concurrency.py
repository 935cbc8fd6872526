"""How much is answered at a time: a bounded number in flight, a bounded queue behind it, and a
refusal with the time to come back beyond that. Rate limits and budgets of keys are `access`."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from podium.server.api_error import ApiError

COME_BACK: Final = 2.0
"""Seconds until a request that finds the queue full may try again."""


class ConcurrencyLimiter:
    """The places of requests that are answered at the same time. First come, first served."""

    def __init__(self, in_flight: int, queue: int) -> None:
        self._most = in_flight
        self._longest_queue = queue
        self._taken = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._empty: asyncio.Event | None = None

    @property
    def taken(self) -> int:
        """How many requests are being answered."""
        return self._taken

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._queue)

    @property
    def closed(self) -> bool:
        """Whether new requests are refused because the server is about to stop."""
        return self._closed

    async def take(self) -> None:
        """Take a place, waiting for it where that is worth while."""
        if self._closed:
            raise ApiError(
                "overloaded", "this server is about to stop; try again", retry_after=COME_BACK
            )
        if self._taken < self._most and not self._queue:
            self._taken += 1
            return
        if len(self._queue) >= self._longest_queue:
            raise ApiError(
                "overloaded",
                f"{self._taken} requests are being answered here and {len(self._queue)} wait; "
                f"try again later",
                retry_after=COME_BACK,
            )
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the place was given at the same moment
                self.give_back()
            else:
                self._queue.remove(turn)
            raise

    def give_back(self) -> None:
        """Give the place to whoever waits longest, if anybody does."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1
        if self._taken == 0 and self._empty is not None:
            self._empty.set()

    async def close(self, seconds: float) -> bool:
        """Refuse everything new, and wait so long for what goes on; whether all of it ended."""
        self._closed = True
        if self._taken == 0:
            return True
        self._empty = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
