"""The figures of `benchmarks capacity`: a table, JSON, and the tables of the capacity page.

python -m benchmarks.capacity.report results/capacity.json benchmarks/capacity/README.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.report import NONE_YET, Figures, make_table, markdown_row
from podium._util.files import replace_parts
from podium.store.sql.database import CONNECTIONS

if TYPE_CHECKING:
    from rich.table import Table

_MADE: Final = "made by python -m benchmarks.capacity.report, not by hand"

CORES: Final = 8
"""Cores of the assumed machine, one process for each."""

MACHINES: Final = 100
ONE_REPLICA: Final = "one replica over Postgres"

HEADINGS: Final = (
    *("", "load", "processes", "requests/s", "CPU ms"),
    *("commits", "rows", "WAL KiB", "its CPU ms", "connections"),
)
DERIVED: Final = ("", "one process", f"one machine of {CORES} cores", f"{MACHINES} of them")

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """What one request made Postgres do on average, and open connections."""

    commits: float
    rows: float
    wal_bytes: float
    cpu_ms: float
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A server group under a load: requests a second, and CPU milliseconds for each."""

    group: str
    load: str
    steps: int
    replicas: int
    processes: int
    in_flight: int
    per_second: float
    cpu_ms: float
    database: Database | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of a process when idle, and with runs in flight."""

    idle_bytes: int
    in_flight: int
    held_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity(Figures):
    """All results. Rows over Postgres and `commits_per_second` are missing where there is none."""

    rows: Sequence[Row]
    memory: Memory
    commits_per_second: float | None
    cpus: int
    python: str
    load_average: float
    quick: bool

    def document(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        memory = self.memory
        per_run = round((memory.held_bytes - memory.idle_bytes) / memory.in_flight)
        return {**asdict(self), "memory": {**asdict(memory), "per_run_bytes": per_run}}

    def as_table(self) -> Table:
        """Return a table."""
        document = self.document()
        every = [HEADINGS, *map(_cells, document["rows"])]
        headings, *rows = [(f"{c[0]} {c[1]}".strip(), c[3], c[4], c[5], c[8], c[9]) for c in every]
        table = make_table("", headings, rows)
        table.caption = "\n".join(_sentences(document))
        return table


def _cells(row: Document) -> list[str]:
    cells = [
        *(row["group"], row["load"], str(row["processes"])),
        *(f"{row['per_second']:,.0f}", f"{row['cpu_ms']:.2f}"),
    ]
    base = row["database"]
    if base is None:
        return cells + [""] * 5
    counts = (base["commits"], base["rows"], base["wal_bytes"] / 1024)
    return [
        *cells,
        *(f"{count:.1f}" for count in counts),
        f"{base['cpu_ms']:.2f}",
        str(base["connections"]),
    ]


def _sentences(document: Document) -> Iterator[str]:
    memory, commits = document["memory"], document["commits_per_second"]
    yield (
        f"A process holds {memory['idle_bytes'] / 2**20:.0f} MiB with nothing to do, and "
        f"{memory['per_run_bytes'] / 1024:.0f} KiB more for each run in flight "
        f"({memory['in_flight']:,} of them were)."
    )
    if commits is not None:
        yield (
            f"The same Postgres by itself, asked by `pgbench`, takes {commits:,.0f} rows of 4 KiB "
            f"a second, each committed and on the disk."
        )
    yield (
        f"{'A short look' if document['quick'] else 'Measured'} on {document['cpus']} cores, "
        f"Python {document['python']}, at a load average of {document['load_average']:.1f}; "
        f"clients, upstream and Postgres shared them."
    )


def updated(page: str, results: Path) -> str:
    """Return the page with the figures of that file between its marks."""
    parts = dict.fromkeys(("measured", "derived"), NONE_YET)
    if results.is_file():
        document = json.loads(results.read_text("utf-8"))
        measured = _markdown(HEADINGS, map(_cells, document["rows"]), texts=2)
        parts["measured"] = "\n".join((*measured, "", *_sentences(document)))
        parts["derived"] = "\n".join(_derived(document))
    return replace_parts(page, _MADE, {name: f"{text}\n" for name, text in parts.items()})


def _markdown(
    headings: Sequence[str], rows: Iterator[Sequence[str]], texts: int = 1
) -> Iterator[str]:
    """Yield a Markdown table whose first columns are texts and all others numbers."""
    yield markdown_row(headings).replace("|  |", "| |")
    yield f"|{'---|' * texts}{'--:|' * (len(headings) - texts)}"
    yield from map(markdown_row, rows)


def _derived(document: Document) -> Iterator[str]:
    rows = [row for row in document["rows"] if row["group"] == ONE_REPLICA]
    if not rows:
        yield "Without Postgres, several machines were not measured."
        return
    of_one = {f"{row['load']}, a second": _rate(row) for row in rows}
    per_run = document["memory"]["per_run_bytes"]
    of_one["runs in flight in 1 GiB for each process"] = 2**30 / per_run
    of_one["connections to the database"] = CONNECTIONS
    for row in rows:
        needed = _rate(row) * row["database"]["commits"]
        of_one[f"commits a second, for {row['load']}"] = needed
    processes = (1, CORES, CORES * MACHINES)
    yield from _markdown(
        DERIVED,
        ((name, *(_rounded(value * n) for n in processes)) for name, value in of_one.items()),
    )
    yield ""
    for row in rows:
        commits = row["database"]["commits"]
        if row["steps"] and commits:
            carried = document["commits_per_second"] / commits
            yield (
                f"- {row['load'].capitalize()}: one Postgres like this takes the commits of "
                f"{_rounded(carried)} a second, which is what {_rounded(carried / _rate(row))} "
                f"processes carry."
            )


def _rate(row: Document) -> float:
    """Return what a process with a core of its own carries."""
    return 1000 / float(row["cpu_ms"])


def _rounded(value: float) -> str:
    """Round to two significant digits."""
    if value < 10:
        return f"{value:.1f}"
    digits = len(str(int(value))) - 2
    return f"{round(value, -digits):,.0f}"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(updated(target.read_text("utf-8"), source), "utf-8")
