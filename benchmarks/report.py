"""Figures beside their bars, tables and the description of the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import ge, le, lt
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table

NONE_YET: Final = "Nothing was measured yet."


class Comparison(NamedTuple):
    """The comparison of a figure with its limit."""

    sign: str
    holds: Callable[[float, float], bool]


AT_MOST: Final = Comparison("<=", le)
AT_LEAST: Final = Comparison(">=", ge)
UNDER: Final = Comparison("<", lt)


@dataclass(frozen=True, slots=True)
class Figures:
    """A benchmark's results as JSON values, and the bars that some of them must keep."""

    document: Mapping[str, Any]
    bars: Mapping[str, tuple[Comparison, float]] = field(default_factory=dict)

    @property
    def missed(self) -> list[str]:
        return [name for name in self.bars if "MISSED" in self._verdict(name)]

    def as_json(self) -> str:
        return json.dumps(self.document)

    def as_table(self) -> Table:
        """Return a table of every figure by its JSON key, beside its bar."""
        rows = [(name, text, self._verdict(name)) for name, text in _flatten(self.document)]
        return make_table("", ("figure", "measured", "bar"), rows)

    def _verdict(self, name: str) -> str:
        if name not in self.bars or self.document[name] is None:
            return ""
        (sign, holds), limit = self.bars[name]
        return f"{sign} {limit:g}  {'met' if holds(self.document[name], limit) else 'MISSED'}"


def _flatten(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}: ")
        else:
            yield prefix + name, "not measured" if value is None else f"{value}"


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
    return f"| {' | '.join(map(str, cells))} |"


def machine() -> dict[str, Any]:
    return {"python": platform.python_version(), "cpus": os.cpu_count()}
