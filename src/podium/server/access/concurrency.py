"""A limit on concurrent requests: a bounded number in flight and a bounded queue behind it."""

from __future__ import annotations

import asyncio
from typing import Final

from podium.server.api_error import ApiError

RETRY_AFTER_SECONDS: Final = 2.0
"""Seconds after which a refused request may try again."""


class ConcurrencyLimiter:
    """Admits `in_flight` requests at a time, in the order of their arrival.

    `in_flight` counts the requests being served, `waiting` those in the queue; it is `closed` while
    the server shuts down and refuses new requests.
    """

    def __init__(self, in_flight: int, queue: int) -> None:
        self.in_flight = 0
        self.waiting = 0
        self.closed = False
        self._slots = asyncio.Semaphore(in_flight)
        self._max_waiting = queue
        self._idle = asyncio.Event()

    async def acquire(self) -> None:
        """Wait for a slot; raises `ApiError` overloaded if the queue is full."""
        if self.closed:
            raise _overloaded("the server is shutting down; try again")
        if self._slots.locked():
            if self.waiting >= self._max_waiting:
                raise _overloaded(
                    f"too many requests: {self.in_flight} in flight and {self.waiting} queued; "
                    f"try again later"
                )
            self.waiting += 1
            try:
                await self._slots.acquire()
            except asyncio.CancelledError:
                self.waiting -= 1
                self._report_idle()
                raise
            self.waiting -= 1
        else:
            await self._slots.acquire()
        self.in_flight += 1

    def release(self) -> None:
        """Pass the slot to the first request in the queue, or free it."""
        self.in_flight -= 1
        self._slots.release()
        self._report_idle()

    def _report_idle(self) -> None:
        if not self.in_flight and not self.waiting:
            self._idle.set()

    async def close(self, seconds: float) -> bool:
        """Refuse new requests and wait up to `seconds` for the others; True if all ended."""
        self.closed = True
        if not self.in_flight and not self.waiting:
            return True
        self._idle.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _overloaded(message: str) -> ApiError:
    return ApiError("overloaded", message, retry_after=RETRY_AFTER_SECONDS)
