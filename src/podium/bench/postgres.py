"""A Postgres of the machine's own programs, for as long as it is needed and for nobody else.

What it keeps is gone afterwards, so it need not wait for the disk, unless just that is measured.
It is the servers over it that are killed, and never this.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from podium.errors import ConfigError

NOBODY: Final = 65534
"""Who it runs as where we are root: Postgres refuses to be."""

LONGEST_START_SECONDS: Final = 60.0
BETWEEN_TRIES_SECONDS: Final = 0.05
IN_A_HURRY: Final = {"fsync": "off", "full_page_writes": "off"}
SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "200",
    "log_min_messages": "fatal",
}


def programs() -> Path | None:
    """Where the programs of the newest Postgres of this machine are, if there is one."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = sorted(debian, key=lambda found: int(found.parts[-3].split(".")[0]))
    if newest:
        return newest[-1].parent
    found = shutil.which("postgres")
    return None if found is None else Path(found).resolve().parent


@asynccontextmanager
async def running_postgres(*, durable: bool = False) -> AsyncIterator[str]:
    """Start one with nothing in it; the address of its database, as `[store] url` has it. Where it
    is to be `durable`, it waits for the disk as in earnest."""
    where = programs()
    if where is None:
        raise ConfigError(
            "this needs Postgres, and this machine has none; install it "
            "(apt-get install postgresql), or leave out what shares one"
        )
    directory = tempfile.mkdtemp(prefix="podium-postgres-")
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    try:
        os.chown(directory, user, -1)
        await _run(user, where / "initdb", "-D", f"{directory}/data", *_INITIAL)
        chosen = SETTINGS if durable else {**SETTINGS, **IN_A_HURRY}
        settings = [word for item in chosen.items() for word in ("-c", "=".join(item))]
        server = await asyncio.create_subprocess_exec(
            *(str(where / "postgres"), "-D", f"{directory}/data", "-k", directory, *settings),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            **_as(user),
        )
        try:
            await _until_ready(where, directory, server)
            yield f"postgresql://postgres@/postgres?host={directory}"
        finally:
            if server.returncode is None:
                server.send_signal(signal.SIGQUIT)
            await server.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


_INITIAL: Final = (
    *("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"),
    "--no-sync",
)


async def _run(user: int, *command: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        **_as(user),
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        said = output.decode(errors="replace").strip()[-400:]
        raise ConfigError(f"{command[0]} failed, so there is no Postgres to share: {said}")


async def _until_ready(where: Path, directory: str, server: asyncio.subprocess.Process) -> None:
    until = time.monotonic() + LONGEST_START_SECONDS
    while True:
        asking = await asyncio.create_subprocess_exec(
            *(str(where / "pg_isready"), "-q", "-h", directory, "-U", "postgres")
        )
        if await asking.wait() == 0:
            return
        if server.returncode is not None or time.monotonic() > until:
            raise ConfigError("Postgres did not become ready; what it said is above")
        await asyncio.sleep(BETWEEN_TRIES_SECONDS)


def _as(user: int) -> dict[str, Any]:
    if user == os.geteuid():
        return {}
    return {"user": user, "group": pwd.getpwuid(user).pw_gid}
