"""The gate in front of a worker: how many calls at once, how many a minute.

A gate belongs to a worker and is shared by every run of the process. It waits; it never refuses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from podium.pool import Limits

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class Allowance:
    """A bucket that refills evenly: `per_minute` units a minute, at most that many at once.

    Taking more than is left puts the bucket into debt and returns how long to wait, so that
    callers are served in the order in which they came.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_second = per_minute / 60
        self._most = float(per_minute)
        self._left = float(per_minute)
        self._clock = clock
        self._refilled = clock()

    def take(self, amount: float) -> float:
        """Take the amount, or all that a minute has, and return the seconds until it is there."""
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._refilled) * self._per_second)
        self._refilled = now
        self._left -= min(amount, self._most)
        return max(0.0, -self._left / self._per_second)

    def give_back(self, taken: float, used: float = 0.0) -> None:
        """Return what was taken and not used; where more was used, that is taken too."""
        self._left = min(self._most, self._left + min(taken, self._most) - used)


class Gate:
    """Holds calls back until the worker's limits allow them."""

    def __init__(self, limits: Limits, clock: Clock, sleep: Sleep) -> None:
        self._slots = asyncio.Semaphore(limits.concurrency) if limits.concurrency else None
        self._requests = (
            Allowance(limits.requests_per_minute, clock) if limits.requests_per_minute else None
        )
        self._tokens = (
            Allowance(limits.tokens_per_minute, clock) if limits.tokens_per_minute else None
        )
        self._sleep = sleep
        self.is_open = not (self._slots or self._requests or self._tokens)

    @asynccontextmanager
    async def passing(self, estimated_tokens: int) -> AsyncIterator[None]:
        """Wait for a place and for the allowances, and keep the place during the call."""
        if self._slots:
            await self._slots.acquire()
        try:
            await self._allowed(estimated_tokens)
            yield
        finally:
            if self._slots:
                self._slots.release()

    async def _allowed(self, tokens: int) -> None:
        """Wait until the allowances are there; who gives up waiting leaves them to others."""
        wait = max(
            self._requests.take(1) if self._requests else 0.0,
            self._tokens.take(tokens) if self._tokens else 0.0,
        )
        if wait <= 0:
            return
        try:
            await self._sleep(wait)
        except BaseException:
            if self._requests:
                self._requests.give_back(1)
            self.correct(tokens, 0)
            raise

    def correct(self, estimated_tokens: int, used: int | None) -> None:
        """Put an estimate right once the call's real tokens are known."""
        if self._tokens and used is not None:
            self._tokens.give_back(estimated_tokens, used)
