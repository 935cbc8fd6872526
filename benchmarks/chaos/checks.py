"""Decide what counts as broken: pure functions over runs and what others observed.

They break nothing and call nothing, so that tests can apply each check to a run broken by hand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from statistics import quantiles
from typing import Final, NamedTuple

from podium.core.run import Run, dump
from podium.core.usage import NO_USAGE, Usage, add
from podium.store import RunStore, RunSummary

PAGE: Final = 500


async def in_turns(count: int, in_flight: int, perform: Callable[[int], Awaitable[None]]) -> None:
    """Run `perform` for `count` numbers, `in_flight` at a time."""
    numbers = iter(range(count))

    async def go_on() -> None:
        for number in numbers:
            await perform(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, count)):
            group.create_task(go_on())


async def every_run(store: RunStore) -> AsyncIterator[RunSummary]:
    """Yield all runs of a store, newest first."""
    before = None
    while page := await store.list(limit=PAGE, before=before):
        for summary in page:
            yield summary
        before = page[-1].id


def middle_and_tail(name: str, seconds: Sequence[float]) -> dict[str, int | float | str | None]:
    """Return p50 and p95 in milliseconds, by name."""
    if len(seconds) < 2:
        return {}
    cuts = quantiles(seconds, n=20)
    return {f"{name}_p50_ms": round(cuts[9] * 1000, 1), f"{name}_p95_ms": round(cuts[18] * 1000, 1)}


EXACT_USD: Final = 1e-9
"""Tolerance for money: sums of fractions depend on their order."""

ENDED: Final = frozenset({"answered", "partial", "failed", "exhausted"})


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


def is_lost(run: Run, kept: Run | None, told: str | None = None) -> bool:
    """True if the stored run differs from the run, or the streamed text from its answer."""
    if kept is None or dump(kept) != dump(run):
        return True
    return told is not None and run.status == "answered" and told != run.answer


def misreports(run: Run, calls: Sequence[Billed]) -> bool:
    """True if the run records other calls, usage or costs than the workers observed."""
    recorded = [Billed(call.worker, call.usage, call.cost_usd) for call in run.calls]
    if Counter(call[:2] for call in recorded) != Counter(call[:2] for call in calls):
        return True
    if not all(_same_cost(*pair) for pair in zip(_costs(recorded), _costs(calls), strict=True)):
        return True
    usage, cost = NO_USAGE, _Sum()
    for call in calls:
        usage += call.usage
        cost.add(call.cost_usd)
    return run.usage != usage or not _same_cost(run.cost_usd, cost.total)


class _Sum:
    """A sum that is unknown as soon as one part is."""

    def __init__(self) -> None:
        self.total: float | None = 0.0

    def add(self, part: float | None) -> None:
        self.total = add(self.total, part)


def _costs(calls: Iterable[Billed]) -> list[float | None]:
    """Return the costs of the calls in an order independent of time."""
    ordered = sorted(calls, key=lambda call: (call.worker, repr(call.usage)))
    return [call.cost_usd for call in ordered]


def _same_cost(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= EXACT_USD


def overruns(run: Run, calls: int) -> bool:
    """True if the run exceeded its cap on calls, by its own count or the workers'."""
    cap = run.budget.calls
    return cap is not None and max(run.spent.calls, len(list(run.calls)), calls) > cap


class Journal:
    """Steps that were recorded as done at each kill: they must not be called again."""

    def __init__(self) -> None:
        self._asked: dict[StepName, int] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def note(self, done: Iterable[StepName], asked: Mapping[StepName, int]) -> None:
        """Record that these steps are done now, and how often each was called."""
        for step in done:
            self._asked.setdefault(step, asked.get(step, 0))

    def repeated(self, asked: Mapping[StepName, int]) -> list[StepName]:
        """Return the steps that were called again after they were recorded."""
        return [step for step, count in self._asked.items() if asked.get(step, 0) > count]


class Spending(NamedTuple):
    """What was spent on one account, as the upstream counts it.

    `unsettled` is the cost of calls that were in flight when their process was killed.
    """

    cap: float
    spent: float
    unsettled: float
    most_in_flight: float

    @property
    def beyond(self) -> float:
        """Return by how much the cap was exceeded."""
        return max(0.0, self.spent - self.cap)

    @property
    def overran(self) -> bool:
        """True if the cap was exceeded by more than calls in flight explain."""
        return self.beyond > self.unsettled + self.most_in_flight + EXACT_USD
