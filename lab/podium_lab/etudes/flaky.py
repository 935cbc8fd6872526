"""Workers that now and then do not know what they should, so that a second round is worth having.

Whether one fails is decided by a hash of what it is asked: the same request always comes to the
same, and a changed one is a new chance.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from hashlib import blake2b
from typing import Final

from podium.core.errors import UsageError
from podium.core.request import Delta, Reply, Request
from podium.core.usage import NO_USAGE
from podium.core.worker import Worker
from podium_lab.etudes.vocabulary import UNSURE

_PARTS: Final = 2**32


class FlakyWorker:
    """A worker that says it does not know in a share of all cases, instead of being asked."""

    def __init__(self, worker: Worker, share: float, seed: int = 0) -> None:
        if not 0 <= share <= 1:
            raise UsageError(f"a worker cannot fail in a share of {share}; give one from 0 to 1")
        self.profile = worker.profile
        self._worker = worker
        self._share = share
        self._seed = seed

    async def reply(self, request: Request) -> Reply:
        """The worker's reply, or that it does not know."""
        if self._fails(request):
            return Reply(UNSURE, NO_USAGE, model=self.profile.model)
        return await self._worker.reply(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """The worker's stream, or that it does not know."""
        if self._fails(request):
            yield Delta(UNSURE)
            yield await self.reply(request)
            return
        async for piece in self._worker.stream(request):
            yield piece

    def _fails(self, request: Request) -> bool:
        return is_forgotten(self.profile.name, request.text, self._share, self._seed)


def is_forgotten(worker: str, text: str, share: float, seed: int) -> bool:
    """Whether a worker that fails in that share of all cases fails at this text."""
    digest = blake2b(f"{seed}\0{worker}\0{text}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) < share * _PARTS
