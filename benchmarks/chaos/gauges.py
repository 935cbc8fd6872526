"""What a process holds at a moment, and whether it holds more and more.

Read on Linux, where `/proc` tells. Memory is read after the collector has run and the allocator
has given back what it can: what is kept for later use is no growth.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Final

from podium.core.errors import ConfigError

MIB: Final = 1024**2
SLOPE_RUNS: Final = 10_000
MOST_BYTES: Final = MIB // 2
"""By so much memory may seem to grow in `SLOPE_RUNS` runs: 52 bytes a run, less than an object."""

MOST_OBJECTS: Final = 100
LEAST_GROWTH_BYTES: Final = 4 * MIB
LEAST_GROWTH_OBJECTS: Final = 1_000
"""Less than that in all is no growth, whatever its slope: a short look has a steep one easily."""

STEADY: Final = ("files", "tasks", "threads", "connections", "locks", "wal_bytes")
"""What must not be more at the end than at the beginning, by any amount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """What the process holds after so many runs. `connections` are open files of the databases,
    `locks` are databases that cannot be written to at this moment."""

    runs: int
    bytes: int
    objects: int
    files: int
    tasks: int
    threads: int
    connections: int
    locks: int
    wal_bytes: int


def read_gauge(runs: int, databases: Sequence[Path]) -> Gauge:
    """Read all of it now, on the event loop."""
    gc.collect()
    trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    files = _open_files()
    names = tuple(str(database) for database in databases)
    return Gauge(
        runs=runs,
        bytes=_resident_bytes(),
        objects=len(gc.get_objects()),
        files=len(files),
        tasks=len(asyncio.all_tasks()),
        threads=threading.active_count(),
        connections=sum(file.startswith(names) for file in files),
        locks=sum(map(_is_locked, databases)),
        wal_bytes=sum(map(_wal_bytes, databases)),
    )


def _resident_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError as error:
        raise ConfigError(
            "the part soak reads /proc, which this system does not have; run it on Linux, in a "
            "container for instance, or name the other parts with --part"
        ) from error
    return pages * os.sysconf("SC_PAGESIZE")


def _open_files() -> list[str]:
    found = []
    for entry in os.scandir("/proc/self/fd"):
        try:
            found.append(os.readlink(entry.path))
        except FileNotFoundError:  # the directory that is being read, which is closed by now
            continue
    return found


def _is_locked(database: Path) -> bool:
    connection = sqlite3.connect(database, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return True
    finally:
        connection.close()
    return False


def _wal_bytes(database: Path) -> int:
    log = database.with_name(f"{database.name}-wal")
    return log.stat().st_size if log.exists() else 0


def slope(gauges: Sequence[Gauge], name: str) -> float:
    """How much more there is of it after another `SLOPE_RUNS` runs: the median over all pairs of
    moments, which no single one of them can bend."""
    slopes = [
        (getattr(later, name) - getattr(sooner, name)) / (later.runs - sooner.runs)
        for sooner, later in combinations(gauges, 2)
    ]
    return SLOPE_RUNS * median(slopes) if slopes else 0.0


def growing(gauges: Sequence[Gauge]) -> tuple[str, ...]:
    """What grows from the first of these moments to the last, in words."""
    if len(gauges) < 3:
        return ()
    found = []
    span = (gauges[-1].runs - gauges[0].runs) / SLOPE_RUNS
    for name, most, least in (
        ("bytes", MOST_BYTES, LEAST_GROWTH_BYTES),
        ("objects", MOST_OBJECTS, LEAST_GROWTH_OBJECTS),
    ):
        steepness = slope(gauges, name)
        if steepness > most and steepness * span > least:
            found.append(f"{name} grow by {steepness:,.0f} in {SLOPE_RUNS:,} runs")
    third = len(gauges) // 3
    for name in STEADY:
        before = max(getattr(gauge, name) for gauge in gauges[:third])
        after = min(getattr(gauge, name) for gauge in gauges[-third:])
        if after > before:
            found.append(f"{name} grew from {before:,} to {after:,}")
    return tuple(found)
