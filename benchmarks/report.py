"""Bars, tables and the description of the machine, shared by the benchmarks' results."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.table import Table

NONE_YET: Final = "Nothing was measured yet."


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit that a ratio must keep."""

    sign: str
    limit: float
    holds: Callable[[float, float], bool]

    def verdict(self, ratio: float | None) -> str:
        """Say the limit and whether the ratio keeps it; nothing where it was not measured."""
        if ratio is None:
            return ""
        return f"{self.sign} {self.limit:g}  {'met' if self.holds(ratio, self.limit) else 'MISSED'}"


def make_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table whose first and last columns are text and all others numbers."""
    from rich.table import Table

    table = Table(title=title)
    for index, heading in enumerate(headings):
        is_text = index in (0, len(headings) - 1)
        table.add_column(heading, justify="left" if is_text else "right")
    for row in rows:
        table.add_row(*row)
    return table


def markdown_row(cells: Iterable[object]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def machine() -> dict[str, Any]:
    """Return the Python version and the number of cores."""
    return {"python": platform.python_version(), "cpus": os.cpu_count()}
