"""Circuit breakers: a worker that keeps failing is not called for a while.

They are shared by every run of the process.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Literal

from podium.core.errors import CircuitOpen, RequestRefused, WorkerError
from podium.core.retry import BreakerPolicy

Clock = Callable[[], float]
State = Literal["closed", "open", "half-open"]

PROBE_SECONDS: Final = 1.0
"""While a probe is in flight, `retry_after` is at most this."""


class Breaker:
    """The circuit breaker of one worker that has failed recently."""

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

    def record_success(self, *, is_probe: bool) -> None:
        if is_probe:
            self._is_probing, self._until, self._cooldown = False, None, 0.0
            self._recent.clear()
        self._streak = 0
        self._recent.append(False)

    def record_failure(self, error: WorkerError, now: float, *, is_probe: bool) -> bool:
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
        if self._streak >= policy.consecutive_failures:
            return True
        return len(recent) == policy.window and sum(recent) >= policy.failure_rate * policy.window


class Breakers:
    """The circuit breakers of a process; only workers in `breakers_by_worker` have one.

    `openings` counts openings by worker; `on_opening` is called with the worker and its error.
    """

    def __init__(self, policy: BreakerPolicy | None, clock: Clock) -> None:
        self.policy = policy if policy is not None and policy.enabled else None
        self.openings: Counter[str] = Counter()
        self.on_opening: Callable[[str, WorkerError], None] | None = None
        self._clock = clock
        self.breakers_by_worker: dict[str, Breaker] = {}

    def state(self, worker: str) -> State:
        breaker = self.breakers_by_worker.get(worker)
        return "closed" if breaker is None else breaker.state(self._clock())

    def refusal(self, worker: str) -> CircuitOpen | None:
        """Return the error for a caller of that worker, or None if it may be called."""
        breaker = self.breakers_by_worker.get(worker)
        return None if breaker is None else breaker.refusal(self._clock())

    def enter(self, worker: str) -> bool:
        """Register a call; True if it is a probe."""
        breaker = self.breakers_by_worker.get(worker)
        return breaker is not None and breaker.enter(self._clock())

    def record_success(self, worker: str, *, is_probe: bool) -> None:
        breaker = self.breakers_by_worker.get(worker)
        if breaker is not None:
            breaker.record_success(is_probe=is_probe)
            if breaker.is_healthy:
                del self.breakers_by_worker[worker]

    def record_failure(self, worker: str, error: BaseException, *, is_probe: bool) -> None:
        """Record a failed call; errors that are not the worker's fault do not count."""
        if self.policy is None:
            return
        if not isinstance(error, WorkerError):
            breaker = self.breakers_by_worker.get(worker)
            if is_probe and breaker is not None:
                breaker.leave(self._clock())
        elif isinstance(error, RequestRefused):
            if is_probe:
                self.record_success(worker, is_probe=True)
        else:
            breaker = self.breakers_by_worker.get(worker)
            if breaker is None:
                breaker = self.breakers_by_worker[worker] = Breaker(worker, self.policy)
            if breaker.record_failure(error, self._clock(), is_probe=is_probe):
                self.openings[worker] += 1
                if self.on_opening is not None:
                    self.on_opening(worker, error)
