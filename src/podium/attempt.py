"""One call to one worker, as it stands on a run, and what several come to together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from podium.quick import quick
from podium.usage import NO_USAGE, Usage, add


@final
@quick
@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to one worker, whether it succeeded or not. Times count from the run's start."""

    worker: str
    usage: Usage
    cost_usd: float | None
    started_ms: float
    finished_ms: float
    error: str | None = None

    @property
    def was_made(self) -> bool:
        """Whether the worker was called at all: one that is left alone, for it has failed too
        often, is refused in no time and for nothing."""
        took_no_time = self.started_ms == self.finished_ms
        return not (took_no_time and self.error is not None and self.usage == NO_USAGE)


def total_usage(calls: Iterable[Attempt]) -> Usage:
    """The sum of the calls' tokens."""
    return sum((call.usage for call in calls), NO_USAGE)


def total_cost(calls: Iterable[Attempt]) -> float | None:
    """The sum of the calls' cost, unknown as soon as one is."""
    total: float | None = 0.0
    for call in calls:
        total = add(total, call.cost_usd)
    return total
