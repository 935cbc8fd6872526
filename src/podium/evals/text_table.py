"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from podium.evals.results import StrategyRow
from podium.evals.statistics import IntervalEstimate

UNKNOWN: Final = "–"
COLUMNS: Final = (
    *("strategy", "accuracy", "95 % interval", "valid", "steps", "calls"),
    *("worker tokens", "orchestration tokens", "USD", "entropy", "errors"),
)


def rows_table(rows: Iterable[tuple[str, StrategyRow]]) -> str:
    """Return strategies with their means per task; times are left out, as only they vary."""
    return markdown(COLUMNS, [_cells(name, row) for name, row in rows])


def shares_table(rows: Iterable[tuple[str, IntervalEstimate]]) -> str:
    """Return estimates by name, each with its interval."""
    cells = [(name, f"{share.value:.3f}", format_interval(share)) for name, share in rows]
    return markdown(("", "share", "95 % interval"), cells)


def notes(rows: Iterable[tuple[str, StrategyRow]]) -> list[str]:
    """Return the notes on rows, a line each."""
    return [f"{name}: {row.note}" for name, row in rows if row.note]


def _cells(name: str, row: StrategyRow) -> Sequence[str]:
    return (
        name,
        f"{row.accuracy.value:.3f}",
        format_interval(row.accuracy),
        format_number(row.valid_rate, 3),
        format_number(row.steps(), 2),
        format_number(row.calls, 2),
        format_number(row.worker_tokens, 0),
        format_number(row.orchestration_tokens, 0),
        _format_usd(row.cost_usd),
        f"{row.entropy_bits:.2f}",
        str(row.errors),
    )


def format_interval(share: IntervalEstimate) -> str:
    """Format an interval with three digits."""
    return f"{share.low:.3f} to {share.high:.3f}"


def format_number(number: float | None, digits: int) -> str:
    """Format a number, or a dash if it is unknown."""
    return UNKNOWN if number is None else f"{number:.{digits}f}"


def _format_usd(dollars: float | None) -> str:
    return UNKNOWN if dollars is None else f"{dollars:.2g}" if dollars < 1 else f"{dollars:.2f}"


def markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (columns, rule, *rows)
    )
