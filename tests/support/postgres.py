"""A real Postgres for the tests, of the machine's own binaries: started when a test first wants
it, one for each process of pytest, on a socket that nobody else finds, and gone with that process.
Where there are no binaries, the tests that want it are skipped and say why."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

MISSING: Final = "there is no Postgres on this machine; apt-get install postgresql"

NOBODY: Final = 65534
"""Who it runs as where the tests are root's: Postgres refuses to. A user and a group."""

SECONDS_TO_START: Final = 30

SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "autovacuum": "off",
    "log_min_messages": "panic",
}

_DIES_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server that runs. `directory` is where its socket is."""

    directory: str

    def address(self, database: str = "podium") -> str:
        """The address of a database, as `[store] url` has it."""
        return f"postgresql://postgres@/{database}?host={self.directory}"

    async def empty(self, database: str = "podium") -> str:
        """A database of that name with nothing in it, and its address."""
        connection = await self._connected("postgres")
        try:
            known = "SELECT 1 FROM pg_database WHERE datname = $1"
            if await connection.fetchval(known, database) is None:
                await connection.execute(f'CREATE DATABASE "{database}"')
                return self.address(database)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
                database,
            )
        finally:
            await connection.close()
        connection = await self._connected(database)
        try:
            await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        finally:
            await connection.close()
        return self.address(database)

    async def _connected(self, database: str) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(host=self.directory, user="postgres", database=database)


def binaries() -> Path | None:
    """Where the programs of the newest Postgres of this machine are."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = sorted(debian, key=lambda found: int(found.parts[-3].split(".")[0]))
    if newest:
        return newest[-1].parent
    found = shutil.which("postgres")
    return None if found is None else Path(found).parent


@contextmanager
def running_postgres(programs: Path) -> Iterator[Postgres]:
    """A new server, with nothing in it."""
    directory = tempfile.mkdtemp(prefix="podium-postgres-")
    user = NOBODY if os.geteuid() == 0 else None
    if user is not None:
        os.chown(directory, user, user)
    try:
        _make(programs, directory, user)
        server = _start(programs, directory, user)
        try:
            _await(programs, directory, server)
            yield Postgres(directory)
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait()
    finally:
        shutil.rmtree(directory)


def _make(programs: Path, directory: str, user: int | None) -> None:
    where = ["-D", f"{directory}/data", "-U", "postgres", "--auth=trust"]
    subprocess.run(
        [str(programs / "initdb"), *where, "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"],
        check=True,
        capture_output=True,
        user=user,
        group=user,
    )


def _start(programs: Path, directory: str, user: int | None) -> subprocess.Popen[bytes]:
    settings = [word for item in SETTINGS.items() for word in ("-c", "=".join(item))]
    where = ["-D", f"{directory}/data", "-k", directory]
    return subprocess.Popen(
        [str(programs / "postgres"), *where, *settings],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_end_with_parent,
        user=user,
        group=user,
    )


def _end_with_parent() -> None:
    """Have the system end it should pytest be killed, so that nothing is left behind."""
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGQUIT)


def _await(programs: Path, directory: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until it answers."""
    until = time.monotonic() + SECONDS_TO_START
    asking = [str(programs / "pg_isready"), "-q", "-h", directory]
    while subprocess.run(asking).returncode != 0:
        if server.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"Postgres does not start; its exit code is {server.poll()}")
        time.sleep(0.02)
