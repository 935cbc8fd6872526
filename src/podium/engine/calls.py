"""Call a worker: budget, rate limits, timeout, retries, and a record of each attempt.

Whatever a worker does wrong becomes a `WorkerError` here; besides that, only `BudgetExhausted`,
`BudgetUnavailable` and cancellation leave this module.
"""

from __future__ import annotations

import asyncio
import math
import time
from asyncio import current_task
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final

from podium._util.rate_limit import RateLimiter
from podium.core.budget import CallReservation, Ledger, cap_output, estimate_input_tokens
from podium.core.errors import (
    BadReply,
    PodiumError,
    RequestRefused,
    TimedOut,
    WorkerCrashed,
    WorkerError,
)
from podium.core.pool import Limits
from podium.core.request import NO_USAGE, UNKNOWN_USAGE, Reply, Request, Usage, plausible_usage
from podium.core.retry import BreakerPolicy, RetryPolicy
from podium.core.run import Attempt
from podium.core.worker import OnDelta, OnRetry, Worker
from podium.engine.breakers import Breakers, Clock

MAX_REPLY_CHARS: Final = 2_000_000
"""Several times the longest output of any model; a longer reply is a fault."""

MAX_RESUMED_CHARS: Final = 100_000
"""A stream that broke off after more is not retried: the sent text would dominate the cost."""

MAX_CHARS_PER_TOKEN: Final = 32
SPARE_CHARS: Final = 10_000
"""A stream with a token limit is stopped after `SPARE_CHARS + MAX_CHARS_PER_TOKEN * max_tokens`."""

CanFallBack = Callable[[], bool]
"""True if a fallback would take over from this worker."""


AnyTask = asyncio.Task[Any]
Sleep = Callable[[float], Awaitable[None]]


class Deadlines:
    """The deadlines of the calls in flight on one event loop, with one timer for all.

    A task makes one call at a time. A timer per call costs more than the rest of the call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: dict[AnyTask, float] = {}
        self._expired: set[AnyTask] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf

    def start(self, seconds: float) -> AnyTask:
        """Cancel the current task after that time, unless `stop` is called for it."""
        task = current_task(self._loop)
        assert task is not None, "a call is always made inside a task"
        deadline = self._loop.time() + seconds
        self._deadlines[task] = deadline
        if deadline < self._wakes_at:
            self._arm(deadline)
        return task

    def stop(self, task: AnyTask) -> bool:
        """Remove the deadline. True if it, and nothing else, cancelled the task.

        The cancellation is undone then, and the caller raises its own error.
        """
        del self._deadlines[task]
        if task not in self._expired:
            return False
        self._expired.remove(task)
        return task.uncancel() <= 0

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._wakes_at = self._loop.call_at(deadline, self._wake), deadline

    def _wake(self) -> None:
        """Cancel overdue tasks and set the timer for the next deadline."""
        self._timer, self._wakes_at = None, math.inf
        now = self._loop.time()
        for task, deadline in self._deadlines.items():
            if deadline <= now and task not in self._expired:
                self._expired.add(task)
                task.cancel()
        waiting = [at for task, at in self._deadlines.items() if task not in self._expired]
        if waiting:
            self._arm(min(waiting))


class WorkerLimiter:
    """Limits a worker's concurrency, requests and tokens a minute; it waits and never refuses."""

    def __init__(self, limits: Limits, clock: Clock, sleep: Sleep) -> None:
        self._slots = asyncio.Semaphore(limits.concurrency) if limits.concurrency else None
        self._max_tokens = limits.tokens_per_minute or 0
        rates = (limits.requests_per_minute or None, limits.tokens_per_minute or None)
        self._rates = RateLimiter(*rates, clock()) if any(rates) else None
        self._clock = clock
        self._sleep = sleep
        self.is_unlimited = self._slots is None and self._rates is None

    @asynccontextmanager
    async def enter(self, estimated_tokens: int) -> AsyncIterator[None]:
        """Wait for a slot and for the rate limits; the slot is held during the call."""
        async with self._slots or nullcontext():
            if self._rates is not None:
                await self._wait_for_rate(self._rates, min(estimated_tokens, self._max_tokens))
            yield

    async def _wait_for_rate(self, rates: RateLimiter, tokens: int) -> None:
        """Wait for the rate limits; a cancelled wait returns what it took."""
        wait = rates.wait(tokens, self._clock())
        rates.take(tokens)
        if wait <= 0:
            return
        try:
            await self._sleep(wait)
        except BaseException:
            rates.take(-tokens, requests=-1)
            raise

    def correct(self, estimated_tokens: int, used: int | None) -> None:
        """Correct an estimate once the call's real tokens are known."""
        if used is not None and self._rates is not None:
            self._rates.correct(used - min(estimated_tokens, self._max_tokens))


class CallPolicy:
    """Shared by all calls of a process: retries, rate limits, circuit breakers, clock.

    Without a breaker policy there are no breakers. With `waits_for_circuits`, a run without
    fallback waits until an open circuit may close; a server fails at once instead.
    """

    deadlines: Deadlines

    def __init__(
        self,
        retry: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        *,
        clock: Clock = time.perf_counter,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.retry = retry or RetryPolicy()
        self.breakers = Breakers(breaker, clock)
        self.breakers_by_worker = self.breakers.breakers_by_worker
        self.waits_for_circuits = True
        self.clock = clock
        self.sleep = sleep
        self._limiters: dict[str, WorkerLimiter] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self) -> None:
        """Bind to the running event loop; call before a run.

        Waiters belong to a loop, so on another loop the rate limits and deadlines start anew.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._limiters = {}
            self.deadlines = Deadlines(loop)

    def limiter(self, worker: Worker) -> WorkerLimiter:
        name = worker.profile.name
        limiter = self._limiters.get(name)
        if limiter is None:
            limiter = self._limiters[name] = WorkerLimiter(
                worker.profile.limits, self.clock, self.sleep
            )
        return limiter


class BudgetedCaller:
    """Makes the calls of one step or of one round's planning; `attempts` records them.

    Workers whose name or provider is in `excluded` are refused. The remaining budget is divided by
    `budget_divisor`: one part for this call, the others for steps still to come.
    """

    __slots__ = ("_call_policy", "_excluded", "_ledger", "_started", "attempts", "budget_divisor")

    def __init__(
        self,
        call_policy: CallPolicy,
        ledger: Ledger,
        started: float,
        excluded: Collection[str] = (),
    ) -> None:
        self._call_policy = call_policy
        self._ledger = ledger
        self._started = started
        self._excluded = excluded
        self.attempts: list[Attempt] = []
        self.budget_divisor = 1

    @property
    def seconds_left(self) -> float | None:
        return self._ledger.seconds_left

    async def __call__(
        self,
        worker: Worker,
        request: Request,
        on_delta: OnDelta | None = None,
        on_retry: OnRetry | None = None,
        can_fall_back: CanFallBack | None = None,
    ) -> Reply:
        """Call the worker, with retries; stream if `on_delta` is given.

        An open circuit is waited for only where the call policy allows it and `can_fall_back` says
        that there is no fallback.
        """
        if self._excluded:
            self._refuse_excluded(worker)
        call_policy = self._call_policy
        limiter = call_policy.limiter(worker)
        attempt = 1
        while True:
            try:
                if call_policy.breakers_by_worker:
                    self._check_breaker(worker)
                reservation = self._ledger.reserve(worker.profile, request, self.budget_divisor)
                if reservation is None or self._ledger.is_shared:
                    reservation = await self._ledger.wait_for_reservation(
                        reservation, worker.profile, request, self.budget_divisor
                    )
                if limiter.is_unlimited:
                    return await self._attempt(worker, request, reservation, on_delta)
                return await self._make_limited(limiter, worker, request, reservation, on_delta)
            except WorkerError as error:
                wait = self._wait_before(attempt, error, worker, can_fall_back)
                if wait is None:
                    raise
                if on_retry is not None:
                    request = on_retry(worker.profile.name, error, wait)
                await call_policy.sleep(wait)
                attempt += 1

    def _wait_before(
        self, attempt: int, error: WorkerError, worker: Worker, can_fall_back: CanFallBack | None
    ) -> float | None:
        """Return the seconds until the retry, or None to give up."""
        wait = self._call_policy.retry.wait_before(attempt, error)
        if wait is None or not self._call_policy.breakers_by_worker:
            return wait
        refusal = self._call_policy.breakers.refusal(worker.profile.name)
        if refusal is None:
            return wait
        waits = self._call_policy.waits_for_circuits
        if not waits or can_fall_back is None or can_fall_back():
            return None
        until = self._call_policy.retry.wait_before(attempt, refusal)
        return None if until is None else max(wait, until)

    def _check_breaker(self, worker: Worker) -> None:
        """Refuse to call a worker whose circuit is open; the attempt is recorded as free."""
        refusal = self._call_policy.breakers.refusal(worker.profile.name)
        if refusal is not None:
            now = (self._call_policy.clock() - self._started) * 1000
            name = worker.profile.name
            self.attempts.append(Attempt(name, NO_USAGE, 0.0, now, now, str(refusal)))
            raise refusal

    def _refuse_excluded(self, worker: Worker) -> None:
        for name in (worker.profile.name, worker.profile.provider):
            if name in self._excluded:
                raise RequestRefused(f"{worker.profile.name}: {name} is excluded from this run")

    async def _make_limited(
        self,
        limiter: WorkerLimiter,
        worker: Worker,
        request: Request,
        reservation: CallReservation,
        on_delta: OnDelta | None,
    ) -> Reply:
        """Make one attempt within the worker's rate limits.

        The budget was reserved before, so a call that waits for budget occupies no slot here.
        """
        estimate = estimate_input_tokens(request)
        passed = False
        try:
            async with limiter.enter(estimate):
                passed = True
                reply = await self._attempt(worker, request, reservation, on_delta)
        except WorkerError as error:
            limiter.correct(estimate, None if error.billed else 0)
            raise
        finally:
            if not passed:
                self._ledger.release(reservation)
        limiter.correct(estimate, reply.usage.total_tokens)
        return reply

    async def _attempt(
        self,
        worker: Worker,
        request: Request,
        reservation: CallReservation,
        on_delta: OnDelta | None,
    ) -> Reply:
        """Make one attempt: call within the time limit, settle the reservation, record."""
        call_policy = self._call_policy
        is_probe = (
            self._enter_breaker(worker, reservation) if call_policy.breakers_by_worker else False
        )
        began = call_policy.clock()
        task = call_policy.deadlines.start(worker.profile.limits.timeout_seconds)
        try:
            if (
                reservation.max_tokens is not None
                or worker.profile.limits.max_output_tokens is not None
            ):
                request = cap_output(request, worker.profile, reservation)
            if on_delta is None:
                reply = await worker.reply(request)
            else:
                reply = await _stream_reply(worker, request, on_delta)
            reply = _check_reply(reply, worker)
        except BaseException as error:
            timed_out = call_policy.deadlines.stop(task)
            fault = _as_worker_error(
                error, worker, timed_out=timed_out, cancelled=task.cancelling() > 0
            )
            unbilled = isinstance(fault, WorkerError) and not fault.billed
            usage = NO_USAGE if unbilled else UNKNOWN_USAGE
            self._record(worker, reservation, usage, began, str(fault) or "cancelled")
            call_policy.breakers.record_failure(worker.profile.name, fault, is_probe=is_probe)
            if fault is error:
                raise
            raise fault from error
        call_policy.deadlines.stop(task)
        self._record(worker, reservation, reply.usage, began, None)
        if call_policy.breakers_by_worker:
            call_policy.breakers.record_success(worker.profile.name, is_probe=is_probe)
        return reply

    def _enter_breaker(self, worker: Worker, reservation: CallReservation) -> bool:
        """Register the call with the worker's breaker, which may have opened meanwhile.

        True if the call is the probe that decides whether the circuit closes.
        """
        try:
            self._check_breaker(worker)
        except WorkerError:
            self._ledger.release(reservation)
            raise
        return self._call_policy.breakers.enter(worker.profile.name)

    def _record(
        self,
        worker: Worker,
        reservation: CallReservation,
        usage: Usage,
        began: float,
        error: str | None,
    ) -> None:
        profile = worker.profile
        if usage is NO_USAGE:
            cost: float | None = 0.0
        else:
            cost = profile.price.cost(usage) if profile.price else None
        self._ledger.settle(reservation, usage, cost)
        started = self._started
        self.attempts.append(
            Attempt(
                profile.name,
                usage,
                cost,
                (began - started) * 1000,
                (self._call_policy.clock() - started) * 1000,
                error,
            )
        )


def _as_worker_error(
    error: BaseException, worker: Worker, *, timed_out: bool, cancelled: bool
) -> BaseException:
    """Turn whatever a worker raised into a `WorkerError`; cancellation of this call stays itself.

    A worker may raise `CancelledError` of its own accord, which is a fault.
    """
    profile = worker.profile
    if timed_out:
        return TimedOut(
            f"{profile.name}: no reply within {profile.limits.timeout_seconds:g} s; "
            f"raise limits.timeout_seconds if that is too short"
        )
    if isinstance(error, asyncio.CancelledError) and not cancelled:
        return WorkerCrashed(f"{profile.name} cancelled its own call")
    if isinstance(error, WorkerError) or not isinstance(error, Exception):
        return error
    if isinstance(error, PodiumError):
        return RequestRefused(f"{profile.name}: {error}")
    return WorkerCrashed(f"{profile.name} raised {type(error).__name__}: {error}")


def _check_reply(reply: object, worker: Worker) -> Reply:
    """Return the reply with implausible usage removed; raise `BadReply` for anything else."""
    if not isinstance(reply, Reply) or not isinstance(reply.usage, Usage):
        what = reply.usage if isinstance(reply, Reply) else reply
        raise BadReply(
            f"{worker.profile.name} returned {type(what).__name__}, not a Reply with its Usage"
        )
    if len(reply.text) > MAX_REPLY_CHARS:
        raise BadReply(
            f"{worker.profile.name} replied with {len(reply.text):,} characters; "
            f"the limit is {MAX_REPLY_CHARS:,}"
        )
    usage = plausible_usage(reply.usage)
    return reply if usage is reply.usage else replace(reply, usage=usage)


async def _stream_reply(worker: Worker, request: Request, on_delta: OnDelta) -> Reply:
    length, longest = 0, MAX_REPLY_CHARS
    if request.max_tokens is not None:
        longest = min(longest, SPARE_CHARS + MAX_CHARS_PER_TOKEN * request.max_tokens)
    async with aclosing(worker.stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Reply):
                return piece
            length += len(piece.text)
            if length > longest:
                raise BadReply(
                    f"{worker.profile.name} streamed more than {longest:,} characters",
                    retryable=length <= MAX_RESUMED_CHARS,
                )
            on_delta(piece)
    raise BadReply(f"{worker.profile.name} ended its stream without a reply")
