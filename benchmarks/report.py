"""Bars, tables and the description of the machine, shared by the benchmarks' results."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

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


class Figures:
    """The results of a benchmark: a JSON document, and a table of it beside its bars."""

    __slots__ = ()
    bars: ClassVar[Mapping[str, Bar]] = {}

    def document(self) -> dict[str, Any]:
        raise NotImplementedError

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.document())

    def as_table(self) -> Table:
        """Return a table of every figure by its JSON key."""
        document = self.document()
        bars = {name: bar.verdict(document[name]) for name, bar in self.bars.items()}
        rows = [(name, text, bars.get(name, "")) for name, text in _flatten(document)]
        return make_table("", ("figure", "measured", "bar"), rows)


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
    """Return one row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def machine() -> dict[str, Any]:
    """Return the Python version and the number of cores."""
    return {"python": platform.python_version(), "cpus": os.cpu_count()}
