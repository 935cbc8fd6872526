"""What a strategy is held against, made from the other rows of the same evaluation.

    measures = yardsticks(rows)
    measures.document(row)      # the row, its regret, and the best-of-N that spends as much

The best single worker is what a user would have without Podium. The ceiling is the best single
worker for each task, chosen after the fact: what a router with perfect foresight would reach.
Asking one worker again and again with the same compute is the plainest use of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from podium.evals.sample import Sample
from podium.evals.tables.row import Row, difference_document
from podium.evals.tables.statistics import Difference, rounded

SINGLE: Final = "single:"
BEST_SINGLE: Final = "best-single"
BEST_OF: Final = "best-of"
CEILING: Final = "per-task best"
CEILING_NOTE: Final = "of {count} single workers, for each task the one that is right"

Unit = Literal["USD", "tokens"]


class Matched(NamedTuple):
    """A best-of-N beside a strategy: how many times the strategy's compute it spends."""

    row: Row
    times: float
    unit: Unit


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """The best single worker, the best one for each task, and the best-of-N that were measured;
    None where the rows for it are missing."""

    best_single: Row | None = None
    ceiling: Row | None = None
    best_of: tuple[Row, ...] = ()

    def regret(self, row: Row) -> Difference | None:
        """How much more often the best worker for each task is right than the strategy. Below
        zero where working together reaches what no worker does alone."""
        return None if self.ceiling is None else self.ceiling.against(row)

    def lead(self, row: Row) -> Difference | None:
        """How much more often the strategy is right than the best single worker."""
        if self.best_single is None or self.best_single.samples == row.samples:
            return None
        return row.against(self.best_single)

    def matched(self, row: Row) -> Matched | None:
        """The best-of-N with as much compute: the cheapest that spends no less than the strategy,
        else the one that spends most. Compute is money where everything has a price, else
        tokens."""
        if row in self.best_of:
            return None
        unit, spent = _spent([row, *self.best_of])
        if spent is None or not self.best_of or not spent[0]:
            return None
        times = [part / spent[0] for part in spent[1:]]
        enough = [place for place, part in enumerate(times) if part >= 1.0]
        place = (
            min(enough, key=times.__getitem__)
            if enough
            else max(range(len(times)), key=times.__getitem__)
        )
        return Matched(self.best_of[place], times[place], unit)

    def document(self, row: Row) -> dict[str, Any]:
        """The row as JSON, with what it is held against."""
        document = row.document(self.best_single)
        if (regret := self.regret(row)) is not None:
            document["regret"] = difference_document(regret)
        if (matched := self.matched(row)) is not None:
            document["compute_matched"] = {
                "strategy": matched.row.strategy,
                "spends": rounded(matched.times),
                "unit": matched.unit,
                **difference_document(row.against(matched.row)),
            }
        return document


def yardsticks(rows: Iterable[Row]) -> Yardsticks:
    """What can be measured by, given all rows of an evaluation."""
    known = {row.strategy: row for row in rows}
    singles = [row for name, row in known.items() if name.startswith(SINGLE)]
    best = known.get(BEST_SINGLE) or max(singles, key=lambda row: row.accuracy.value, default=None)
    return Yardsticks(
        best_single=best,
        ceiling=ceiling(singles) if len(singles) > 1 else None,
        best_of=tuple(row for name, row in known.items() if name.startswith(BEST_OF)),
    )


def ceiling(singles: Sequence[Row]) -> Row:
    """For each task the samples of the worker that is right most often; of several, of the one
    with the fewest tokens."""
    by_task = defaultdict[str, list[Row]](list)
    for row in singles:
        for task, samples in _by_task(row).items():
            by_task[task].append(Row(row.strategy, tuple(samples)))
    best = [min(rows, key=_badness) for rows in by_task.values()]
    return Row(
        CEILING,
        tuple(sample for row in best for sample in row.samples),
        CEILING_NOTE.format(count=len(singles)),
    )


def _badness(row: Row) -> tuple[float, float]:
    return -sum(row.outcomes.values()), row.tokens if row.tokens is not None else float("inf")


def _by_task(row: Row) -> dict[str, list[Sample]]:
    found = defaultdict[str, list[Sample]](list)
    for sample in row.samples:
        found[sample.task].append(sample)
    return found


def _spent(rows: Sequence[Row]) -> tuple[Unit, list[float] | None]:
    """What a task of each row takes, all in the same unit; None where that is unknown."""
    dollars = [row.cost_usd for row in rows]
    if all(dollars):
        return "USD", [part for part in dollars if part is not None]
    tokens = [row.tokens for row in rows]
    return "tokens", None if None in tokens else [part for part in tokens if part is not None]
