"""What a request has come to: for whoever is charged, counts or traces it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

from podium.core.run import Run
from podium.core.usage import NO_USAGE, Usage

Amount = TypeVar("Amount", int, float)


@dataclass(slots=True)
class RequestCost:
    """What a request has come to, also where it was cut off before there was an answer. `run` is
    the run that it began or went on with, as that ended."""

    usage: Usage = NO_USAGE
    orchestration: Usage = NO_USAGE
    cost_usd: float | None = 0.0
    run: Run | None = None

    def take(self, run: Run, before: Run | None) -> None:
        """Take what this request added to the run: one that goes on has been billed for what came
        `before`."""
        self.run = run
        self.usage, self.orchestration, self.cost_usd = run.usage, run.orchestration, run.cost_usd
        if before is not None:
            self.usage = _less(run.usage, before.usage)
            self.orchestration = _less(run.orchestration, before.orchestration)
            self.cost_usd = _difference(run.cost_usd, before.cost_usd)


def _less(usage: Usage, before: Usage) -> Usage:
    names = [field.name for field in fields(Usage)]
    return Usage(*(_difference(getattr(usage, name), getattr(before, name)) for name in names))


def _difference(now: Amount | None, then: Amount | None) -> Amount | None:
    """What was added, which is unknown where either is."""
    return None if now is None or then is None else now - then
