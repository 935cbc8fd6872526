"""A worker that says its line word by word, and waits before each word where a test holds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from podium.core.errors import RequestRefused
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Price, Reply, Request, Usage
from podium.core.worker import Worker

USED: Final = Usage(100, 10, 0, 0, 0)
"""What every reply says that it took."""


class Paced(Worker):
    """`asked` is every request that it was asked. After `hold`, it says as many words as `say`
    allows, and the rest when `go_on` is called; `cancelled` tells that a call was cancelled. With
    `fails` it does, for that reason."""

    def __init__(self, name: str, line: str, price: float | None = None) -> None:
        self.profile = WorkerProfile(
            name=name,
            provider=f"{name}-works",
            model=f"{name}-1",
            description=f"the {name}",
            price=None if price is None else Price(input=price, output=2 * price),
        )
        self.begin_anew(line)

    def begin_anew(self, line: str) -> None:
        """As if nothing had been asked yet."""
        self.line = line
        self.fails = ""
        self.asked: list[Request] = []
        self.cancelled = asyncio.Event()
        self._words: asyncio.Semaphore | None = None

    def hold(self) -> None:
        """Stop streaming until released."""
        self._words = asyncio.Semaphore(0)

    def say(self, words: int = 1) -> None:
        """So many words more."""
        assert self._words is not None, "only a worker that is held is told to speak"
        for _ in range(words):
            self._words.release()

    def go_on(self) -> None:
        """Everything that is left, in every call that waits."""
        self.say(1000)
        self._words = None

    async def reply(self, request: Request) -> Reply:
        """The whole line."""
        async for piece in self.stream(request):
            if isinstance(piece, Reply):
                return piece
        raise AssertionError("a stream ends with a reply")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """The line, word by word."""
        self.asked.append(request)
        if self.fails:
            raise RequestRefused(self.fails)
        pace = self._words
        try:
            for word in self.line.split(" "):
                if pace is not None:
                    await pace.acquire()
                yield Delta(f"{word} ")
            if pace is not None:
                await pace.acquire()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        yield Reply(f"{self.line} ", USED)
