"""What servers make a Postgres do, by its own counters, and what it can do at most.

A connection reports its counters when it closes, so they are read when the servers have ended. The
maximum is measured by `pgbench` with rows of a run's size, each committed to disk.
"""

from __future__ import annotations

import asyncio
import re
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.postgres import programs
from benchmarks.processes import cpu_seconds
from podium.core.errors import ConfigError

PROC: Final = Path("/proc")


def allow_many_connections() -> None:
    """Raise the limit of open files: a thousand runs take two thousand connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def family(process: int) -> Iterator[int]:
    """Return the process and its living descendants."""
    yield process
    for thread in (PROC / str(process) / "task").glob("*/children"):
        try:
            children = thread.read_text("ascii").split()
        except OSError:
            continue  # the thread has ended meanwhile
        for child in children:
            yield from family(int(child))


def family_cpu_seconds(process: int) -> float:
    """Return their CPU seconds."""
    return sum(map(_cpu_seconds, family(process)))


def _cpu_seconds(process: int) -> float:
    try:
        return cpu_seconds(process)
    except ConfigError:
        return 0.0  # it has ended meanwhile


def family_memory_bytes(process: int) -> int:
    """Return their memory; shared pages count once."""
    return sum(map(_memory_bytes, family(process)))


def _memory_bytes(process: int) -> int:
    try:
        lines = (PROC / str(process) / "smaps_rollup").read_text("ascii").splitlines()
    except OSError as error:
        raise ConfigError(
            f"the memory of process {process} cannot be read: {error.strerror}; measure on Linux"
        ) from error
    kilobytes = next(line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(kilobytes) * 1024


MOST_TRIES: Final = 200
BETWEEN_TRIES_SECONDS: Final = 0.05
CLIENTS: Final = 16
SCRIPT: Final = """
INSERT INTO written (words)
SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 128);
"""
"""Inserts a row of 4 KiB that does not compress."""

_COUNTERS: Final = """
    SELECT xact_commit, tup_inserted + tup_updated + tup_deleted,
        (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint
    FROM pg_stat_database WHERE datname = current_database()
"""
_CONNECTIONS: Final = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_POSTMASTER: Final = "SELECT pg_read_file('postmaster.pid')"


class Counters(NamedTuple):
    """What a database has done so far."""

    commits: int
    rows: int
    wal_bytes: int

    def since(self, earlier: Counters) -> Counters:
        """Return the difference."""
        return Counters(*(now - then for now, then in zip(self, earlier, strict=True)))


async def read_counters(url: str) -> Counters:
    """Read the counters of the database at that address."""
    (row,) = await _rows(url, _COUNTERS)
    return Counters(*row)


async def connections(url: str) -> int:
    """Count its open connections, without our own."""
    ((count,),) = await _rows(url, _CONNECTIONS)
    return int(count)


async def left_alone(url: str) -> None:
    """Wait until it has no other connection."""
    for _ in range(MOST_TRIES):
        if not await connections(url):
            return
        await asyncio.sleep(BETWEEN_TRIES_SECONDS)
    raise ConfigError("the servers have ended, and their connections to Postgres have not")


async def postmaster(url: str) -> int:
    """Return the main process of that Postgres."""
    ((lines,),) = await _rows(url, _POSTMASTER)
    return int(lines.split()[0])


async def commits_per_second(url: str, seconds: int) -> float:
    """Measure the rows it commits to disk in a second."""
    where = programs()
    pgbench = None if where is None else where / "pgbench"
    if pgbench is None or not pgbench.is_file():
        raise ConfigError(
            "pgbench is not there, which comes with Postgres; apt-get install postgresql-contrib"
        )
    await _rows(url, "CREATE TABLE written (id bigserial PRIMARY KEY, words text)")
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as directory:
        script = Path(directory) / "script.sql"
        script.write_text(SCRIPT, "utf-8")
        process = await asyncio.create_subprocess_exec(
            *(str(pgbench), "--no-vacuum", f"--client={CLIENTS}", f"--time={seconds}"),
            *(f"--file={script}", url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, complaints = await process.communicate()
    found = re.search(rb"tps = ([\d.]+)", output)
    if found is None:
        raise ConfigError(f"pgbench did not say how far it came: {complaints.decode()[-400:]}")
    return float(found[1])


async def _rows(url: str, query: str) -> list[Any]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        found: list[Any] = await connection.fetch(query)
        return found
    finally:
        await connection.close()
