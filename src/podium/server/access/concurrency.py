"""A limit on concurrent requests: a bounded number in flight and a bounded queue behind it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from podium.server.api_error import ApiError

RETRY_AFTER_SECONDS: Final = 2.0
"""Seconds after which a refused request may try again."""


class ConcurrencyLimiter:
    """Admits `in_flight` requests at a time, in the order of their arrival."""

    def __init__(self, in_flight: int, queue: int) -> None:
        self._max_in_flight = in_flight
        self._max_queued = queue
        self._in_flight = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._idle: asyncio.Event | None = None

    @property
    def in_flight(self) -> int:
        """The number of requests being served."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._queue)

    @property
    def closed(self) -> bool:
        """True while the server shuts down and refuses new requests."""
        return self._closed

    async def acquire(self) -> None:
        """Wait for a slot; raises `ApiError` overloaded if the queue is full."""
        if self._closed:
            raise ApiError(
                "overloaded",
                "the server is shutting down; try again",
                retry_after=RETRY_AFTER_SECONDS,
            )
        if self._in_flight < self._max_in_flight and not self._queue:
            self._in_flight += 1
            return
        if len(self._queue) >= self._max_queued:
            raise ApiError(
                "overloaded",
                f"too many requests: {self._in_flight} in flight and {len(self._queue)} queued; "
                f"try again later",
                retry_after=RETRY_AFTER_SECONDS,
            )
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was assigned at the same moment
                self.release()
            else:
                self._queue.remove(turn)
            raise

    def release(self) -> None:
        """Pass the slot to the first request in the queue, or free it."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._in_flight -= 1
        if self._in_flight == 0 and self._idle is not None:
            self._idle.set()

    async def close(self, seconds: float) -> bool:
        """Refuse new requests and wait up to `seconds` for the others; True if all ended."""
        self._closed = True
        if self._in_flight == 0:
            return True
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
