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
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from random import Random
from typing import Final

from podium.core.errors import RequestRefused
from podium.core.request import Reply, Request
from podium.core.run import Run
from podium.core.worker import Worker
from podium.engine import CallPolicy
from podium.engine.runner import Options
from podium.evals.sample import Case
from podium.workers.cached import CachedWorker


class EvalBudget:
    """Money for an evaluation; with no cap there is no end to it. `spent` is what was paid in
    all, before this process as well."""

    def __init__(self, cap_usd: float | None = None) -> None:
        self.cap_usd = cap_usd
        self.spent = 0.0
        self._dearest: float | None = None
        self._under_way = 0

    def turn(self) -> None:
        """Another strategy's turn: what its tasks cost is not known yet."""
        self._dearest = None

    @property
    def is_blind(self) -> bool:
        """Whether there is a cap, and nothing to tell by what a task will cost."""
        return self.cap_usd is not None and self._dearest is None

    @property
    def is_enough(self) -> bool:
        """Whether one more task may be begun."""
        if self.cap_usd is None:
            return True
        if self.spent >= self.cap_usd:
            return self.cap_usd == self.spent == 0.0  # free workers are asked with an empty purse
        return self.spent + (self._under_way + 1) * (self._dearest or 0.0) <= self.cap_usd

    def begin(self) -> None:
        """A task is begun."""
        self._under_way += 1

    def end(self, paid_usd: float, price_usd: float | None = None) -> None:
        """A task is done, and cost that much; `price_usd` is what it costs without kept replies,
        where that is known."""
        self._under_way -= 1
        self.spent += paid_usd
        self.note(paid_usd, price_usd)

    def note(self, paid_usd: float, price_usd: float | None = None) -> None:
        """A task of this strategy cost that much, now or in an earlier sitting, so the next one
        may too. It is not counted as spent by this."""
        self._dearest = max(self._dearest or 0.0, paid_usd, price_usd or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalContext:
    """The workers by name, the engine's switchboard, and what holds for every run. `repeat` is
    how often the tasks were put before."""

    workers: Mapping[str, Worker]
    call_policy: CallPolicy
    options: Options
    seed: int
    repeat: int = 0

    def draw(self, case: Case, purpose: str) -> Random:
        """Chance for one purpose on one task: the same in every run with the same seed, another
        one in every repeat."""
        again = f"/{self.repeat}" if self.repeat else ""
        return Random(f"{self.seed}/{case.task.id}/{purpose}{again}")  # noqa: S311 - repeatable


Strategy = Callable[[Case, EvalContext], Awaitable[Run]]
"""A way to answer: one function, from a task to the run that answers it."""


SILENT_CALLS: Final = 20
SILENT_SECONDS: Final = 300.0
"""Who leaves so many calls in a row unanswered, for so long, is not asked again: each of them
takes the whole time limit, and the other workers' tasks would wait for it."""


@dataclass(slots=True)
class SampleContext:
    """Which repeat of its task this is, how many calls were answered by kept replies, and what
    the others cost."""

    repeat: int = 0
    recalled: int = 0
    paid_usd: float = 0.0


_current: Final = ContextVar[SampleContext | None]("podium_occasion", default=None)


@contextmanager
def occasion(repeat: int = 0) -> Iterator[SampleContext]:
    """What is asked inside, and in everything that is begun inside, is asked on this occasion."""
    now = SampleContext(repeat)
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
