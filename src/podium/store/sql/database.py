"""Location, connections, clock and errors of a store's database.

A location is a file, `sqlite:///FILE`, or `postgresql://USER:PASSWORD@HOST/NAME`. Prompts are
private: a new file and its directory are readable by their owner only.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import URL, event, func, make_url, select
from sqlalchemy.exc import ArgumentError, IntegrityError, InvalidatePoolError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from podium._util.process import is_gone
from podium.core.errors import ConfigError, StoreError, install_command
from podium.core.run import timestamp
from podium.store.sql.tables import prepare_schema

_FULL: Final = "the disk is full; free some space"
_READ_ONLY: Final = "it cannot be written; make the file and its directory writable"
_LOCKED: Final = "another process keeps it locked; wait for it to end"
_DAMAGED: Final = "it is damaged, or no Podium database; move it aside or restore a backup"
_UNOPENABLE: Final = "it cannot be opened; check that its directory exists and can be written"
_TOO_LARGE: Final = "a reply is larger than the database accepts; cap max_output_tokens"
_ORPHANED: Final = "a step was written before the plan of its round, or its run was deleted"
_NO_DIRECTORY: Final = "its directory is a file; name another location"
_NO_FILE: Final = "it is a directory; name a file"
_TIMEOUT: Final = "timeout: it did not answer in time; check that it is running and reachable"
_IO_ERROR: Final = "disk I/O error; check the disk"

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
    sqlite3.SQLITE_IOERR: _IO_ERROR,
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
def store_errors(location: str) -> Iterator[None]:
    """Turn errors of the database into `StoreError`."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StoreError(f"cannot use the store {location}: {_explain(error)}") from error


def _explain(error: Exception) -> str:
    if isinstance(error, IntegrityError):
        return _ORPHANED
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        primary = code & 0xFF  # the higher bits distinguish kinds of one error
        return _SQLITE.get(primary) or _first_line(cause)
    if isinstance(cause, TimeoutError):
        return _TIMEOUT
    if isinstance(cause, OSError):
        return _SYSTEM.get(cause.errno or 0) or _first_line(cause)
    state = getattr(cause, "sqlstate", None)
    return _POSTGRES.get(state or "") or _first_line(cause)


def _first_line(cause: BaseException) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


class DatabaseClock:
    """The time of the database, measured once and advanced by this machine's monotonic clock, so
    that setting this machine's clock ends no lease."""

    def __init__(
        self,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._start = now() - timedelta(seconds=seconds())

    def __call__(self) -> str:
        return timestamp(self._start + timedelta(seconds=self._seconds()))

    async def sync(self, connection: AsyncConnection) -> None:
        before = self._seconds()
        theirs: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
        self._start = theirs - timedelta(seconds=(before + self._seconds()) / 2)


Clock = Callable[[], str]

BUSY_SECONDS: Final = 5
"""How long a write waits for another process's write."""

CREATE_SECONDS: Final = 5
"""How long opening a new file waits for another process that creates it."""

CONNECTIONS: Final = 15
"""The most connections of a process to Postgres. They stay open."""

PING_AFTER_SECONDS: Final = 1.0
"""A connection idle for longer is pinged before it is used."""

WAIT_SECONDS: Final = 60
"""The longest wait for a free connection."""

TIMEOUTS_PER_LEASE: Final = 5
MIN_TIMEOUT_SECONDS: Final = 2.0
"""A shared database must answer within a fifth of a lease, so that leases can still be renewed, but
always has this many seconds."""

IDLE_SECONDS: Final = 30.0
"""The default limit on idle time within a transaction."""

_POSTGRES_SCHEMES: Final = ("postgres", "postgresql", "postgresql+asyncpg")
_SQLITE_SCHEMES: Final = ("sqlite", "sqlite+aiosqlite")


@dataclass(frozen=True, slots=True)
class DatabaseLocation:
    """The URL of a database, its file if it is SQLite, and its name in messages."""

    url: URL
    file: Path | None
    name: str


def locate(where: str | Path) -> DatabaseLocation:
    """Parse the location of a store; raises `ConfigError`. Touches nothing."""
    text = str(where)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _file(text)
    if scheme in _SQLITE_SCHEMES and rest.startswith("/"):
        return _file(rest.removeprefix("/"))
    if scheme in _POSTGRES_SCHEMES:
        return _server(text)
    raise ConfigError(
        f"unsupported store {scheme}://…; expected a file, sqlite:///FILE or postgresql://HOST/NAME"
    )


def _file(text: str) -> DatabaseLocation:
    if text in ("", ":memory:"):
        raise ConfigError(f"a store cannot be {text!r}; name a file")
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
    if "@" in (url.host or ""):  # the end of a password, which must not be shown
        raise _unreadable()
    query = dict(url.query)
    if "sslmode" in query:  # the name that libpq uses
        query["ssl"] = query.pop("sslmode")
        url = url.set(query=query)
    return DatabaseLocation(url, None, url.render_as_string(hide_password=True))


def _unreadable() -> ConfigError:
    return ConfigError(
        "the store's address is not of the form postgresql://USER:PASSWORD@HOST/NAME; "
        "write an @ in the password as %40"
    )


def connect(location: DatabaseLocation, *, lease_seconds: float | None = None) -> AsyncEngine:
    """Create an engine that connects lazily; a missing file is created.

    With `lease_seconds`, Postgres ends a session that idles in a transaction for half a lease, so
    that a paused process releases its locks, and must answer in time for leases to be renewed.
    """
    if location.file is None:
        idle_seconds = IDLE_SECONDS if lease_seconds is None else lease_seconds / 2
        settings = {"idle_in_transaction_session_timeout": f"{max(1, round(idle_seconds * 1000))}"}
        limits: dict[str, float] = {}
        if lease_seconds is not None:
            seconds = max(MIN_TIMEOUT_SECONDS, lease_seconds / TIMEOUTS_PER_LEASE)
            limits = {"command_timeout": seconds, "timeout": seconds}
        server = create_async_engine(
            location.url,
            hide_parameters=True,
            pool_size=CONNECTIONS,
            max_overflow=0,  # a connection above the pool would be opened anew each time
            pool_timeout=min(WAIT_SECONDS, max(MIN_TIMEOUT_SECONDS, idle_seconds)),
            connect_args={"server_settings": settings, **limits},
        )
        _ping_idle_connections(server)
        return server
    _make_private(location.file)
    # One connection: SQLite has one writer at a time, and this queue is fair, while SQLite's own
    # lock is polled and may starve a writer. Hidden parameters keep prompts out of messages.
    database = create_async_engine(
        location.url, hide_parameters=True, pool_size=1, max_overflow=0, pool_timeout=WAIT_SECONDS
    )
    event.listen(database.sync_engine, "connect", _configure_sqlite)
    return database


def _ping_idle_connections(database: AsyncEngine) -> None:
    """Ping idle connections before use, and reconnect all if one is dead. SQLAlchemy's own
    pre-ping pings every time, which is three of the eight round trips of a small write."""
    engine = database.sync_engine

    def on_return(connection: Any, record: Any) -> None:
        record.info["returned"] = time.monotonic()

    def on_checkout(connection: Any, record: Any, _: Any) -> None:
        unused = time.monotonic() - record.info.get("returned", time.monotonic())
        if unused < PING_AFTER_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error

    event.listen(engine, "checkin", on_return)
    event.listen(engine, "checkout", on_checkout)


def _make_private(file: Path) -> None:
    """Create the file for its owner only; SQLite gives its side files the same permissions."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))


def _configure_sqlite(connection: Any, _record: object) -> None:
    # SQLite's own lower() knows only ASCII; with this one a search for ägypten finds Ägypten.
    connection.create_function("lower", 1, _lowercase, deterministic=True)
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    _use_wal(connection, cursor)
    # In WAL mode NORMAL loses nothing when the process dies and at most the last writes when the
    # machine does; FULL would wait for the disk at each step.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA secure_delete = ON")  # a deleted run is overwritten, not only unlinked
    cursor.close()


def _use_wal(connection: Any, cursor: Any) -> None:
    """Switch to write-ahead logging, so that readers and the writer do not block each other.

    SQLite does not wait for its lock here, so a concurrent switch of a new file is retried.
    """
    until = time.monotonic() + CREATE_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= until:
                raise
            connection.run_async(lambda _: asyncio.sleep(0.01))


def _lowercase(text: str | None) -> str | None:
    return None if text is None else text.lower()


class Database:
    """An open database: its transactions, and its clock.

    Without a `clock` the time is the database's own on Postgres, and this machine's on SQLite.
    """

    def __init__(
        self,
        location: DatabaseLocation,
        engine: AsyncEngine,
        clock: Clock | None,
        lease_seconds: float,
    ) -> None:
        self.location = location
        self.engine = engine
        self.clock = clock or (timestamp if location.file else DatabaseClock())
        self._lease_seconds = lease_seconds
        self.is_closed = False
        self._in_use = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @classmethod
    async def open(cls, where: str | Path, *, clock: Clock | None, lease_seconds: float) -> Self:
        """Open the database and create its tables if it is new."""
        location = locate(where)
        with store_errors(location.name):
            engine = connect(location, lease_seconds=lease_seconds)
        database = cls(location, engine, clock, lease_seconds)
        try:
            async with database._long_transaction() as connection:
                await connection.run_sync(prepare_schema, location.name)
                await database.sync_clock(connection)
        except BaseException:
            await database.close()
            raise
        return database

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction, and commit it at the end; raises `StoreError`."""
        if self.is_closed:  # SQLAlchemy would connect again, and leak that connection
            raise StoreError(f"the store {self.location.name} is closed; open it again to use it")
        with self._count_use():
            async with self.engine.begin() as connection:
                yield connection

    async def sync_clock(self, connection: AsyncConnection) -> None:
        """Read the time of the database again: this machine may have slept since."""
        if isinstance(self.clock, DatabaseClock):
            await self.clock.sync(connection)

    def time_before(self, seconds: float) -> str:
        """Return the timestamp of so many seconds ago."""
        return timestamp(datetime.fromisoformat(self.clock()) - timedelta(seconds=seconds))

    def lease_start(self) -> str:
        """Return the time since when a heartbeat keeps a claim valid."""
        return self.time_before(self._lease_seconds)

    def is_alive(self, process: str, updated_at: str) -> bool:
        """True if the process sent a heartbeat within its lease and is not known to be gone."""
        return updated_at >= self.lease_start() and not is_gone(process)

    async def truncate_log(self) -> None:
        """Erase deleted content from SQLite's write-ahead log too. Postgres vacuums by itself."""
        if self.location.file is None:
            return
        with self._count_use():
            async with self.engine.connect() as connection:
                whole = await connection.execution_options(isolation_level="AUTOCOMMIT")
                await whole.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    async def close(self) -> None:
        """Close every connection, after transactions in progress."""
        self.is_closed = True
        with suppress(TimeoutError):  # a connection in use would not be closed
            await asyncio.wait_for(self._idle.wait(), BUSY_SECONDS)
        with store_errors(self.location.name):
            await self.engine.dispose()

    @contextmanager
    def _count_use(self) -> Iterator[None]:
        self._in_use += 1
        self._idle.clear()
        try:
            with store_errors(self.location.name):
                yield
        finally:
            self._in_use -= 1
            if not self._in_use:
                self._idle.set()

    @asynccontextmanager
    async def _long_transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction without the timeouts of a lease."""
        if self.location.file is not None:
            async with self.transaction() as connection:
                yield connection
            return
        with store_errors(self.location.name):
            engine = connect(self.location)
            try:
                async with engine.begin() as connection:
                    yield connection
            finally:
                await engine.dispose()


class DatabasePart:
    """What a store keeps in the database beside the runs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._transaction = database.transaction
        self._clock = database.clock
