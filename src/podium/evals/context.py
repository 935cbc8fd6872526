"""The context of a running sample: workers, call policy, budget.

    with sample_context(repeat=2) as sample:
        run = await strategy(case, context)
    sample.cached_calls, sample.paid_usd

Workers do not see which sample they are called for. Two wrappers do, by a context variable:
`RepeatCachedWorker` caches replies per repeat, so that a repeat is another draw; `CountedWorker`
counts calls and what they cost.
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

from podium.core.budget import DEFAULT_OUTPUT_TOKENS, estimate_input_tokens
from podium.core.errors import RequestRefused, WorkerError
from podium.core.request import Reply, Request
from podium.core.run import Run
from podium.core.worker import Worker
from podium.engine import CallPolicy
from podium.engine.runner import Options
from podium.evals.sample import Case
from podium.workers.cached import CachedWorker

MAX_UNANSWERED_CALLS: Final = 20
MAX_UNANSWERED_SECONDS: Final = 300.0
"""A worker that leaves so many calls in a row unanswered for so long is not called again: each
call takes the whole time limit."""


class EvalBudget:
    """The cost cap of an evaluation. `spent` includes what earlier sessions paid."""

    def __init__(self, cap_usd: float | None = None) -> None:
        self.cap_usd = cap_usd
        self.spent = 0.0
        self._highest_price: float | None = None
        self._in_flight = 0

    def start_strategy(self) -> None:
        """Forget the price of a sample: another strategy begins."""
        self._highest_price = None

    @property
    def needs_probe(self) -> bool:
        """True if there is a cap and no sample has shown yet what one costs."""
        return self.cap_usd is not None and self._highest_price is None

    @property
    def can_start_sample(self) -> bool:
        """True if one more sample at the highest price so far fits under the cap."""
        if self.cap_usd is None:
            return True
        if self.spent >= self.cap_usd:
            return self.cap_usd == self.spent == 0.0  # free workers need no money
        return self.spent + (self._in_flight + 1) * (self._highest_price or 0.0) <= self.cap_usd

    def start_sample(self) -> None:
        """Reserve the price of one sample."""
        self._in_flight += 1

    def finish_sample(
        self, paid_usd: float, price_usd: float | None = None, *, failed: bool = False
    ) -> None:
        """Add what a sample cost; `price_usd` is its cost without cached replies, if known."""
        self._in_flight -= 1
        self.spent += paid_usd
        self.record_price(paid_usd, price_usd, failed=failed)

    def record_price(
        self, paid_usd: float, price_usd: float | None = None, *, failed: bool = False
    ) -> None:
        """Record the price of a sample of this strategy without counting it as spent.

        A sample that failed at no cost says nothing about the price of the next one.
        """
        price = max(paid_usd, price_usd or 0.0)
        if price or not failed:
            self._highest_price = max(self._highest_price or 0.0, price)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalContext:
    """Workers by name, the engine's call policy and options, the seed, and the repeat from 0."""

    workers: Mapping[str, Worker]
    call_policy: CallPolicy
    options: Options
    seed: int
    repeat: int = 0

    def random(self, case: Case, purpose: str) -> Random:
        """Return a generator for one purpose on one task, seeded by the evaluation's seed."""
        again = f"/{self.repeat}" if self.repeat else ""
        return Random(f"{self.seed}/{case.task.id}/{purpose}{again}")  # noqa: S311 - repeatable


Strategy = Callable[[Case, EvalContext], Awaitable[Run]]
"""A way to answer: a function from a case to the run that answers it."""


@dataclass(slots=True)
class SampleContext:
    """The repeat of a sample, how many calls the cache answered, and what the others cost."""

    repeat: int = 0
    cached_calls: int = 0
    paid_usd: float = 0.0


_current: Final = ContextVar[SampleContext | None]("podium_sample", default=None)


@contextmanager
def sample_context(repeat: int = 0) -> Iterator[SampleContext]:
    """Attribute every call made inside, also in tasks started inside, to one sample."""
    context = SampleContext(repeat)
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def current_repeat() -> int:
    """Return the repeat of the current sample; 0 outside of any."""
    context = _current.get()
    return 0 if context is None else context.repeat


def count_cached_call() -> None:
    """Count a call of the current sample that a cached reply answered."""
    context = _current.get()
    if context is not None:
        context.cached_calls += 1


class RepeatCachedWorker(CachedWorker):
    """A worker with cached replies, separate for each repeat."""

    async def reply(self, request: Request) -> Reply:
        """Return the cached reply, else the worker's."""
        is_called = False

        async def call() -> Reply:
            nonlocal is_called
            is_called = True
            return await self._worker.reply(request)

        reply = await self._cache.fetch(self._key(request), call)
        if not is_called:
            count_cached_call()
        return reply

    def _key(self, request: Request) -> bytes:
        key, repeat = super()._key(request), current_repeat()
        if repeat == 0:
            return key
        return hashlib.blake2b(key + str(repeat).encode(), digest_size=16).digest()


class CountedWorker(Worker):
    """A worker whose calls are counted in `calls` and paid for by the current sample.

    A call with unreported usage, and a failed call that may be billed, is charged at its
    estimate.
    """

    def __init__(
        self, worker: Worker, calls: Counter[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.profile = worker.profile
        self._worker = worker
        self._calls = calls
        self._clock = clock
        self._unanswered = 0
        self._silent_since = 0.0

    async def reply(self, request: Request) -> Reply:
        """Call the worker, count the call and charge it."""
        name = self.profile.name
        if self._is_gone:
            raise RequestRefused(
                f"{name} left {self._unanswered} calls in a row unanswered and is not called again "
                f"in this evaluation; repeat the command with --retry-errors when it is back"
            )
        self._calls[name] += 1
        began = self._clock()
        try:
            reply = await self._worker.reply(request)
        except BaseException as error:  # the engine cancels a call that takes too long
            self._unanswered += 1
            if self._unanswered == 1:
                self._silent_since = began
            if not isinstance(error, WorkerError) or error.billed:
                self._charge(self._estimate(request))
            raise
        self._unanswered = 0
        price = self.profile.price
        cost = None if price is None else price.cost(reply.usage)
        self._charge(self._estimate(request) if cost is None else cost)
        return reply

    def _charge(self, usd: float) -> None:
        context = _current.get()
        if context is not None:
            context.paid_usd += usd

    def _estimate(self, request: Request) -> float:
        """Return the most that the call may cost; 0 for a worker without a price."""
        price = self.profile.price
        if price is None:
            return 0.0
        inputs = estimate_input_tokens(request)
        limit = self.profile.limits.max_output_tokens
        outputs = request.max_tokens or limit or DEFAULT_OUTPUT_TOKENS
        return (inputs * price.highest_input + outputs * price.highest_output) / 1_000_000

    @property
    def _is_gone(self) -> bool:
        silent = self._clock() - self._silent_since
        return self._unanswered >= MAX_UNANSWERED_CALLS and silent >= MAX_UNANSWERED_SECONDS
