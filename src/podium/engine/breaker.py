"""The circuit breaker of a worker: one that only fails is left alone for a while.

A breaker is closed as long as calls go well. After too many failures it opens: the worker is not
called, and whoever wants it hears so at once, for nothing. When it has cooled for some time, one
call is let through to try; if that goes well the breaker closes, else it cools for longer.

Failures are those of the worker: what is wrong with a request itself says nothing about who would
not serve it. A worker that has not failed of late has no breaker at all, so that calls which go
well cost nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Literal

from podium.engine.retry import BreakerPolicy
from podium.errors import CircuitOpen, RequestRefused, WorkerError

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
