"""The gate in front of a worker: how many calls at once, how many a minute.

A gate belongs to a worker and is shared by every run of the process. It waits; it never refuses.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from podium.core.errors import CircuitOpen, RequestRefused, WorkerError
from podium.core.pool import Limits
from podium.core.retry import BreakerPolicy

AnyTask = asyncio.Task[Any]


class Deadlines:
    """The deadlines of the calls in flight on one event loop. A task makes one call at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: dict[AnyTask, float] = {}
        self._expired: set[AnyTask] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> AnyTask:
        """Cancel the current task unless `stop` is called for it within that time."""
        task = asyncio.current_task(self._loop)
        assert task is not None, "a call is always made inside a task"
        deadline = self._loop.time() + seconds
        self._deadlines[task] = deadline
        if self._timer is None or self._timer.when() > deadline:
            self._arm(deadline)
        return task

    def stop(self, task: AnyTask) -> bool:
        """End the watch. True when the task was cancelled by its deadline and by nothing else:
        the cancellation is then taken back, and the caller raises what it likes instead."""
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
        """Cancel what is overdue, and wake again for the next; with none left, stay asleep."""
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

TRYING_SECONDS: Final = 1.0
"""After so long at most, it is worth asking again how the call that decides has gone."""


class Breaker:
    """The breaker of one worker that has failed of late."""

    __slots__ = (
        "_cooling",
        "_is_trying",
        "_last",
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
        self._cooling = 0.0
        self._until: float | None = None
        self._is_trying = False
        self._last = ""

    @property
    def is_well(self) -> bool:
        """Whether none of the calls that it knows of has failed."""
        return self._until is None and True not in self._recent

    def state(self, now: float) -> State:
        """`half-open` is when the next call, or one that is on its way, decides."""
        if self._until is None:
            return "closed"
        return "half-open" if self._is_trying or now >= self._until else "open"

    def refusal(self, now: float) -> CircuitOpen | None:
        """What a caller is told in place of a reply; None when a call may be made."""
        if self._until is None or now >= self._until:
            return None
        wait = self._until - now
        if self._is_trying:
            wait = min(wait, TRYING_SECONDS)
        return CircuitOpen(
            f"{self._worker} has failed too often of late and is not called for {wait:.1f} s; "
            f"its last failure: {self._last}",
            retry_after=wait,
        )

    def enter(self, now: float) -> bool:
        """A call is made; whether it is one that decides. Should it hang, another may be made when
        as much time has passed again."""
        if self._until is None:
            return False
        self._is_trying = True
        self._until = now + self._cooling
        return True

    def leave(self, now: float) -> None:
        """The call that was to decide has ended without saying anything of the worker."""
        self._is_trying = False
        self._until = now

    def succeeded(self, *, tried: bool) -> None:
        """A call went well."""
        if tried:
            self._is_trying, self._until, self._cooling = False, None, 0.0
            self._recent.clear()
        self._streak = 0
        self._recent.append(False)

    def failed(self, error: WorkerError, now: float, *, tried: bool) -> bool:
        """A call failed; whether the breaker has opened with it."""
        if self._until is not None and not tried:
            return False  # it began before the breaker opened, and tells nothing new
        self._last = str(error)
        self._streak += 1
        self._recent.append(True)
        if not (tried or self._has_had_enough):
            return False
        policy = self._policy
        self._is_trying = False
        self._cooling = min(
            policy.longest_cooling_seconds, max(policy.cooling_seconds, 2 * self._cooling)
        )
        wished = min(error.retry_after or 0.0, policy.longest_cooling_seconds)
        self._until = now + max(self._cooling, wished)
        return True

    @property
    def _has_had_enough(self) -> bool:
        policy, recent = self._policy, self._recent
        if self._streak >= policy.failures:
            return True
        return len(recent) == policy.window and sum(recent) >= policy.share * policy.window


class Breakers:
    """The breakers of a process: `ailing` has one for each worker that has failed of late, by its
    name. `openings` counts how often each has opened; `on_opening` hears of it, and of the last
    failure."""

    def __init__(self, policy: BreakerPolicy | None, clock: Clock) -> None:
        self.policy = policy if policy is not None and policy.on else None
        self.openings: Counter[str] = Counter()
        self.on_opening: Callable[[str, WorkerError], None] | None = None
        self._clock = clock
        self.ailing: dict[str, Breaker] = {}

    def state(self, worker: str) -> State:
        """How the breaker of that worker stands."""
        breaker = self.ailing.get(worker)
        return "closed" if breaker is None else breaker.state(self._clock())

    def refusal(self, worker: str) -> CircuitOpen | None:
        """What a caller of that worker is told in place of a reply; None when it may be called."""
        breaker = self.ailing.get(worker)
        return None if breaker is None else breaker.refusal(self._clock())

    def enter(self, worker: str) -> bool:
        """The worker is called, which it may be; whether this call decides about it."""
        breaker = self.ailing.get(worker)
        return breaker is not None and breaker.enter(self._clock())

    def succeeded(self, worker: str, *, tried: bool) -> None:
        """A call went well."""
        breaker = self.ailing.get(worker)
        if breaker is not None:
            breaker.succeeded(tried=tried)
            if breaker.is_well:
                del self.ailing[worker]

    def failed(self, worker: str, error: BaseException, *, tried: bool) -> None:
        """A call ended so; whatever is not the worker's own fault says nothing against it."""
        if self.policy is None:
            return
        if not isinstance(error, WorkerError):
            breaker = self.ailing.get(worker)
            if tried and breaker is not None:
                breaker.leave(self._clock())
        elif isinstance(error, RequestRefused):
            if tried:
                self.succeeded(worker, tried=True)
        else:
            breaker = self.ailing.get(worker)
            if breaker is None:
                breaker = self.ailing[worker] = Breaker(worker, self.policy)
            if breaker.failed(error, self._clock(), tried=tried):
                self.openings[worker] += 1
                if self.on_opening is not None:
                    self.on_opening(worker, error)


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
