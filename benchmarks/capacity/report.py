"""The figures of `benchmarks capacity`: a table, JSON, and the tables of docs/capacity.md.

python -m benchmarks.capacity.report results/capacity.json docs/capacity.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.report import make_table
from podium._util.files import replace_parts
from podium.store.sql.database import CONNECTIONS

if TYPE_CHECKING:
    from rich.table import Table

_MADE: Final = "made by python -m benchmarks.capacity.report, not by hand"
NONE_YET: Final = "Nothing was measured yet."

CORES: Final = 8
"""Cores of the assumed machine, one process for each."""

MACHINES: Final = 100
ONE_REPLICA: Final = "one replica over Postgres"

_MEASURED: Final = """\
| | load | processes | requests/s | CPU ms | commits | rows | WAL KiB | its CPU ms | connections |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"""
_DERIVED: Final = f"""\
| | one process | one machine of {CORES} cores | {MACHINES} of them |
|---|--:|--:|--:|"""

Document = Mapping[str, Any]


def updated(page: str, results: Path) -> str:
    """Return the page with the figures of that file between its marks."""
    document = json.loads(results.read_text("utf-8")) if results.is_file() else None
    parts = {
        "measured": NONE_YET if document is None else "\n".join(_measured(document)),
        "derived": NONE_YET if document is None else "\n".join(_derived(document)),
    }
    return replace_parts(page, _MADE, {name: f"{text}\n" for name, text in parts.items()})


def _measured(document: Document) -> Iterator[str]:
    yield _MEASURED
    for row in document["rows"]:
        base = row["database"]
        cells = (
            *(row["station"], row["load"], row["processes"]),
            *(f"{row['per_second']:,.0f}", f"{row['cpu_ms']:.2f}"),
            *(_database_cells(base) if base is not None else [""] * 5),
        )
        yield f"| {' | '.join(map(str, cells))} |"
    memory = document["memory"]
    yield ""
    yield (
        f"A process holds {memory['idle_bytes'] / 2**20:.0f} MiB with nothing to do, and "
        f"{memory['per_run_bytes'] / 1024:.0f} KiB more for each run in flight "
        f"({memory['in_flight']:,} of them were)."
    )
    commits = document["commits_per_second"]
    if commits is not None:
        yield (
            f"The same Postgres by itself, asked by `pgbench`, takes {commits:,.0f} rows of 4 KiB "
            f"a second, each committed and on the disk."
        )
    of = "A short look" if document["quick"] else "Measured"
    yield (
        f"{of} on {document['cpus']} cores, Python {document['python']}, at a load average of "
        f"{document['load_average']:.1f}; clients, upstream and Postgres shared them."
    )


def _database_cells(base: Document) -> list[str]:
    return [
        f"{base['commits']:.1f}",
        f"{base['rows']:.1f}",
        f"{base['wal_bytes'] / 1024:.1f}",
        f"{base['cpu_ms']:.2f}",
        str(base["connections"]),
    ]


def _derived(document: Document) -> Iterator[str]:
    rows = [row for row in document["rows"] if row["station"] == ONE_REPLICA]
    if not rows:
        yield "Without Postgres, several machines were not measured."
        return
    processes = (1, CORES, CORES * MACHINES)
    yield _DERIVED
    for row in rows:
        yield _line(f"{row['load']}, a second", [_rate(row) * count for count in processes])
    per_run = document["memory"]["per_run_bytes"]
    yield _line(
        "runs in flight in 1 GiB for each process", [2**30 / per_run * n for n in processes]
    )
    yield _line("connections to the database", [CONNECTIONS * count for count in processes])
    for row in rows:
        needed = [_rate(row) * row["database"]["commits"] * count for count in processes]
        yield _line(f"commits a second, for {row['load']}", needed)
    yield ""
    yield from _bottleneck(rows, document["commits_per_second"])


def _rate(row: Document) -> float:
    """Return what a process with a core of its own carries."""
    return 1000 / float(row["cpu_ms"])


def _line(name: str, values: Sequence[float]) -> str:
    return f"| {name} | {' | '.join(_rounded(value) for value in values)} |"


def _rounded(value: float) -> str:
    """Round to two significant digits."""
    if value < 10:
        return f"{value:.1f}"
    digits = len(str(int(value))) - 2
    return f"{round(value, -digits):,.0f}"


def _bottleneck(rows: Sequence[Document], commits: float) -> Iterator[str]:
    for row in rows:
        base = row["database"]
        if not row["steps"] or not base["commits"]:
            continue
        carried = commits / base["commits"]
        yield (
            f"- {row['load'].capitalize()}: one Postgres like this takes the commits of "
            f"{_rounded(carried)} a second, which is what {_rounded(carried / _rate(row))} "
            f"processes carry."
        )


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
    """A station under a load: requests a second, and CPU milliseconds of the servers for each."""

    station: str
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

    @property
    def per_run_bytes(self) -> float:
        """Memory of one run."""
        return (self.held_bytes - self.idle_bytes) / self.in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
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
        memory = {**asdict(self.memory), "per_run_bytes": round(self.memory.per_run_bytes)}
        return {**asdict(self), "memory": memory}

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.document())

    def as_table(self) -> Table:
        """Return a table."""
        rows = []
        for row in self.rows:
            base = row.database
            figures = (f"{row.per_second:,.0f}", f"{row.cpu_ms:.2f}")
            database = ("", "", "")
            if base is not None:
                database = (f"{base.commits:.1f}", f"{base.cpu_ms:.2f}", str(base.connections))
            rows.append((f"{row.station}: {row.load}", *figures, *database))
        headings = ("load", "requests/s", "CPU ms", "commits", "database CPU ms", "connections")
        title = f"{self.cpus} cores, at a load average of {self.load_average:.1f}"
        table = make_table(title, headings, rows)
        table.caption = self._caption()
        return table

    def _caption(self) -> str:
        memory = self.memory
        text = (
            f"a process holds {memory.idle_bytes / 2**20:.0f} MiB, and "
            f"{memory.per_run_bytes / 1024:.0f} KiB for each run in flight"
        )
        if self.commits_per_second is None:
            return text
        return f"{text}; Postgres alone: {self.commits_per_second:,.0f} commits a second"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(updated(target.read_text("utf-8"), source), "utf-8")
