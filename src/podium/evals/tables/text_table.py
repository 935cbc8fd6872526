"""Tables in plain text, in Markdown, so that they can be read as they are and pasted anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from podium.evals.tables.etudes import Bar
from podium.evals.tables.evolved import LearnedRow
from podium.evals.tables.row import Row
from podium.evals.tables.statistics import Share

UNKNOWN: Final = "–"
COLUMNS: Final = (
    "strategy",
    "accuracy",
    "95 % interval",
    "valid",
    "steps",
    "calls",
    "worker tokens",
    "orchestration tokens",
    "USD",
    "entropy",
    "faults",
)
LEARNER_COLUMNS: Final = (
    *("strategy", "accuracy", "95 % interval", "one skill", "turns"),
    *("worker tokens", "orchestration tokens", "faults"),
    *("training minutes", "parameters trained", "evaluations"),
)
BAR_COLUMNS: Final = ("what must be shown", "reached", "met")
_MET: Final = {True: "yes", False: "NO", None: "not measured"}


def rows_table(rows: Iterable[tuple[str, Row]]) -> str:
    """Strategies beside each other; tokens, money and steps are those of one task, on average.
    Times are left out: they alone differ from one measurement to the next."""
    return markdown(COLUMNS, [_cells(name, row) for name, row in rows])


def learners_table(rows: Iterable[LearnedRow]) -> str:
    """Strategies that learned beside each other, with what learning took; turns and tokens are
    those of one task, on average."""
    return markdown(LEARNER_COLUMNS, [_learner_cells(found) for found in rows])


def bars_table(bars: Iterable[Bar]) -> str:
    """Bars, what was reached, and whether it is enough."""
    cells = [(bar.demand, _number(bar.reached, 3), _MET[bar.met]) for bar in bars]
    return markdown(BAR_COLUMNS, cells)


def shares_table(rows: Iterable[tuple[str, Share]]) -> str:
    """Shares by name, each with its interval."""
    cells = [(name, f"{share.value:.3f}", _interval(share)) for name, share in rows]
    return markdown(("", "share", "95 % interval"), cells)


def notes(rows: Iterable[tuple[str, Row]]) -> list[str]:
    """What a reader must know of some rows, a line each."""
    return [f"{name}: {row.note}" for name, row in rows if row.note]


def _cells(name: str, row: Row) -> Sequence[str]:
    return (
        name,
        f"{row.accuracy.value:.3f}",
        _interval(row.accuracy),
        _number(row.valid_rate, 3),
        _number(row.steps(), 2),
        _number(row.calls, 2),
        _number(row.worker_tokens, 0),
        _number(row.orchestration_tokens, 0),
        _money(row.cost_usd),
        f"{row.entropy_bits:.2f}",
        str(row.faults),
    )


def _learner_cells(found: LearnedRow) -> Sequence[str]:
    row, took = found.row, found.learner.took
    return (
        found.learner.name,
        f"{row.accuracy.value:.3f}",
        _interval(row.accuracy),
        _number(found.one_skill.value if found.one_skill else None, 3),
        _number(row.steps(), 2),
        _number(row.worker_tokens, 0),
        _number(row.orchestration_tokens, 0),
        str(row.faults),
        _number(took.minutes, 1),
        _count(took.parameters),
        _count(took.rollouts),
    )


def _interval(share: Share) -> str:
    return f"{share.low:.3f} to {share.high:.3f}"


def _money(dollars: float | None) -> str:
    return UNKNOWN if dollars is None else f"{dollars:.2g}" if dollars < 1 else f"{dollars:.2f}"


def _number(number: float | None, digits: int) -> str:
    return UNKNOWN if number is None else f"{number:.{digits}f}"


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells as a table, with columns of one width."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (columns, rule, *rows)
    )
