"""The load of servers on Postgres, by its own counters, and its maximum.

A connection reports its counters when it closes, so they are read when the servers have ended. The
maximum is measured by `pgbench` with rows of a run's size, each committed to disk.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.postgres import programs
from podium.core.errors import ConfigError

MAX_TRIES: Final = 200
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


class Counters(NamedTuple):
    """The counters of a database."""

    commits: int
    rows: int
    wal_bytes: int


async def read_counters(url: str) -> Counters:
    return Counters(*await _row(url, _COUNTERS))


async def connections(url: str) -> int:
    """Count the open connections of others."""
    return int((await _row(url, _CONNECTIONS))[0])


async def wait_until_unused(url: str) -> None:
    """Wait until there is no other connection."""
    for _ in range(MAX_TRIES):
        if not await connections(url):
            return
        await asyncio.sleep(BETWEEN_TRIES_SECONDS)
    raise ConfigError("the servers have ended, and their connections to Postgres have not")


async def postmaster(url: str) -> int:
    """Return the process id of Postgres."""
    return int((await _row(url, "SELECT pg_read_file('postmaster.pid')"))[0].split()[0])


async def commits_per_second(url: str, seconds: int) -> float:
    """Measure how many rows Postgres commits to disk in a second."""
    where = programs()
    if where is None or not (where / "pgbench").is_file():
        raise ConfigError(
            "pgbench is not there, which comes with Postgres; apt-get install postgresql-contrib"
        )
    await _row(url, "CREATE TABLE written (id bigserial PRIMARY KEY, words text)")
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as directory:
        script = Path(directory) / "script.sql"
        script.write_text(SCRIPT, "utf-8")
        process = await asyncio.create_subprocess_exec(
            *(str(where / "pgbench"), "--no-vacuum", f"--client={CLIENTS}", f"--time={seconds}"),
            *(f"--file={script}", url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, complaints = await process.communicate()
    found = re.search(rb"tps = ([\d.]+)", output)
    if found is None:
        raise ConfigError(f"pgbench did not say how far it came: {complaints.decode()[-400:]}")
    return float(found[1])


async def _row(url: str, query: str) -> Any:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchrow(query)
    finally:
        await connection.close()
