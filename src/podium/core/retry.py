"""Policies of calls: retries, circuit breakers and hedges."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from podium.core.errors import ConfigError, WorkerError
from podium.core.pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When a failed call is made again: jittered exponential backoff.

    Args:
        attempts: The most calls to one worker.
        initial_wait_seconds: Seconds before the second call; doubled before each further one.
        max_wait_seconds: The most of these seconds.
        max_retry_after_seconds: The most seconds that a provider may ask for; beyond it the worker
            counts as failed.
        jitter: Draws from 0 to 1: the share of the wait's second half.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedge:
    """When a second call is made beside one that has not begun to answer.

    Args:
        after_seconds: After so many seconds; beside a percentile, until there are enough calls.
        after_percentile: Past this percentile of the worker's latest calls.
        to: The second worker: by default the `fallback`, else the same worker again.

    Raises:
        ConfigError: Neither is given, or one is out of range.

    """

    after_seconds: float | None = None
    after_percentile: float | None = None
    to: str | None = None

    def __post_init__(self) -> None:
        if self.after_seconds is None and self.after_percentile is None:
            raise ConfigError("a hedge needs after_seconds or after_percentile; give one")
        if self.after_seconds is not None and not 0 <= self.after_seconds < math.inf:
            raise ConfigError(f"hedge.after_seconds is {self.after_seconds}; give a number")
        if self.after_percentile is not None and not 0 < self.after_percentile < 100:
            raise ConfigError(
                f"hedge.after_percentile is {self.after_percentile}; give one between 0 and 100"
            )


def check_hedges(hedges: Mapping[str, Hedge], pool: Pool) -> None:
    """Raise `ConfigError` for hedges of or to unknown workers."""
    able = [worker.name for worker in pool.workers if worker.is_model]
    for name, hedge in hedges.items():
        for named in (name, hedge.to or name):
            if named not in able:
                raise ConfigError(
                    f"the hedge of {name!r} names {named!r}, which is no worker of the pool that "
                    f"can be called; it has {', '.join(able)}"
                )
