"""What counts as broken: pure judgements of runs, beside what others say that happened.

Nothing here breaks anything or calls anybody, so that each judgement can be tried on a run that
is broken by hand: a zero in the table means something only if the check would have found one.
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
    """Perform that many, with so many of them in flight at any time."""
    numbers = iter(range(count))

    async def go_on() -> None:
        for number in numbers:
            await perform(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, count)):
            group.create_task(go_on())


async def every_run(store: RunStore) -> AsyncIterator[RunSummary]:
    """All runs of a store, the newest first, page by page."""
    before = None
    while page := await store.list(limit=PAGE, before=before):
        for summary in page:
            yield summary
        before = page[-1].id


def middle_and_tail(name: str, seconds: Sequence[float]) -> dict[str, int | float | str | None]:
    """The time in the middle and the one that a twentieth exceed, in milliseconds, by name."""
    if len(seconds) < 2:
        return {}
    cuts = quantiles(seconds, n=20)
    return {f"{name}_p50_ms": round(cuts[9] * 1000, 1), f"{name}_p95_ms": round(cuts[18] * 1000, 1)}


EXACT_USD: Final = 1e-9
"""Money may differ by so much: sums of fractions depend on their order."""

ENDED: Final = frozenset({"answered", "partial", "failed", "exhausted"})


class Billed(NamedTuple):
    """One call, as the worker that was called tells of it. What a fault hid is unknown."""

    worker: str
    usage: Usage
    cost_usd: float | None


class StepName(NamedTuple):
    """A step of a run, as an upstream knows it: by a mark in the question, and by whom it asks."""

    mark: str
    worker: str


def has_ended(run: Run) -> bool:
    """Whether the run is over: answered, or not answered for a cause that is named."""
    if run.status not in ENDED:
        return False
    return run.answer is not None if run.status == "answered" else bool(run.error)


def is_lost(run: Run, kept: Run | None, told: str | None = None) -> bool:
    """Whether what is kept of a run is not the run, or what was streamed of it not its answer."""
    if kept is None or dump(kept) != dump(run):
        return True
    return told is not None and run.status == "answered" and told != run.answer


def misreports(run: Run, calls: Sequence[Billed]) -> bool:
    """Whether the run tells of other calls than the workers do: call by call, and in its sums."""
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
    """A sum that is unknown as soon as a part is."""

    def __init__(self) -> None:
        self.total: float | None = 0.0

    def add(self, part: float | None) -> None:
        self.total = add(self.total, part)


def _costs(calls: Iterable[Billed]) -> list[float | None]:
    """The costs of the calls, in an order that does not depend on when they were made."""
    ordered = sorted(calls, key=lambda call: (call.worker, repr(call.usage)))
    return [call.cost_usd for call in ordered]


def _same_cost(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= EXACT_USD


def overruns(run: Run, calls: int) -> bool:
    """Whether a run passed its caps on calls, by its own count or by the workers'."""
    cap = run.budget.calls
    return cap is not None and max(run.spent.calls, len(list(run.calls)), calls) > cap


class Journal:
    """Which steps were on record as done whenever something was killed, and how often each had
    been asked by then: from there on it must not be asked again."""

    def __init__(self) -> None:
        self._asked: dict[StepName, int] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def note(self, done: Iterable[StepName], asked: Mapping[StepName, int]) -> None:
        """These steps are on record as done now."""
        for step in done:
            self._asked.setdefault(step, asked.get(step, 0))

    def repeated(self, asked: Mapping[StepName, int]) -> list[StepName]:
        """The steps that were asked again after they were on record."""
        return [step for step, count in self._asked.items() if asked.get(step, 0) > count]


class Spending(NamedTuple):
    """What was spent on one account, as the upstream counts it. `unsettled` is what calls cost of
    which nobody is left to tell, for their process was killed before they were on record: what is
    on no record for another cause is no part of it, or no cap could ever be seen to be passed."""

    cap: float
    spent: float
    unsettled: float
    most_in_flight: float

    @property
    def beyond(self) -> float:
        """How far the cap was passed."""
        return max(0.0, self.spent - self.cap)

    @property
    def overran(self) -> bool:
        """Whether it was passed by more than calls that were in flight."""
        return self.beyond > self.unsettled + self.most_in_flight + EXACT_USD
