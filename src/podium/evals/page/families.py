"""Kinds of strategies, as readers look for them: what conducts, who works alone, and the rest.

Also which row a page is about, and in what order rows stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from podium.evals.tables.comparison import BEST_SINGLE, CEILING, SINGLE, Yardsticks
from podium.evals.tables.measured import Measured
from podium.evals.tables.row import Row

Family = Literal["conducted", "other", "alone", "ceiling"]
"""Also the name of the paint that it is drawn with."""

FAMILY_WORDS: Final[dict[Family, str]] = {
    "conducted": "conducted",
    "other": "other ways to answer",
    "alone": "one worker alone",
    "ceiling": "ceiling",
}

_CONDUCTED: Final = ("conductor", "recursion", "rules", "untrained")
_CEILINGS: Final = ("ideal", CEILING)


def family(strategy: str) -> Family:
    """Which kind that strategy is."""
    name = strategy.partition(":")[0]
    if strategy in _CEILINGS:
        return "ceiling"
    if strategy.startswith(SINGLE) or strategy == BEST_SINGLE:
        return "alone"
    return "conducted" if name in _CONDUCTED else "other"


def shown_rows(measured: Measured, measures: Yardsticks) -> list[Row]:
    """The rows of the page, the best first: the table's, every single worker, and the ceiling.
    The best single worker is told under that name only."""
    named = {row.strategy: row for row in measured.rows}
    singles = [row for row in measured.measured if row.strategy.startswith(SINGLE)]
    best = measured.chosen.get(BEST_SINGLE)
    for row in singles:
        if row.strategy != best:
            named.setdefault(row.strategy, row)
    rows = [*named.values(), *([measures.ceiling] if measures.ceiling is not None else [])]
    return sorted(rows, key=lambda row: -row.accuracy.value)


def leading(rows: Sequence[Row]) -> Row:
    """The row that the page is about: the best that conducts, else the best that is no ceiling."""
    for wanted in (("conducted",), ("other",), ("alone",)):
        found = [row for row in rows if family(row.strategy) in wanted]
        if found:
            return max(found, key=lambda row: row.accuracy.value)
    return rows[0]


def planning(rows: Iterable[Row]) -> list[Row]:
    """The rows whose steps tell something: those of more workers or more steps than one."""
    return [
        row
        for row in rows
        if family(row.strategy) != "alone"
        and row.strategy != CEILING
        and any(len(sample.workers) != 1 for sample in row.samples)
    ]
