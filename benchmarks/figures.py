"""What `python -m benchmarks engine` found out, as figures, as a table, and as one line of JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from operator import ge, le
from typing import TYPE_CHECKING, Final

from benchmarks.contest import Timing
from benchmarks.join import LEAST_SECONDS

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Bar:
    """What a ratio has to be."""

    sign: str
    limit: float
    holds: Callable[[float, float], bool]

    def verdict(self, ratio: float) -> str:
        """The bar in words, and whether the ratio passes it."""
        return f"{self.sign} {self.limit:g}  {'met' if self.holds(ratio, self.limit) else 'MISSED'}"


TASKGROUP_BAR: Final = Bar("<=", 2.5, le)
LANGGRAPH_BAR: Final = Bar(">=", 10.0, ge)
JOIN_BAR: Final = Bar("<=", 1.05, le)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """The timings of every contestant by name, and the makespan of the join.

    `langgraph_version` is None when it was not measured.
    """

    timings: Mapping[str, Timing]
    join_seconds: float
    langgraph_version: str | None
    repeat: int

    @property
    def taskgroup_ratio(self) -> float:
        """Ours over the bare TaskGroup."""
        return self.timings["engine"].best / self.timings["taskgroup"].best

    @property
    def langgraph_ratio(self) -> float | None:
        """Theirs over ours."""
        langgraph = self.timings.get("langgraph")
        return langgraph.best / self.timings["engine"].best if langgraph else None

    @property
    def join_makespan_ratio(self) -> float:
        """The join's makespan over the least that is possible."""
        return self.join_seconds / LEAST_SECONDS

    def as_json(self) -> str:
        """One line, for programs."""
        ratio = self.langgraph_ratio
        return json.dumps(
            {
                "taskgroup_ratio": round(self.taskgroup_ratio, 3),
                "langgraph_ratio": None if ratio is None else round(ratio, 2),
                "join_makespan_ratio": round(self.join_makespan_ratio, 4),
                "microseconds": {
                    name: {key: round(value, 2) for key, value in asdict(timing).items()}
                    for name, timing in self.timings.items()
                },
                "join_milliseconds": round(self.join_seconds * 1000, 2),
                "repeat": self.repeat,
                "langgraph": self.langgraph_version,
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
            }
        )

    def as_table(self) -> Table:
        """For people."""
        from rich.table import Table

        table = Table(title="a 5-step chain of workers that do nothing, and a join")
        table.add_column("what")
        for heading in ("µs", "ratio"):
            table.add_column(heading, justify="right")
        table.add_column("bar")
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> list[tuple[str, str, str, str]]:
        bare, ours = self.timings["taskgroup"].best, self.timings["engine"].best
        rows = [
            ("bare TaskGroup, the same awaits", f"{bare:,.1f}", "1.00 × bare", ""),
            (
                "engine, nobody watching",
                f"{ours:,.1f}",
                f"{self.taskgroup_ratio:.2f} × bare",
                TASKGROUP_BAR.verdict(self.taskgroup_ratio),
            ),
        ]
        for name, words in (
            ("engine_watched", "engine, events on"),
            ("runner", "whole run, fixed conductor"),
        ):
            best = self.timings[name].best
            rows.append((words, f"{best:,.1f}", f"{best / bare:.2f} × bare", ""))
        rows.append(self._langgraph_row())
        rows.append(self._join_row())
        return rows

    def _langgraph_row(self) -> tuple[str, str, str, str]:
        ratio = self.langgraph_ratio
        if ratio is None:
            return ("LangGraph", "", "not measured", "")
        return (
            f"LangGraph {self.langgraph_version}",
            f"{self.timings['langgraph'].best:,.1f}",
            f"{ratio:.1f} × engine",
            LANGGRAPH_BAR.verdict(ratio),
        )

    def _join_row(self) -> tuple[str, str, str, str]:
        ratio = self.join_makespan_ratio
        return (
            "join of 300, 300 and 100 ms",
            f"{self.join_seconds * 1e6:,.0f}",
            f"{ratio:.3f} × {LEAST_SECONDS * 1000:.0f} ms",
            JOIN_BAR.verdict(ratio),
        )
