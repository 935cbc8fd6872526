"""The figures of `benchmarks capacity` as text, which benchmarks/capacity/README.md has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

from podium.evals.results import markdown
from podium.store.sql.database import CONNECTIONS

RATES: Final = (10, 100, 1000)
"""Requests a second of the deployments that the model sizes."""

BUSY: Final = 0.6
"""The share of a core that a process uses; the rest is for bursts and for the loss of a replica."""

ANSWER_SECONDS: Final = 10
"""Assumed duration of a run over real models: it decides how many are in flight."""

ONE_REPLICA: Final = "one replica over Postgres"

HEADINGS: Final = (
    *("", "load", "processes", "requests/s", "CPU ms"),
    *("commits", "rows", "WAL KiB", "its CPU ms", "connections"),
)
DERIVED: Final = ("for each second", *(f"{rate:,} requests" for rate in RATES))

Document = Mapping[str, Any]


def as_text(document: Document) -> str:
    measured = markdown(HEADINGS, [_cells(row) for row in document["rows"]])
    return "\n".join((measured, "", *_sentences(document)))


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


def size_deployments(document: Document) -> str:
    """Calculate deployments from one replica over Postgres; empty where that was not measured."""
    rows = [row for row in document["rows"] if row["group"] == ONE_REPLICA]
    if not rows:
        return ""
    lines = [markdown(DERIVED, [line for row in rows for line in _sizes(row, document["memory"])])]
    for row in rows:
        if row["steps"] and (commits := row["database"]["commits"]):
            carried = document["commits_per_second"] / commits
            lines.append(
                f"\n{row['load'].capitalize()}: one Postgres like this takes the commits of "
                f"{_round(carried)} a second, which is what {_round(carried / _rate(row))} "
                f"processes carry."
            )
    return "\n".join(lines)


def _sizes(row: Document, memory: Document) -> Iterator[Sequence[str]]:
    """Yield the size of a deployment for each of `RATES`."""
    base, load = row["database"], row["load"]
    processes = [max(2, ceil(rate / _rate(row) / BUSY)) for rate in RATES]  # one may die
    yield f"{load}: processes, a core each", *map(str, processes)
    yield f"{load}: connections at most", *(f"{n * CONNECTIONS:,}" for n in processes)
    per_run = memory["per_run_bytes"] * ANSWER_SECONDS
    sizes = (n * memory["idle_bytes"] + r * per_run for n, r in zip(processes, RATES, strict=True))
    yield f"{load}: MiB of memory", *(_round(size / 2**20) for size in sizes)
    if row["steps"]:
        yield f"{load}: rows written", *(_round(rate * base["rows"]) for rate in RATES)
        wal = (rate * base["wal_bytes"] / 2**20 for rate in RATES)
        yield f"{load}: MiB of WAL", *map(_round, wal)
        busy = (rate * base["cpu_ms"] / 1000 for rate in RATES)
        yield f"{load}: cores of Postgres", *map(_round, busy)


def _rate(row: Document) -> float:
    """Return the requests a second of a process with a core of its own."""
    return 1000 / float(row["cpu_ms"])


def _round(value: float) -> str:
    """Round to two significant digits."""
    if value < 10:
        return f"{value:.1f}"
    digits = len(str(int(value))) - 2
    return f"{round(value, -digits):,.0f}"
