"""Kept replies for all seats of a cluster: they are on the machine where the work was begun, and
every seat asks for them there before it asks a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from podium.providers.cached import ReplyCache
from podium.request import Reply

SEAT_BYTES: Final = 64 * 1024 * 1024
"""What a seat remembers by itself of the replies that it has seen."""


class Replies(NamedTuple):
    """Where kept replies are on this machine, None for in memory, and how many bytes at most."""

    path: Path | None
    max_bytes: int


class Library:
    """Keeps the replies for all seats, on the machine where the work was begun."""

    def __init__(self, replies: Replies) -> None:
        self._cache = ReplyCache(replies.path, replies.max_bytes)

    def get(self, key: bytes) -> Reply | None:
        """The reply that is kept under that key, if there is one."""
        return self._cache.get(key)

    def keep(self, key: bytes, reply: Reply) -> Reply:
        """Keep the reply, and hand out the one that counts: where two seats asked the same thing
        at the same time, the first to come back, for both."""
        kept = self._cache.get(key)
        if kept is not None:
            return kept
        self._cache.put(key, reply)
        return reply


class BorrowedReplies(ReplyCache):
    """The replies of a library elsewhere; what was borrowed once is remembered here, and is a hit
    like any other."""

    def __init__(self, library: Any) -> None:
        super().__init__(None, SEAT_BYTES)
        self._library = library

    async def fetch(self, key: bytes, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        """The reply under that key, from here, from the library, or from who is asked."""
        return await super().fetch(key, lambda: self._borrowed(key, ask))

    async def _borrowed(self, key: bytes, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        kept: Reply | None = await self._library.get.remote(key)
        if kept is not None:
            self.misses -= 1  # it was counted as one when it was not found here
            self.hits += 1
            return kept
        reply = await ask()
        counts: Reply = await self._library.keep.remote(key, reply)  # before anyone uses it
        return counts
