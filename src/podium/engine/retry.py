"""When a failed call is made again, and when a worker that fails is left alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from podium.errors import WorkerError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """At most `attempts` calls to one worker, with waits that double and are jittered.

    A wait that the provider asked for is honoured as it is, unless it is longer than
    `longest_requested_wait`: then the worker counts as failed and its fallback has its turn.
    """

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 30.0
    longest_requested_wait: float = 60.0
    jitter: Callable[[], float] = random.random

    def wait_before(self, attempt: int, error: WorkerError) -> float | None:
        """Seconds to wait before attempt number `attempt` (from 1), or None to give up."""
        if attempt >= self.attempts or not error.retryable:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_requested_wait else None
        ceiling = min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1))
        return ceiling * (0.5 + 0.5 * self.jitter())


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When a worker that fails is left alone, and for how long; never, where it is not `on`.

    Its breaker opens after `failures` in a row, or when of the last `window` calls a `share` has
    failed. It cools for `cooling_seconds`, doubled after each call that was tried in vain, up to
    `longest_cooling_seconds`. A wait that the provider asked for is kept to, up to the same.
    """

    on: bool = True
    failures: int = 8
    share: float = 0.5
    window: int = 50
    cooling_seconds: float = 5.0
    longest_cooling_seconds: float = 120.0
