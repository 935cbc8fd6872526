"""Decide what counts as broken: pure functions over runs and what others observed.

They break nothing and call nothing, so that tests can apply each check to a run broken by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Final, NamedTuple

from podium.core.request import NO_USAGE, Usage, add
from podium.core.run import Run, dump

EXACT_USD: Final = 1e-9
"""Tolerance for money: sums of fractions depend on their order."""

ENDED: Final = frozenset({"answered", "partial", "failed", "exhausted"})


def p50_and_p95(name: str, seconds: Sequence[float]) -> dict[str, int | float | str | None]:
    if len(seconds) < 2:
        return {}
    cuts = quantiles(seconds, n=20)
    return {f"{name}_p50_ms": round(cuts[9] * 1000, 1), f"{name}_p95_ms": round(cuts[18] * 1000, 1)}


class Billed(NamedTuple):
    """One call as the worker reports it."""

    worker: str
    usage: Usage
    cost_usd: float | None


class StepName(NamedTuple):
    """A step as an upstream knows it: the question's mark and the worker."""

    mark: str
    worker: str


def has_ended(run: Run) -> bool:
    """True if the run ended: answered, or failed with a named cause."""
    if run.status not in ENDED:
        return False
    return run.answer is not None if run.status == "answered" else bool(run.error)


def is_lost(run: Run, kept: Run | None, streamed: str | None = None) -> bool:
    """True if the stored run differs from the run, or the streamed text from its answer."""
    if kept is None or dump(kept) != dump(run):
        return True
    return streamed is not None and run.status == "answered" and streamed != run.answer


def misreports(run: Run, calls: Iterable[Billed]) -> bool:
    """True if the run records other calls, usage or costs than the workers observed."""
    recorded = (
        Billed(call.worker, call.usage, call.cost_usd) for call in run.calls if call.was_sent
    )
    ours, theirs = (
        sorted(side, key=lambda call: (call.worker, repr(call.usage))) for side in (recorded, calls)
    )
    if [call[:2] for call in ours] != [call[:2] for call in theirs]:
        return True
    usage = NO_USAGE
    total: float | None = 0.0
    for call in theirs:
        usage, total = usage + call.usage, add(total, call.cost_usd)
    pairs = [(one.cost_usd, other.cost_usd) for one, other in zip(ours, theirs, strict=True)]
    return run.usage != usage or not all(
        _is_same(*pair) for pair in (*pairs, (run.cost_usd, total))
    )


def _is_same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= EXACT_USD


def overruns(run: Run, calls: int) -> bool:
    """True if the run exceeded its cap on calls, by its own count or the workers'."""
    cap = run.budget.calls
    recorded = sum(call.was_sent for call in run.calls)
    return cap is not None and max(run.spent.calls, recorded, calls) > cap


@dataclass(slots=True)
class Kills:
    """The findings at the kills.

    `done` has the steps that were recorded as done, and how often each was called by then: they
    must not be called again. `hit` counts how often each run was in progress in the killed process,
    `takeovers` are the seconds until another process resumed such a run, `abandoned` counts those
    that none resumed.
    """

    done: dict[StepName, int] = field(default_factory=dict)
    hit: Counter[str] = field(default_factory=Counter)
    takeovers: list[float] = field(default_factory=list)
    abandoned: int = 0
    count: int = 0

    def note(self, done: Iterable[StepName], asked: Mapping[StepName, int]) -> None:
        for step in done:
            self.done.setdefault(step, asked.get(step, 0))

    def find_repeated(self, asked: Mapping[StepName, int]) -> list[StepName]:
        """Return the steps that were called again after they were recorded."""
        return [step for step, count in self.done.items() if asked.get(step, 0) > count]


class Spending(NamedTuple):
    """One account's spending, by the upstream's count.

    `unsettled` is the cost of calls that were in flight when their process was killed.
    """

    cap: float
    spent: float
    unsettled: float
    most_in_flight: float

    @property
    def beyond(self) -> float:
        return max(0.0, self.spent - self.cap)

    @property
    def overran(self) -> bool:
        """True if the cap was exceeded by more than calls in flight explain."""
        return self.beyond > self.unsettled + self.most_in_flight + EXACT_USD
