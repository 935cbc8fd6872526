"""Policies of calls: retries and circuit breakers."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from podium.core.errors import WorkerError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed call is made again: jittered exponential backoff.

    Args:
        attempts: The most calls to one worker.
        initial_wait_seconds: Seconds before the second call; doubled before each further one.
        max_wait_seconds: The most of these seconds.
        max_retry_after_seconds: The most seconds that a provider may ask for; beyond it the worker
            counts as failed.
        jitter: Returns 0 to 1: the share of the wait's second half that is waited.

    """

    attempts: int = 4
    initial_wait_seconds: float = 0.5
    max_wait_seconds: float = 30.0
    max_retry_after_seconds: float = 60.0
    jitter: Callable[[], float] = random.random

    def wait_before(self, attempt: int, error: WorkerError) -> float | None:
        """Return the seconds to wait after attempt number `attempt` (from 1); None to give up."""
        if attempt >= self.attempts or not error.retryable:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.max_retry_after_seconds else None
        ceiling = min(self.max_wait_seconds, self.initial_wait_seconds * 2.0 ** (attempt - 1))
        return ceiling * (0.5 + 0.5 * self.jitter())


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When a failing worker is not called, and for how long; never, if not `enabled`.

    The circuit opens after `consecutive_failures`, or at a `failure_rate` over the last `window`
    calls. It stays open for `cooldown_seconds`, doubled after each failed probe, up to
    `max_cooldown_seconds`. A wait that the provider asks for is honoured up to the same.
    """

    enabled: bool = True
    consecutive_failures: int = 8
    failure_rate: float = 0.5
    window: int = 50
    cooldown_seconds: float = 5.0
    max_cooldown_seconds: float = 120.0
