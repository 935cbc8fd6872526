"""The figures of `benchmarks capacity`: a table, JSON, and the tables of the capacity page.

python -m benchmarks.capacity.report results/capacity.json benchmarks/capacity/README.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final

from benchmarks.report import NONE_YET, markdown_row
from podium._util.files import replace_parts
from podium.store.sql.database import CONNECTIONS

_MADE: Final = "made by python -m benchmarks.capacity.report, not by hand"

RATES: Final = (10, 100, 1000)
"""Requests a second of the deployments that the model sizes."""

BUSY: Final = 0.6
"""The share of a core that a process uses; the rest is for bursts and for the loss of a replica."""

ANSWER_SECONDS: Final = 10
"""Assumed duration of a run over real models: it decides how many are in flight."""

ONE_REPLICA: Final = "one replica over Postgres"
REPLICAS: Final = "replicas over Postgres"

HEADINGS: Final = (
    *("", "load", "processes", "requests/s", "CPU ms"),
    *("commits", "rows", "WAL KiB", "its CPU ms", "connections"),
)
DERIVED: Final = ("for each second", *(f"{rate:,} requests" for rate in RATES))

Document = Mapping[str, Any]


def as_text(document: Document) -> str:
    measured = _markdown(HEADINGS, map(_cells, document["rows"]), texts=2)
    return "\n".join((*measured, "", *_sentences(document)))


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


def update_page(page: str, results: Path) -> str:
    """Return the page with the figures of that file between its marks."""
    parts = dict.fromkeys(("measured", "derived"), NONE_YET)
    if results.is_file():
        document = json.loads(results.read_text("utf-8"))
        parts["measured"] = as_text(document)
        parts["derived"] = "\n".join(_derive(document))
    return replace_parts(page, _MADE, {name: f"{text}\n" for name, text in parts.items()})


def _markdown(
    headings: Sequence[str], rows: Iterator[Sequence[str]], texts: int = 1
) -> Iterator[str]:
    """Yield a Markdown table whose first columns are texts and all others numbers."""
    yield markdown_row(headings).replace("|  |", "| |")
    yield f"|{'---|' * texts}{'--:|' * (len(headings) - texts)}"
    yield from map(markdown_row, rows)


def _derive(document: Document) -> Iterator[str]:
    rows = [row for row in document["rows"] if row["group"] == ONE_REPLICA]
    if not rows:
        yield "Without Postgres, several machines were not measured."
        return
    table = [line for row in rows for line in _sizes(row, document["memory"])]
    yield from _markdown(DERIVED, iter(table))
    yield ""
    yield from _checks(document["rows"])
    for row in rows:
        commits = row["database"]["commits"]
        if row["steps"] and commits:
            carried = document["commits_per_second"] / commits
            yield (
                f"- {row['load'].capitalize()}: one Postgres like this takes the commits of "
                f"{_round(carried)} a second, which is what {_round(carried / _rate(row))} "
                f"processes carry."
            )


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


def _checks(rows: Sequence[Document]) -> Iterator[str]:
    """Compare the model with the measured costs of several replicas."""
    one = {row["load"]: row for row in rows if row["group"] == ONE_REPLICA}
    for row in rows:
        if row["group"] != REPLICAS:
            continue
        model, rate, base = one[row["load"]], row["per_second"], row["database"]
        written = model["database"]["rows"]
        yield (
            f"- Check, {row['load']}: at {rate:,.0f} a second, {row['processes']} replicas took "
            f"{rate * row['cpu_ms'] / 1000:.2f} cores (the model: "
            f"{rate * model['cpu_ms'] / 1000:.2f}), {base['rows']:.1f} rows a request "
            f"({written:.1f}) and {base['connections']} connections (at most "
            f"{row['processes'] * CONNECTIONS})."
        )


def _rate(row: Document) -> float:
    """Return the requests a second of a process with a core of its own."""
    return 1000 / float(row["cpu_ms"])


def _round(value: float) -> str:
    """Round to two significant digits."""
    if value < 10:
        return f"{value:.1f}"
    digits = len(str(int(value))) - 2
    return f"{round(value, -digits):,.0f}"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(update_page(target.read_text("utf-8"), source), "utf-8")
