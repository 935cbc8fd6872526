"""Limits of calls to a worker: deadlines, circuit breakers, concurrency and rate limits.

They belong to a worker and are shared by every run of the process.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final, Literal

from podium._util.rate_limit import RateLimiter
from podium.core.errors import CircuitOpen, RequestRefused, WorkerError
from podium.core.pool import Limits
from podium.core.retry import BreakerPolicy

AnyTask = asyncio.Task[Any]


class Deadlines:
    """The deadlines of the calls in flight on one event loop, with one timer for all.

    A task makes one call at a time. A timer per call costs more than the rest of the call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: dict[AnyTask, float] = {}
        self._expired: set[AnyTask] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> AnyTask:
        """Cancel the current task after that time, unless `stop` is called for it."""
        task = asyncio.current_task(self._loop)
        assert task is not None, "a call is always made inside a task"
        deadline = self._loop.time() + seconds
        self._deadlines[task] = deadline
        if self._timer is None or self._timer.when() > deadline:
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
        self._timer = self._loop.call_at(deadline, self._wake)

    def _wake(self) -> None:
        """Cancel overdue tasks and set the timer for the next deadline."""
        self._timer = None
        now = self._loop.time()
        for task, deadline in self._deadlines.items():
            if deadline <= now and task not in self._expired:
                self._expired.add(task)
                task.cancel()
        waiting = [at for task, at in self._deadlines.items() if task not in self._expired]
        if waiting:
            self._arm(min(waiting))


Clock = Callable[[], float]
State = Literal["closed", "open", "half-open"]
Sleep = Callable[[float], Awaitable[None]]

PROBE_SECONDS: Final = 1.0
"""While a probe is in flight, `retry_after` is at most this."""


class Breaker:
    """The circuit breaker of one worker that has failed recently."""

    __slots__ = (
        "_cooldown",
        "_is_probing",
        "_last",
        "_last_status",
        "_policy",
        "_recent",
        "_streak",
        "_until",
        "_worker",
    )

    def __init__(self, worker: str, policy: BreakerPolicy) -> None:
        self._worker = worker
        self._policy = policy
        self._recent: deque[bool] = deque(maxlen=policy.window)
        self._streak = 0
        self._cooldown = 0.0
        self._until: float | None = None
        self._is_probing = False
        self._last = ""
        self._last_status: int | None = None

    @property
    def is_healthy(self) -> bool:
        """True if none of the recent calls failed."""
        return self._until is None and True not in self._recent

    def state(self, now: float) -> State:
        """Return the state; `half-open` while the next call, or a probe in flight, decides."""
        if self._until is None:
            return "closed"
        return "half-open" if self._is_probing or now >= self._until else "open"

    def refusal(self, now: float) -> CircuitOpen | None:
        """Return the error for a caller, or None if a call may be made."""
        if self._until is None or now >= self._until:
            return None
        wait = self._until - now
        if self._is_probing:
            wait = min(wait, PROBE_SECONDS)
        shown = max(0.1, math.ceil(wait * 10) / 10)
        return CircuitOpen(
            f"circuit open for {self._worker}: it failed too often and is tried again in "
            f"{shown:.1f} s; last failure: {self._last}",
            retry_after=wait,
            status=self._last_status,
        )

    def enter(self, now: float) -> bool:
        """Register a call; True if it is a probe. If it hangs, another follows a cooldown later."""
        if self._until is None:
            return False
        self._is_probing = True
        self._until = now + self._cooldown
        return True

    def leave(self, now: float) -> None:
        """End a probe that says nothing about the worker."""
        self._is_probing = False
        self._until = now

    def succeeded(self, *, is_probe: bool) -> None:
        """Record a success."""
        if is_probe:
            self._is_probing, self._until, self._cooldown = False, None, 0.0
            self._recent.clear()
        self._streak = 0
        self._recent.append(False)

    def failed(self, error: WorkerError, now: float, *, is_probe: bool) -> bool:
        """Record a failure; True if the circuit opens."""
        if self._until is not None and not is_probe:
            return False  # it began before the circuit opened
        self._last, self._last_status = str(error), error.status
        self._streak += 1
        self._recent.append(True)
        if not (is_probe or self._is_tripped):
            return False
        policy = self._policy
        self._is_probing = False
        self._cooldown = min(
            policy.max_cooldown_seconds, max(policy.cooldown_seconds, 2 * self._cooldown)
        )
        requested = min(error.retry_after or 0.0, policy.max_cooldown_seconds)
        self._until = now + max(self._cooldown, requested)
        return True

    @property
    def _is_tripped(self) -> bool:
        policy, recent = self._policy, self._recent
        if self._streak >= policy.failures:
            return True
        return len(recent) == policy.window and sum(recent) >= policy.share * policy.window


class Breakers:
    """The circuit breakers of a process; only workers in `failing` have one.

    `openings` counts openings by worker; `on_opening` is called with the worker and its error.
    """

    def __init__(self, policy: BreakerPolicy | None, clock: Clock) -> None:
        self.policy = policy if policy is not None and policy.on else None
        self.openings: Counter[str] = Counter()
        self.on_opening: Callable[[str, WorkerError], None] | None = None
        self._clock = clock
        self.failing: dict[str, Breaker] = {}

    def state(self, worker: str) -> State:
        """Return the state of the worker's circuit."""
        breaker = self.failing.get(worker)
        return "closed" if breaker is None else breaker.state(self._clock())

    def refusal(self, worker: str) -> CircuitOpen | None:
        """Return the error for a caller of that worker, or None if it may be called."""
        breaker = self.failing.get(worker)
        return None if breaker is None else breaker.refusal(self._clock())

    def enter(self, worker: str) -> bool:
        """Register a call; True if it is a probe."""
        breaker = self.failing.get(worker)
        return breaker is not None and breaker.enter(self._clock())

    def succeeded(self, worker: str, *, is_probe: bool) -> None:
        """Record a success."""
        breaker = self.failing.get(worker)
        if breaker is not None:
            breaker.succeeded(is_probe=is_probe)
            if breaker.is_healthy:
                del self.failing[worker]

    def failed(self, worker: str, error: BaseException, *, is_probe: bool) -> None:
        """Record a failed call; errors that are not the worker's fault do not count."""
        if self.policy is None:
            return
        if not isinstance(error, WorkerError):
            breaker = self.failing.get(worker)
            if is_probe and breaker is not None:
                breaker.leave(self._clock())
        elif isinstance(error, RequestRefused):
            if is_probe:
                self.succeeded(worker, is_probe=True)
        else:
            breaker = self.failing.get(worker)
            if breaker is None:
                breaker = self.failing[worker] = Breaker(worker, self.policy)
            if breaker.failed(error, self._clock(), is_probe=is_probe):
                self.openings[worker] += 1
                if self.on_opening is not None:
                    self.on_opening(worker, error)


class Gate:
    """A worker's limits on concurrency, requests and tokens a minute; it waits, never refuses."""

    def __init__(self, limits: Limits, clock: Clock, sleep: Sleep) -> None:
        self._slots = asyncio.Semaphore(limits.concurrency) if limits.concurrency else None
        self._max_tokens = limits.tokens_per_minute or 0
        self._rates = RateLimiter(
            limits.requests_per_minute or None, limits.tokens_per_minute or None, clock()
        )
        self._clock = clock
        self._sleep = sleep
        self.is_open = not (self._slots or limits.requests_per_minute or limits.tokens_per_minute)

    @asynccontextmanager
    async def enter(self, estimated_tokens: int) -> AsyncIterator[None]:
        """Wait for a slot and for the rate limits; the slot is held during the call."""
        async with self._slots or nullcontext():
            await self._wait_for_rate(min(estimated_tokens, self._max_tokens))
            yield

    async def _wait_for_rate(self, tokens: int) -> None:
        """Wait for the rate limits; a cancelled wait returns what it took."""
        wait = self._rates.wait(tokens, self._clock())
        self._rates.take(tokens)
        if wait <= 0:
            return
        try:
            await self._sleep(wait)
        except BaseException:
            self._rates.take(-tokens, requests=-1)
            raise

    def correct(self, estimated_tokens: int, used: int | None) -> None:
        """Correct an estimate once the call's real tokens are known."""
        if used is not None:
            self._rates.correct(used - min(estimated_tokens, self._max_tokens))
