"""Run a temporary Postgres from the machine's own programs, on a private socket.

Its data is deleted afterwards, so it does not wait for the disk unless that is measured.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from podium.core.errors import ConfigError

NOBODY: Final = 65534
"""Who it runs as where we are root: Postgres refuses to be. A user and a group."""

LONGEST_START_SECONDS: Final = 60.0
BETWEEN_TRIES_SECONDS: Final = 0.02
SETTINGS: Final = {
    "listen_addresses": "",
    "max_connections": "200",
    "log_min_messages": "fatal",
}
NON_DURABLE_SETTINGS: Final = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "autovacuum": "off",
}

_INITIAL: Final = (
    *("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"),
    "--no-sync",
)
_DIES_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server; `directory` holds its socket."""

    directory: str

    def address(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.directory}"


def programs() -> Path | None:
    """Return the directory of the newest Postgres on this machine, if any."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = sorted(debian, key=lambda found: int(found.parts[-3].split(".")[0]))
    if newest:
        return newest[-1].parent
    found = shutil.which("postgres")
    return None if found is None else Path(found).resolve().parent


@contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[Postgres]:
    """Start an empty server; with `durable`, it waits for the disk."""
    where = programs()
    if where is None:
        raise ConfigError(
            "this needs Postgres, and this machine has none; install it "
            "(apt-get install postgresql), or leave out what shares one"
        )
    directory = tempfile.mkdtemp(prefix="podium-postgres-")
    user = NOBODY if os.geteuid() == 0 else None
    try:
        if user is not None:
            os.chown(directory, user, user)
        _make(where, directory, user)
        server = _start(
            where, directory, user, SETTINGS if durable else SETTINGS | NON_DURABLE_SETTINGS
        )
        try:
            _until_ready(where, directory, server)
            yield Postgres(directory)
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait()
    finally:
        shutil.rmtree(directory)


def _make(where: Path, directory: str, user: int | None) -> None:
    made = subprocess.run(  # noqa: S603 -- a program of Postgres
        [str(where / "initdb"), "-D", f"{directory}/data", *_INITIAL],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        user=user,
        group=user,
    )
    if made.returncode != 0:
        output = made.stdout.decode(errors="replace").strip()[-400:]
        raise ConfigError(f"{where / 'initdb'} failed, so there is no Postgres to share: {output}")


def _start(
    where: Path, directory: str, user: int | None, settings: dict[str, str]
) -> subprocess.Popen[bytes]:
    words = [word for item in settings.items() for word in ("-c", "=".join(item))]
    return subprocess.Popen(  # noqa: S603 -- a program of Postgres
        [str(where / "postgres"), "-D", f"{directory}/data", "-k", directory, *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_ending_with_parent(),
        user=user,
        group=user,
    )


def _ending_with_parent() -> Callable[[], None] | None:
    """Return a function that makes Linux end the child when this process dies."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def end_with_parent() -> None:
        prctl(_DIES_WITH_PARENT, signal.SIGQUIT)

    return end_with_parent


def _until_ready(where: Path, directory: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + LONGEST_START_SECONDS
    asking = [str(where / "pg_isready"), "-q", "-h", directory, "-U", "postgres"]
    while subprocess.run(asking).returncode != 0:  # noqa: S603 -- a program of Postgres
        if server.poll() is not None or time.monotonic() > until:
            raise ConfigError("Postgres did not become ready; its output is above")
        time.sleep(BETWEEN_TRIES_SECONDS)
