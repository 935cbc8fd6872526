"""Where a store's database is, and how it is opened.

A place is a file, `sqlite:///FILE`, or `postgresql://USER:PASSWORD@HOST/NAME`. Prompts are
private: a file that is made here can be read by its owner only, and so can its directory.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, event, func, make_url, select
from sqlalchemy.exc import ArgumentError, IntegrityError, InvalidatePoolError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from podium.core.errors import ConfigError, StoreError, install_command
from podium.core.run import timestamp

_FULL: Final = "the disk is full; free some space"
_READ_ONLY: Final = "it cannot be written; make the file and its directory writable"
_LOCKED: Final = "another process keeps it locked; wait for it to end"
_DAMAGED: Final = "it is damaged, or no Podium database at all; move it away or restore a copy"
_UNOPENABLE: Final = "it cannot be opened; check that its directory exists and can be written"
_TOO_LARGE: Final = "a reply is larger than the database takes; cap max_output_tokens"
_ORPHANED: Final = "a step was written before the plan of its round, or its run was deleted"
_NO_DIRECTORY: Final = "what should be its directory is a file; name another place for it"
_NO_FILE: Final = "it is a directory; name a file"
_SILENT: Final = "it did not answer in time; check that it is well and can be reached"
_FAULTY_DISK: Final = "the disk did not do what it was asked; check the disk"

_SQLITE: Final = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_PERM: _READ_ONLY,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CANTOPEN: _UNOPENABLE,
    sqlite3.SQLITE_TOOBIG: _TOO_LARGE,
    sqlite3.SQLITE_IOERR: _FAULTY_DISK,
}

_SYSTEM: Final = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
    errno.EEXIST: _NO_DIRECTORY,
    errno.ENOTDIR: _NO_DIRECTORY,
    errno.EISDIR: _NO_FILE,
}

_POSTGRES: Final = {
    "53100": _FULL,
    "25006": _READ_ONLY,
    "42501": _READ_ONLY,
    "55P03": _LOCKED,
}


@contextmanager
def border(where: str) -> Iterator[None]:
    """Turn every fault of the database behind `where` into a `StoreError`."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(f"cannot use the store {where}: {_advice(error)}") from error


def _advice(error: Exception) -> str:
    if isinstance(error, IntegrityError):
        return _ORPHANED
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        primary = code & 0xFF  # the higher bits tell kinds of the same fault apart
        return _SQLITE.get(primary) or _in_its_own_words(cause)
    if isinstance(cause, TimeoutError):
        return _SILENT
    if isinstance(cause, OSError):
        return _SYSTEM.get(cause.errno or 0) or _in_its_own_words(cause)
    state = getattr(cause, "sqlstate", None)
    return _POSTGRES.get(state or "") or _in_its_own_words(cause)


def _in_its_own_words(cause: BaseException) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


def _now() -> datetime:
    return datetime.now(UTC)


class DatabaseClock:
    """Tells the time as the database has it, once it was `set_by` that; asking costs nothing.

    It goes by the seconds that pass here, and not by this machine's own time: where that is set
    right meanwhile, nobody's lease is over.
    """

    def __init__(
        self,
        now: Callable[[], datetime] = _now,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._start = now() - timedelta(seconds=seconds())

    def __call__(self) -> str:
        """Now, as it is stored."""
        return timestamp(self._start + timedelta(seconds=self._seconds()))

    async def set_by(self, connection: AsyncConnection) -> None:
        """Find out what time the database has."""
        before = self._seconds()
        theirs: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
        self._start = theirs - timedelta(seconds=(before + self._seconds()) / 2)


BUSY_SECONDS: Final = 5
"""How long a write waits for another process to finish its own."""

MAKING_SECONDS: Final = 5
"""How long opening a new file waits for another process that is making it, too."""

CONNECTIONS: Final = 15
"""The most that a process has to a Postgres; who wants one more waits. They stay open."""

TRIED_AFTER_SECONDS: Final = 1.0
"""A connection that was not used for so long is tried before it is used again: no database is
away and back in less."""

WAITING_SECONDS: Final = 60
"""How long somebody waits for a connection at the most."""

ANSWERS_PER_LEASE: Final = 5
LEAST_SECONDS: Final = 2.0
"""A database that shares its runs must answer so often in a lease, or it counts as away: more often
than processes say that they are at work. However short leases are, it has so many seconds."""

IDLE_SECONDS: Final = 30.0
"""How long a process may be silent in the middle of a transaction, unless it is said otherwise."""

_POSTGRES_DATABASE: Final = ("postgres", "postgresql", "postgresql+asyncpg")
_SQLITE_DATABASE: Final = ("sqlite", "sqlite+aiosqlite")


@dataclass(frozen=True, slots=True)
class DatabaseLocation:
    """A database: its address, its file where it is one, and its name in messages."""

    url: URL
    file: Path | None
    name: str
    read_only: bool = False


def locate(where: str | Path) -> DatabaseLocation:
    """Understand what a person wrote. Touches nothing."""
    text = str(where)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _file(text)
    if scheme in _SQLITE_DATABASE and rest.startswith("/"):
        return _file(rest.removeprefix("/"))
    if scheme in _POSTGRES_DATABASE:
        return _server(text)
    raise ConfigError(
        f"a store is a file, sqlite:///FILE or postgresql://HOST/NAME, and not {scheme}://…"
    )


def _file(text: str) -> DatabaseLocation:
    if text in ("", ":memory:"):
        raise ConfigError(f"a store is a file that stays, and {text!r} is none; name a file")
    file = Path(text).expanduser()
    return DatabaseLocation(URL.create("sqlite+aiosqlite", database=str(file)), file, str(file))


def _server(text: str) -> DatabaseLocation:
    if find_spec("asyncpg") is None:
        raise ConfigError(
            f"a store on Postgres needs the extra postgres; {install_command('postgres')}"
        )
    try:
        url = make_url(text).set(drivername="postgresql+asyncpg")
    except (ArgumentError, ValueError) as error:
        raise _unreadable() from error
    if "@" in (url.host or ""):  # the end of a password, which must not be shown as a host
        raise _unreadable()
    query = dict(url.query)
    if "sslmode" in query:  # what every other client of Postgres calls it
        query["ssl"] = query.pop("sslmode")
        url = url.set(query=query)
    return DatabaseLocation(url, None, url.render_as_string(hide_password=True))


def _unreadable() -> ConfigError:
    return ConfigError(
        "the store's address is not of the form postgresql://USER:PASSWORD@HOST/NAME; "
        "write an @ in the password as %40"
    )


def connect(place: DatabaseLocation, *, lease_seconds: float | None = None) -> AsyncEngine:
    """A lazily connecting handle on the database; a new file is made on the way.

    With `lease_seconds` a Postgres cuts off whoever is silent for half of that in the middle of a
    transaction: a process that was paused there must not keep others from what it had locked. And
    a Postgres that is silent is waited for only so long that the lease can still be renewed.
    """
    if place.file is None:
        idle_seconds = IDLE_SECONDS if lease_seconds is None else lease_seconds / 2
        settings = {"idle_in_transaction_session_timeout": f"{max(1, round(idle_seconds * 1000))}"}
        limits: dict[str, float] = {}
        if lease_seconds is not None:
            seconds = max(LEAST_SECONDS, lease_seconds / ANSWERS_PER_LEASE)
            limits = {"command_timeout": seconds, "timeout": seconds}
        server = create_async_engine(
            place.url,
            hide_parameters=True,
            pool_size=CONNECTIONS,
            max_overflow=0,  # one above the pool would be made anew each time, which takes longer
            pool_timeout=min(WAITING_SECONDS, max(LEAST_SECONDS, idle_seconds)),
            connect_args={"server_settings": settings, **limits},
        )
        _try_unused(server)
        return server
    if not place.read_only:
        _make_private(place.file)
    # One connection: SQLite has one writer at a time anyway, and waiting for a place in this
    # queue is fair and free, while SQLite's own lock is polled and may starve somebody.
    # Parameters are hidden because they would put prompts into error messages.
    database = create_async_engine(
        place.url, hide_parameters=True, pool_size=1, max_overflow=0, pool_timeout=WAITING_SECONDS
    )
    prepare = _prepare_reading if place.read_only else _prepare_sqlite
    event.listen(database.sync_engine, "connect", prepare)
    return database


def _try_unused(database: AsyncEngine) -> None:
    """Have a connection that nobody used for a moment tried before it is handed out, and every one
    made anew where it is dead: the database was away. SQLAlchemy would try each one every time,
    which is three of the eight times that a small write goes there and back."""
    engine = database.sync_engine

    def returned(connection: Any, record: Any) -> None:
        record.info["returned"] = time.monotonic()

    def handed_out(connection: Any, record: Any, _: Any) -> None:
        unused = time.monotonic() - record.info.get("returned", time.monotonic())
        if unused < TRIED_AFTER_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error

    event.listen(engine, "checkin", returned)
    event.listen(engine, "checkout", handed_out)


def is_only_readable(place: DatabaseLocation) -> bool:
    """Whether the database is a file that is there and cannot be written, or has no room beside
    it for the files that SQLite writes meanwhile."""
    file = place.file
    if file is None or not file.is_file():
        return False
    effective = os.access in os.supports_effective_ids
    places = (file, file.absolute().parent)
    return not all(os.access(place, os.W_OK, effective_ids=effective) for place in places)


def as_it_is(place: DatabaseLocation) -> DatabaseLocation:
    """The same file, opened without writing anything to it or beside it."""
    assert place.file is not None, "only a file can be opened so"
    options = {"mode": "ro", "uri": "true"}
    if not Path(f"{place.file}-wal").exists():  # SQLite would make one, be it to read nothing
        options["immutable"] = "1"
    address = place.file.absolute().as_uri()
    url = URL.create("sqlite+aiosqlite", database=address, query=options)
    return replace(place, url=url, read_only=True)


def _make_private(file: Path) -> None:
    """Make what is missing. SQLite gives the files beside its own the same permissions."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))


def _prepare_reading(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    cursor.close()
    # SQLite's own lower() knows only ASCII; with this one a search for ägypten finds Ägypten.
    connection.create_function("lower", 1, _lower, deterministic=True)


def _prepare_sqlite(connection: Any, record: object) -> None:
    _prepare_reading(connection, record)
    cursor = connection.cursor()
    _use_wal(connection, cursor)
    # In WAL mode NORMAL survives the death of the process whole, and that of the machine without
    # damage, less perhaps the last writes; FULL would wait for the disk at each step.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA secure_delete = ON")  # a deleted run is overwritten, not just unlinked
    cursor.close()


def _use_wal(connection: Any, cursor: Any) -> None:
    """Let readers and the writer not wait for each other.

    Changing the mode of a new file is the one thing for which SQLite does not wait while another
    process does the same, so the waiting is done here.
    """
    until = time.monotonic() + MAKING_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= until:
                raise
            connection.run_async(lambda _: asyncio.sleep(0.01))


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()
