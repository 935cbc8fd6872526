"""The Postgres of benches and tests: real where the machine has one, and never left behind."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from benchmarks import postgres
from benchmarks.postgres import Postgres, programs, running_postgres
from podium.core.errors import ConfigError
from support.postgres import MISSING

STARTED_AND_WAITING = """
from benchmarks.postgres import running_postgres
with running_postgres() as server:
    print(server.directory, flush=True)
    input()
"""


def test_missing_postgres_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "programs", lambda: None)
    with pytest.raises(ConfigError, match="apt-get install postgresql"), running_postgres():
        pass


@pytest.mark.skipif(programs() is None, reason=MISSING)
def test_a_durable_server_syncs_to_disk_and_leaves_no_files() -> None:
    with running_postgres(durable=True) as server:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert asyncio.run(shown(server, setting)) == "on"
    assert not Path(server.directory).exists()


async def shown(server: Postgres, setting: str) -> str:
    """What a setting is set to."""
    connection = await asyncpg.connect(server.address())
    try:
        return str(await connection.fetchval(f"SHOW {setting}"))
    finally:
        await connection.close()


@pytest.mark.skipif(programs() is None, reason=MISSING)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends what a killed process started")
def test_it_ends_with_a_process_that_is_killed() -> None:
    command = [sys.executable, "-c", STARTED_AND_WAITING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        directory = Path(process.stdout.readline().decode().strip())
        pid = int((directory / "data" / "postmaster.pid").read_text().split()[0])
        assert is_there(pid)
        process.kill()
    until = time.monotonic() + 20
    while is_there(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not is_there(pid)
    shutil.rmtree(directory)


def is_there(pid: int) -> bool:
    """True if the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
