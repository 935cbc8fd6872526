"""One call to one worker, made well: budget, gate, time-out, retries, and a record of each try.

Whatever a worker does wrong becomes a `WorkerError` here; nothing else leaves this module but
`BudgetExhausted`, `BudgetUnseen` and cancellation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from podium.core.budget import Hold, Ledger, capped, estimated_input_tokens
from podium.core.errors import (
    BadReply,
    BudgetExhausted,
    BudgetUnseen,
    PodiumError,
    RequestRefused,
    TimedOut,
    WorkerCrashed,
    WorkerError,
)
from podium.core.request import Delta, Reply, Request
from podium.core.retry import BreakerPolicy, Hedge, RetryPolicy
from podium.core.run_records import Attempt
from podium.core.usage import NO_USAGE, UNKNOWN_USAGE, Usage, believable
from podium.core.worker import Worker
from podium.engine.hedging import Hedges
from podium.engine.limits import Breakers, Clock, Deadlines, Gate, Sleep

LONGEST_REPLY: Final = 2_000_000
"""Characters, several times what any model says in one go. A longer reply is a fault of the worker,
not an answer."""

LONGEST_BEGINNING: Final = 100_000
"""Characters that a worker is asked to go on after. One that streamed more is not asked again: what
was told stands, and would be most of what the next call costs."""

CHARACTERS_A_TOKEN: Final = 32
CHARACTERS_TO_SPARE: Final = 10_000
"""Of a reply that was asked to be short, a stream may bring so much, and then it is stopped: far
more than any model says with these tokens, but not without end."""

OnDelta = Callable[[Delta], None]
OnRetry = Callable[[str, WorkerError, float], Request]
"""Hears of a call that will be made again, and says what is to be asked then."""
MayGiveWay = Callable[[], bool]
"""Says whether somebody else would take over from this worker."""


class CallPolicy:
    """What all calls of a process share: the retry policy, the clock, each worker's gate, breaker
    and hedge. Without a policy for them there are no breakers."""

    deadlines: Deadlines

    def __init__(
        self,
        retry: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        hedges: Mapping[str, Hedge] | None = None,
        *,
        clock: Clock = time.perf_counter,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.retry = retry or RetryPolicy()
        self.breakers = Breakers(breaker, clock)
        self.ailing = self.breakers.ailing
        self.hedges = Hedges(hedges or {})
        self.clock = clock
        self.sleep = sleep
        self._gates: dict[str, Gate] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self) -> None:
        """Call before a run. What waits belongs to its event loop, so on another loop than
        before the gates and deadlines start afresh."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._gates = {}
            self.deadlines = Deadlines(loop)

    def gate(self, worker: Worker) -> Gate:
        """The gate of that worker, made on first use."""
        name = worker.profile.name
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = Gate(worker.profile.limits, self.clock, self.sleep)
        return gate


class Calls:
    """The calls that one step, or one round's planning, makes. `attempts` records each.

    Workers whose name or provider is in `excluded` are refused. That is for planning: the
    workers of steps come from a pool that has been cleared of them already. `share` is among
    how many the rest of the budget is to be divided, this call included.
    """

    __slots__ = ("_call_policy", "_excluded", "_ledger", "_started", "attempts", "share")

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
        self.share = 1

    async def __call__(self, worker: Worker, request: Request) -> Reply:
        """Call the worker as often as the retry policy allows; raises the last error."""
        return await self.make(worker, request)

    async def make(
        self,
        worker: Worker,
        request: Request,
        on_delta: OnDelta | None = None,
        on_retry: OnRetry | None = None,
        may_give_way: MayGiveWay | None = None,
    ) -> Reply:
        """Call the worker, streaming when somebody listens for deltas. One whose breaker is open
        is waited for only by a caller who says that there is nobody to give way to."""
        if self._excluded:
            self._refuse_excluded(worker)
        call_policy = self._call_policy
        gate = call_policy.gate(worker)
        attempt = 1
        while True:
            try:
                if call_policy.ailing:
                    self._heed_breaker(worker)
                hold = self._ledger.hold(worker.profile, request, self.share)
                if hold is None or self._ledger.is_shared:
                    hold = await self._ledger.secured(hold, worker.profile, request, self.share)
                if gate.is_open:
                    return await self._attempt(worker, request, hold, on_delta)
                return await self._pass(gate, worker, request, hold, on_delta)
            except WorkerError as error:
                wait = self._wait_before(attempt, error, worker, may_give_way)
                if wait is None:
                    raise
                if on_retry is not None:
                    request = on_retry(worker.profile.name, error, wait)
                await call_policy.sleep(wait)
                attempt += 1

    async def beside(
        self, worker: Worker, request: Request, on_delta: OnDelta | None
    ) -> Reply | None:
        """Call the worker once, beside another call that takes long; None where that cannot be
        paid at once, or the worker's breaker is open."""
        call_policy = self._call_policy
        if call_policy.ailing and call_policy.breakers.refusal(worker.profile.name) is not None:
            return None
        try:
            hold = self._ledger.hold(worker.profile, request, self.share)
            if hold is None:
                return None
            if self._ledger.is_shared and not await self._ledger.is_certain(hold):
                return None
        except (BudgetExhausted, BudgetUnseen):
            return None
        gate = call_policy.gate(worker)
        if gate.is_open:
            return await self._attempt(worker, request, hold, on_delta)
        return await self._pass(gate, worker, request, hold, on_delta)

    def _wait_before(
        self, attempt: int, error: WorkerError, worker: Worker, may_give_way: MayGiveWay | None
    ) -> float | None:
        """Seconds until the worker is called again; None where it is not to be."""
        wait = self._call_policy.retry.wait_before(attempt, error)
        if wait is None or not self._call_policy.ailing:
            return wait
        refusal = self._call_policy.breakers.refusal(worker.profile.name)
        if refusal is None:
            return wait
        if may_give_way is None or may_give_way():
            return None
        until = self._call_policy.retry.wait_before(attempt, refusal)
        return None if until is None else max(wait, until)

    def _heed_breaker(self, worker: Worker) -> None:
        """Refuse to call a worker that has failed too often. It is on record, and costs nothing."""
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

    async def _pass(
        self,
        gate: Gate,
        worker: Worker,
        request: Request,
        hold: Hold,
        on_delta: OnDelta | None,
    ) -> Reply:
        """One try through the worker's gate. The hold was taken before: a call that waits for
        money must not keep calls of other runs from the worker."""
        estimate = estimated_input_tokens(request)
        passed = False
        try:
            async with gate.passing(estimate):
                passed = True
                reply = await self._attempt(worker, request, hold, on_delta)
        except WorkerError as error:
            gate.correct(estimate, None if error.billed else 0)
            raise
        finally:
            if not passed:
                self._ledger.release(hold)
        gate.correct(estimate, reply.usage.total_tokens)
        return reply

    async def _attempt(
        self, worker: Worker, request: Request, hold: Hold, on_delta: OnDelta | None
    ) -> Reply:
        """One try: call within the time limit, settle the hold, record."""
        call_policy = self._call_policy
        tried = self._enter(worker, hold) if call_policy.ailing else False
        began = call_policy.clock()
        task = call_policy.deadlines.start(worker.profile.limits.timeout_seconds)
        try:
            if on_delta is None:
                reply = await worker.reply(capped(request, worker.profile, hold))
            else:
                reply = await _streamed(worker, capped(request, worker.profile, hold), on_delta)
            reply = _checked(reply, worker)
        except BaseException as error:
            timed_out = call_policy.deadlines.stop(task)
            fault = _fault(error, worker, timed_out=timed_out, cancelled=task.cancelling() > 0)
            unbilled = isinstance(fault, WorkerError) and not fault.billed
            usage = NO_USAGE if unbilled else UNKNOWN_USAGE
            self._record(worker, hold, usage, began, str(fault) or "cancelled")
            call_policy.breakers.failed(worker.profile.name, fault, tried=tried)
            if fault is error:
                raise
            raise fault from error
        call_policy.deadlines.stop(task)
        self._record(worker, hold, reply.usage, began, None)
        if call_policy.ailing:
            call_policy.breakers.succeeded(worker.profile.name, tried=tried)
        return reply

    def _enter(self, worker: Worker, hold: Hold) -> bool:
        """Make the call known to the worker's breaker, which may have opened while the call waited
        for its turn; whether the call decides about the worker."""
        try:
            self._heed_breaker(worker)
        except WorkerError:
            self._ledger.release(hold)
            raise
        return self._call_policy.breakers.enter(worker.profile.name)

    def _record(
        self, worker: Worker, hold: Hold, usage: Usage, began: float, error: str | None
    ) -> None:
        profile = worker.profile
        if usage is NO_USAGE:
            cost: float | None = 0.0
        else:
            cost = profile.price.cost(usage) if profile.price else None
        self._ledger.settle(hold, usage, cost)
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


def _fault(
    error: BaseException, worker: Worker, *, timed_out: bool, cancelled: bool
) -> BaseException:
    """The border: whatever a worker raised, as a `WorkerError`; cancellation stays itself.

    But only if somebody cancelled this call: a worker may raise that error of its own accord.
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


def _checked(reply: object, worker: Worker) -> Reply:
    """The reply, with what can be believed of its usage; refuses what is no reply, or far too
    much of one."""
    if not isinstance(reply, Reply) or not isinstance(reply.usage, Usage):
        what = reply.usage if isinstance(reply, Reply) else reply
        raise BadReply(
            f"{worker.profile.name} returned {type(what).__name__}, not a Reply with its Usage"
        )
    if len(reply.text) > LONGEST_REPLY:
        raise BadReply(
            f"{worker.profile.name} replied with {len(reply.text):,} characters; "
            f"the most that is taken is {LONGEST_REPLY:,}"
        )
    usage = believable(reply.usage)
    return reply if usage is reply.usage else replace(reply, usage=usage)


async def _streamed(worker: Worker, request: Request, on_delta: OnDelta) -> Reply:
    length, longest = 0, LONGEST_REPLY
    if request.max_tokens is not None:
        longest = min(longest, CHARACTERS_TO_SPARE + CHARACTERS_A_TOKEN * request.max_tokens)
    async with aclosing(worker.stream(request)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Reply):
                return piece
            length += len(piece.text)
            if length > longest:
                raise BadReply(
                    f"{worker.profile.name} streamed more than {longest:,} characters",
                    retryable=length <= LONGEST_BEGINNING,
                )
            on_delta(piece)
    raise BadReply(f"{worker.profile.name} ended its stream without a reply")
