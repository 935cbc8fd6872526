"""The occasion: one task being measured once, known to everyone who is asked because of it.

    with occasion(repeat=2) as now:
        run = await strategy(case, stage)
    now.recalled, now.paid_usd

Workers cannot see for whom they are called. Two wrappers can: the one that keeps replies keeps
those of each repeat apart, so that a repeat is another draw and not the first one again; the one
below it counts who was really asked, and what that cost.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from podium.errors import RequestRefused
from podium.providers.cached import CachedWorker
from podium.request import Reply, Request
from podium.worker import Worker

SILENT_CALLS: Final = 20
SILENT_SECONDS: Final = 300.0
"""Who leaves so many calls in a row unanswered, for so long, is not asked again: each of them
takes the whole time limit, and the other workers' tasks would wait for it."""


@dataclass(slots=True)
class Occasion:
    """Which repeat of its task this is, how many calls were answered by kept replies, and what
    the others cost."""

    repeat: int = 0
    recalled: int = 0
    paid_usd: float = 0.0


_current: Final = ContextVar[Occasion | None]("podium_occasion", default=None)


@contextmanager
def occasion(repeat: int = 0) -> Iterator[Occasion]:
    """What is asked inside, and in everything that is begun inside, is asked on this occasion."""
    now = Occasion(repeat)
    token = _current.set(now)
    try:
        yield now
    finally:
        _current.reset(token)


def current_repeat() -> int:
    """Which repeat of its task is being measured; 0 outside of any occasion."""
    now = _current.get()
    return 0 if now is None else now.repeat


def note_recalled() -> None:
    """A call of this occasion was answered by a reply from another time."""
    now = _current.get()
    if now is not None:
        now.recalled += 1


class RepeatingWorker(CachedWorker):
    """A worker whose replies are kept, for each repeat its own."""

    async def reply(self, request: Request) -> Reply:
        """The kept reply, else the worker's, which is then kept."""
        asked = False

        async def ask() -> Reply:
            nonlocal asked
            asked = True
            return await self._worker.reply(request)

        reply = await self._cache.fetch(self._key(request), ask)
        if not asked:
            note_recalled()
        return reply

    def _key(self, request: Request) -> bytes:
        key, now = super()._key(request), _current.get()
        if now is None or now.repeat == 0:
            return key
        return hashlib.blake2b(key + str(now.repeat).encode(), digest_size=16).digest()


class CountedWorker(Worker):
    """A worker whose calls are counted in `asked`, which all workers of an evaluation share, and
    paid for on each occasion."""

    def __init__(
        self, worker: Worker, asked: Counter[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.profile = worker.profile
        self._worker = worker
        self._asked = asked
        self._clock = clock
        self._unanswered = 0
        self._silent_since = 0.0

    async def reply(self, request: Request) -> Reply:
        """The worker's reply, counted and paid for."""
        name, now = self.profile.name, _current.get()
        if self._has_gone:
            raise RequestRefused(
                f"{name} left {self._unanswered} calls in a row unanswered and is not asked again "
                f"in this evaluation; once it is back, measure what it left out: podium eval run "
                f"has --retry-faults for that, and a table is made anew"
            )
        self._asked[name] += 1
        began = self._clock()
        try:
            reply = await self._worker.reply(request)
        except BaseException:  # the engine cancels a call that takes too long
            self._unanswered += 1
            if self._unanswered == 1:
                self._silent_since = began
            raise
        self._unanswered = 0
        price = self.profile.price
        if now is not None and price is not None:
            now.paid_usd += price.cost(reply.usage) or 0.0
        return reply

    @property
    def _has_gone(self) -> bool:
        silent = self._clock() - self._silent_since
        return self._unanswered >= SILENT_CALLS and silent >= SILENT_SECONDS
