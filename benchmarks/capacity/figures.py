"""What `python -m benchmarks capacity` found out: as figures, as a table, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """What one request made a Postgres do, on average, and how many connections were open."""

    commits: float
    rows: float
    wal_bytes: float
    cpu_ms: float
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A station under a load: requests a second, and CPU milliseconds of the servers for each. The
    clients and the upstream had the same machine, and are not counted."""

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
    """What a process holds with nothing to do, and with so many runs in flight."""

    idle_bytes: int
    in_flight: int
    held_bytes: int

    @property
    def per_run_bytes(self) -> float:
        """What each of them takes."""
        return (self.held_bytes - self.idle_bytes) / self.in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """All of it. `commits_per_second` is what Postgres itself can do on this machine, each commit
    on the disk; None, as are the rows over it, where there is no Postgres."""

    rows: Sequence[Row]
    memory: Memory
    commits_per_second: float | None
    cpus: int
    python: str
    load_average: float
    quick: bool

    def document(self) -> dict[str, Any]:
        """As it is written to a file."""
        memory = {**asdict(self.memory), "per_run_bytes": round(self.memory.per_run_bytes)}
        return {**asdict(self), "memory": memory}

    def as_json(self) -> str:
        """One line, for programs."""
        return json.dumps(self.document())

    def as_table(self) -> Table:
        """For people."""
        from rich.table import Table

        table = Table(title=f"{self.cpus} cores, at a load average of {self.load_average:.1f}")
        table.add_column("station")
        table.add_column("load")
        for heading in ("requests/s", "CPU ms", "commits", "database CPU ms", "connections"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            base = row.database
            table.add_row(
                *(row.station, row.load, f"{row.per_second:,.0f}", f"{row.cpu_ms:.2f}"),
                *(
                    ("", "", "")
                    if base is None
                    else (f"{base.commits:.1f}", f"{base.cpu_ms:.2f}", str(base.connections))
                ),
            )
        table.caption = self._caption()
        return table

    def _caption(self) -> str:
        memory = self.memory
        told = (
            f"a process holds {memory.idle_bytes / 2**20:.0f} MiB, and "
            f"{memory.per_run_bytes / 1024:.0f} KiB for each run in flight"
        )
        if self.commits_per_second is None:
            return told
        return f"{told}; Postgres alone: {self.commits_per_second:,.0f} commits a second"
