"""Runs in SQLite or Postgres: one implementation for both.

A store belongs to one event loop. Keys, quotas, feedback, audit log and idempotent requests live in
the same database, as attributes of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from sqlalchemy import ColumnElement, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from podium.core.errors import NotFound, StoreError, UsageError
from podium.core.run import Round, Run, StepRecord, timestamp
from podium.store.base import (
    EVERY_RUN,
    LEASE_SECONDS,
    AbandonedRun,
    RunFilter,
    RunList,
    RunSummary,
)
from podium.store.quotas import charge_of
from podium.store.sql.claims import ClaimTable, RunWriter, run_claimed
from podium.store.sql.database import (
    BUSY_SECONDS,
    DatabaseClock,
    DatabaseLocation,
    connect,
    is_read_only,
    locate,
    open_read_only,
    store_errors,
)
from podium.store.sql.keys import KeyStore
from podium.store.sql.queries import (
    SUMMARIES,
    RunStatistics,
    filter_runs,
    find_run_id,
    read_run,
)
from podium.store.sql.quotas import mark_deleted, prune_charges, record_usage
from podium.store.sql.records import AuditLog, FeedbackStore, IdempotencyStore
from podium.store.sql.rows import RunUpdate, plain, run_row, write_contents
from podium.store.sql.tables import (
    CLAIM_COLUMNS,
    ROUNDS,
    RUN_WORKERS,
    RUNS,
    prepare_schema,
    upsert,
)

DELETE_BATCH: Final = 200
"""Runs deleted per transaction, so that no writer waits for long."""


class SqlRunStore:
    """Keeps runs in SQLite or Postgres. Create it with `open`."""

    def __init__(
        self,
        location: DatabaseLocation,
        database: AsyncEngine,
        clock: Callable[[], str],
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._location = location
        self._database = database
        self._clock = clock
        self._claims = ClaimTable(clock, lease_seconds)
        self._closed = False
        self._in_use = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._writer = RunWriter(self._transaction, self._claims)
        self.keys = KeyStore(self._transaction, clock)
        self.feedback = FeedbackStore(self._transaction)
        self.statistics = RunStatistics(self._transaction)
        self.audit = AuditLog(self._transaction, clock)
        self.idempotency = IdempotencyStore(self._transaction, clock, self._claims.is_alive)

    @classmethod
    async def open(
        cls,
        where: str | Path,
        *,
        to_read: bool = False,
        clock: Callable[[], str] | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Self:
        """Open the database and create its tables if it is new.

        With `to_read` a read-only file is opened as it is. Without a `clock` the time is the
        database's own on Postgres, and this machine's on SQLite.
        """
        location = locate(where)
        database_clock = DatabaseClock() if clock is None and location.file is None else None
        if to_read and is_read_only(location):
            location = open_read_only(location)
        with store_errors(location.name):
            database = connect(location, lease_seconds=lease_seconds)
            store = cls(location, database, database_clock or clock or timestamp, lease_seconds)
        try:
            async with store._long_transaction() as connection:
                await connection.run_sync(
                    prepare_schema, location.name, read_only=location.read_only
                )
                await store._sync_clock(connection)
        except BaseException:
            await store.close()
            raise
        return store

    async def begin(self, run: Run) -> None:
        """Write a run that begins or is resumed, with the rounds and steps it already has."""
        await self._writer.write(RunUpdate(run.id, run))

    async def save_round(self, run_id: str, round_: Round) -> None:
        """Write a planned round, without its steps."""
        await self._writer.write(RunUpdate(run_id, round_))

    async def save_step(self, run_id: str, step: StepRecord) -> None:
        """Write a finished step."""
        await self._writer.write(RunUpdate(run_id, step))

    async def finish(self, *runs: Run) -> None:
        """Write ended runs, replacing all that was written of them, and charge their keys."""
        await self._write_whole(runs)

    async def save_until(self, run: Run, until: str) -> None:
        """Write a run that expires at `until`."""
        await self._write_whole([run], expires_at=until)

    async def _write_whole(self, runs: Sequence[Run], expires_at: str | None = None) -> None:
        ids = [run.id for run in runs]
        try:
            async with self._transaction() as connection:
                await self._claims.fence(connection, ids)
                await connection.execute(delete(ROUNDS).where(ROUNDS.c.run_id.in_(ids)))
                if runs:
                    now = self._clock()
                    rows = [run_row(run, now, expires_at) for run in runs]
                    replace_runs = upsert(connection.dialect.name, RUNS, CLAIM_COLUMNS)
                    await connection.execute(replace_runs, rows)
                    await write_contents(connection, [RunUpdate(run.id, run) for run in runs])
                today = self._clock()[:10]
                charges = [charge_of(run, today) for run in runs if run.owner]
                await record_usage(connection, charges)
        except StoreError:
            if len(runs) == 1:  # several are written one by one after a failure
                self._claims.end(runs[0].id)
            raise
        self._claims.drop(ids)

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
        """Claim a run for a process."""
        async with self._transaction() as connection:
            found = await find_run_id(connection, run_id)
            seen = await self._claims.read_state(connection, found)
            run = await read_run(connection, found)
        if seen is None or self._claims.is_claimed(found, seen):
            raise run_claimed(run.id, run.process)
        # Reading and writing are two transactions: SQLite refuses to write in one that has read
        # an older state.
        async with self._transaction() as connection:
            await self._claims.claim(connection, run, seen, process, takeover=takeover)
        self._claims.add(run.id, seen.claim + 1)  # not before the commit
        return run

    async def release_claim(self, run: Run) -> None:
        """Restore a run that was claimed here and has not begun again."""
        try:
            async with self._transaction() as connection:
                await self._claims.release(connection, run)
        finally:  # if it could not be written, the claim expires with its lease
            self._claims.drop([run.id])

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Renew the leases of these runs; return those that another process has claimed."""
        async with self._transaction() as connection:
            await self._sync_clock(connection)
            return await self._claims.heartbeat(connection, run_ids)

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        """List running runs whose process died."""
        async with self._transaction() as connection:
            await self._sync_clock(connection)
            return await self._claims.list_abandoned(connection, limit)

    async def is_claimed(self, run_id: str) -> bool:
        """True if a live process performs the run with that full id."""
        async with self._transaction() as connection:
            seen = await self._claims.read_state(connection, run_id)
        return seen is not None and self._claims.is_claimed(run_id, seen)

    async def load(self, run_id: str) -> Run:
        """Load a run by its id, the beginning of it, or `last`."""
        async with self._transaction() as connection:
            return await read_run(connection, await find_run_id(connection, run_id))

    async def list(
        self, wanted: RunFilter = EVERY_RUN, *, limit: int = 20, before: str | None = None
    ) -> RunList:
        """List the newest runs that match the filter."""
        if limit < 1:
            raise UsageError(f"limit is {limit}; expected at least 1")
        query = filter_runs(SUMMARIES, wanted, self._database.dialect.name).limit(limit)
        async with self._transaction() as connection:
            if before is not None:
                pivot = select(RUNS.c.created_at, RUNS.c.id).where(
                    RUNS.c.id == await find_run_id(connection, before, wanted.owner)
                )
                query = query.where(tuple_(RUNS.c.created_at, RUNS.c.id) < pivot.scalar_subquery())
            rows = (await connection.execute(query)).mappings().all()
            workers = await _workers_of(connection, [row["id"] for row in rows])
        return [RunSummary(**row, workers=tuple(workers.get(row["id"], ()))) for row in rows]

    async def delete(self, run_id: str) -> None:
        """Delete a run by its full id."""
        async with self._transaction() as connection:
            deleted = await connection.execute(delete(RUNS).where(RUNS.c.id == plain(run_id)))
            if deleted.rowcount == 0:
                raise NotFound(f"run not found: {run_id!r}; deleting takes the full id")
            await mark_deleted(connection, [run_id], self._clock()[:10])
        await self._truncate_log()

    async def delete_before(self, moment: str) -> int:
        """Delete runs created before the moment, except those still running; return how many."""
        # An old run that claims to be running but was not written to since lost its process.
        running = (RUNS.c.status == "running") & (RUNS.c.updated_at >= moment)
        return await self._delete_all((RUNS.c.created_at < moment) & ~running)

    async def delete_expired(self) -> int:
        """Delete expired runs, except those still running; return how many."""
        async with self._transaction() as connection:
            await prune_charges(connection, self._clock()[:10])
            await self.idempotency.prune(connection)
        running = (RUNS.c.status == "running") & (RUNS.c.updated_at >= self._claims.lease_start())
        return await self._delete_all((RUNS.c.expires_at < self._clock()) & ~running)

    async def _delete_all(self, unwanted: ColumnElement[bool]) -> int:
        old = select(RUNS.c.id).where(unwanted).limit(DELETE_BATCH)
        statement = delete(RUNS).where(RUNS.c.id.in_(old)).returning(RUNS.c.id)
        count = 0
        while True:
            async with self._transaction() as connection:
                deleted = (await connection.execute(statement)).scalars().all()
                await mark_deleted(connection, deleted, self._clock()[:10])
            count += len(deleted)
            if len(deleted) < DELETE_BATCH:
                break
        if count:
            await self._truncate_log()
        return count

    async def close(self) -> None:
        """Close every connection, after transactions in progress."""
        self._closed = True
        await self._writer.close()
        with suppress(TimeoutError):  # a connection in use would not be closed
            await asyncio.wait_for(self._idle.wait(), BUSY_SECONDS)
        with store_errors(self._location.name):
            await self._database.dispose()

    @contextmanager
    def _using_database(self) -> Iterator[None]:
        self._in_use += 1
        self._idle.clear()
        try:
            with store_errors(self._location.name):
                yield
        finally:
            self._in_use -= 1
            if not self._in_use:
                self._idle.set()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        if self._closed:  # SQLAlchemy would connect again, and leak that connection
            raise StoreError(f"the store {self._location.name} is closed; open it again to use it")
        with self._using_database():
            async with self._database.begin() as connection:
                yield connection

    @asynccontextmanager
    async def _long_transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction without the timeouts of a lease."""
        if self._location.file is not None:
            async with self._transaction() as connection:
                yield connection
            return
        with store_errors(self._location.name):
            database = connect(self._location)
            try:
                async with database.begin() as connection:
                    yield connection
            finally:
                await database.dispose()

    async def _sync_clock(self, connection: AsyncConnection) -> None:
        if isinstance(self._clock, DatabaseClock):  # this machine may have slept since
            await self._clock.sync(connection)

    async def _truncate_log(self) -> None:
        """Erase deleted content from SQLite's write-ahead log too. Postgres vacuums by itself."""
        if self._location.file is None:
            return
        with self._using_database():
            async with self._database.connect() as connection:
                whole = await connection.execution_options(isolation_level="AUTOCOMMIT")
                await whole.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


async def _workers_of(
    connection: AsyncConnection, run_ids: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    """Return the workers of each run, sorted by name."""
    if not run_ids:
        return {}
    used = select(RUN_WORKERS.c.run_id, RUN_WORKERS.c.worker).where(
        RUN_WORKERS.c.run_id.in_(run_ids)
    )
    found: dict[str, list[str]] = {}
    for run_id, worker in await connection.execute(used.distinct().order_by(RUN_WORKERS.c.worker)):
        found.setdefault(run_id, []).append(worker)
    return found
