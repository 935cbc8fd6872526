"""Runs in a database: the same code on SQLite and on Postgres.

A store belongs to one event loop. What a row holds is `documents`, what the tables are is
`tables` and `migrations`, which runs a list holds is `sql_listing`, where the database is is
`database`, and what can go wrong is `faults`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from sqlalchemy import (
    ColumnClause,
    ColumnElement,
    Integer,
    bindparam,
    delete,
    literal_column,
    select,
    tuple_,
    union_all,
)
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
from podium.store.sql.audit import SqlAuditLog
from podium.store.sql.claims import SqlClaims, taken
from podium.store.sql.database import (
    BUSY_SECONDS,
    DatabaseClock,
    DatabaseLocation,
    as_it_is,
    border,
    connect,
    is_only_readable,
    locate,
)
from podium.store.sql.feedback import SqlFeedbackStore, SqlIdempotencyStore
from podium.store.sql.keys import SqlKeyStore
from podium.store.sql.migrations import MIGRATIONS, Migration, migrate
from podium.store.sql.progress import News, SqlProgress, write_contents
from podium.store.sql.queries import (
    FIRST_SUMMARIES,
    SUMMARIES,
    SqlRunStatistics,
    narrowed,
    no_run,
    whole_id,
)
from podium.store.sql.quotas import note_gone, prune_charges, record_usage
from podium.store.sql.rows import OWN, Piece, assemble, plain, run_row
from podium.store.sql.tables import CLAIM_COLUMNS, ROUNDS, RUNS, STEPS, WORKERS, replacing

DELETED_AT_ONCE: Final = 200
"""How many runs are deleted in one transaction, so that no writer waits for long."""

_OWN: Final[ColumnClause[int]] = literal_column(str(OWN), Integer)

# One statement, so that a run which is being written meanwhile is read as of one moment.
_PIECES: Final = union_all(
    select(_OWN.label("round"), _OWN.label("step"), RUNS.c.document).where(
        RUNS.c.id == bindparam("run_id")
    ),
    select(ROUNDS.c.round, _OWN, ROUNDS.c.document).where(ROUNDS.c.run_id == bindparam("run_id")),
    select(STEPS.c.round, STEPS.c.step, STEPS.c.document).where(
        STEPS.c.run_id == bindparam("run_id")
    ),
).order_by("round", "step")


class SqlRunStore:
    """Keeps runs in SQLite or Postgres, and beside them the keys to a server. Made by `open`."""

    def __init__(
        self,
        place: DatabaseLocation,
        database: AsyncEngine,
        clock: Callable[[], str],
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._place = place
        self._database = database
        self._clock = clock
        self._claims = SqlClaims(clock, lease_seconds)
        self._closed = False
        self._under_way = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._up_to_date = True
        self._progress = SqlProgress(self._transaction, self._claims)
        self.keys = SqlKeyStore(self._transaction, clock)
        self.feedback = SqlFeedbackStore(self._transaction)
        self.statistics = SqlRunStatistics(self._transaction)
        self.audit = SqlAuditLog(self._transaction, clock)
        self.idempotency = SqlIdempotencyStore(self._transaction, clock, self._claims.is_held)

    @classmethod
    async def open(
        cls,
        where: str | Path,
        *,
        to_read: bool = False,
        clock: Callable[[], str] | None = None,
        lease_seconds: float = LEASE_SECONDS,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> Self:
        """Open the database, made where there is none, and bring its schema up to date.

        With `to_read` a file that can only be read is opened as it is. `lease_seconds` is how long
        a run counts as being performed after its process last said so. Without a `clock`, the time
        is that of a database which has a clock of its own, and else this machine's.
        """
        place = locate(where)
        shared = DatabaseClock() if clock is None and place.file is None else None
        if to_read and is_only_readable(place):
            place = as_it_is(place)
        with border(place.name):
            database = connect(place, lease_seconds=lease_seconds)
            store = cls(place, database, shared or clock or timestamp, lease_seconds)
        try:
            async with store._unhurried() as connection:
                version = await connection.run_sync(
                    migrate, migrations, place.name, read_only=place.read_only
                )
                store._up_to_date = store.feedback.is_up_to_date = version == len(migrations)
                await store._set_clock(connection)
        except BaseException:
            await store.close()
            raise
        return store

    async def begin(self, run: Run) -> None:
        """Write a run that begins or is resumed, with the rounds and steps it already has."""
        await self._progress.write(News(run.id, run))

    async def save_round(self, run_id: str, round_: Round) -> None:
        """Write a round that was planned. Its steps are not written: `step` does that."""
        await self._progress.write(News(run_id, round_))

    async def save_step(self, run_id: str, step: StepRecord) -> None:
        """Write a step that has ended. The plan of its round must have been written before."""
        await self._progress.write(News(run_id, step))

    async def finish(self, *runs: Run) -> None:
        """Write each run whole, in place of all that was written of it before."""
        await self._write_whole(runs)

    async def save_until(self, run: Run, until: str) -> None:
        """Write a run whole that is to be forgotten after that moment."""
        await self._write_whole([run], forget_after=until)

    async def _write_whole(self, runs: Sequence[Run], forget_after: str | None = None) -> None:
        ids = [run.id for run in runs]
        try:
            async with self._transaction() as connection:
                await self._claims.fence(connection, ids)
                await connection.execute(delete(ROUNDS).where(ROUNDS.c.run_id.in_(ids)))
                await self._write(connection, *runs, forget_after=forget_after)
                await self._charge(connection, runs)
        except StoreError:
            if len(runs) == 1:  # of several, each is written by itself then
                self._claims.end(runs[0].id)
            raise
        self._claims.drop(ids)

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
        """Take a run up for that process."""
        async with self._transaction() as connection:
            found = await whole_id(connection, run_id)
            seen = await self._claims.standing(connection, found)
            run = await self._assembled(connection, found)
        if seen is None or self._claims.is_claimed(found, seen):
            raise taken(run.id, run.process)
        # Reading and writing are two transactions, for SQLite would refuse to write in one that
        # has read something older.
        async with self._transaction() as connection:
            await self._claims.take(connection, run, seen, process, takeover=takeover)
        self._claims.has_taken(run.id, seen)  # not before: who is cut off meanwhile has nothing
        return run

    async def release_claim(self, run: Run) -> None:
        """Have a run that was claimed here, and has not begun again, be as it was before."""
        try:
            async with self._transaction() as connection:
                await self._claims.release_claim(connection, run)
        finally:  # what could not be written, others find when the lease is over
            self._claims.drop([run.id])

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Write down that these runs are still being performed."""
        async with self._transaction() as connection:
            await self._set_clock(connection)
            return await self._claims.heartbeat(connection, run_ids)

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        """Runs that were cut off with their processes."""
        async with self._transaction() as connection:
            await self._set_clock(connection)
            return await self._claims.list_abandoned(connection, limit)

    async def is_claimed(self, run_id: str) -> bool:
        """Whether a process is at work on the run with that whole id."""
        async with self._transaction() as connection:
            seen = await self._claims.standing(connection, run_id)
        return seen is not None and self._claims.is_claimed(run_id, seen)

    async def load(self, run_id: str) -> Run:
        """Give back a run by its id, by the beginning of it, or `last`."""
        async with self._transaction() as connection:
            return await self._assembled(connection, await whole_id(connection, run_id))

    async def list(
        self, wanted: RunFilter = EVERY_RUN, *, limit: int = 20, before: str | None = None
    ) -> RunList:
        """The newest of the wanted runs first, at most `limit` of them."""
        if limit < 1:
            raise UsageError(f"the limit is {limit}; ask for at least one run")
        self._check_known(wanted)
        summaries = SUMMARIES if self._up_to_date else FIRST_SUMMARIES
        query = narrowed(summaries, wanted, self._database.dialect.name).limit(limit)
        async with self._transaction() as connection:
            if before is not None:
                pivot = select(RUNS.c.created_at, RUNS.c.id).where(
                    RUNS.c.id == await whole_id(connection, before, wanted.owner)
                )
                query = query.where(tuple_(RUNS.c.created_at, RUNS.c.id) < pivot.scalar_subquery())
            rows = (await connection.execute(query)).mappings().all()
            workers = await self._workers(connection, [row["id"] for row in rows])
        return [RunSummary(**row, workers=tuple(workers.get(row["id"], ()))) for row in rows]

    async def delete(self, run_id: str) -> None:
        """Forget a run and all that it holds. Only its whole id will do."""
        async with self._transaction() as connection:
            gone = await connection.execute(delete(RUNS).where(RUNS.c.id == plain(run_id)))
            if gone.rowcount == 0:
                raise NotFound(f"no run has the whole id {run_id!r}, which deleting one takes")
            await note_gone(connection, [run_id], self._clock()[:10])
        await self._wipe()

    async def delete_before(self, moment: str) -> int:
        """Forget every run that was begun before that moment, and say how many."""
        # One that has been written to since is being performed; an old one that only says that it
        # is running was cut off by the end of its process, and nobody would ever delete it.
        performed = (RUNS.c.status == "running") & (RUNS.c.updated_at >= moment)
        return await self._delete_all((RUNS.c.created_at < moment) & ~performed)

    async def delete_expired(self) -> int:
        """Forget every run that was held for long enough, and say how many."""
        async with self._transaction() as connection:
            await prune_charges(connection, self._clock()[:10])
            await self.idempotency.prune(connection)
        performed = (RUNS.c.status == "running") & (RUNS.c.updated_at >= self._claims.lease_begin())
        return await self._delete_all((RUNS.c.forget_after < self._clock()) & ~performed)

    async def _delete_all(self, unwanted: ColumnElement[bool]) -> int:
        old = select(RUNS.c.id).where(unwanted)
        some = delete(RUNS).where(RUNS.c.id.in_(old.limit(DELETED_AT_ONCE))).returning(RUNS.c.id)
        count = 0
        while True:
            async with self._transaction() as connection:
                gone = (await connection.execute(some)).scalars().all()
                await note_gone(connection, gone, self._clock()[:10])
            count += len(gone)
            if len(gone) < DELETED_AT_ONCE:
                break
        if count:
            await self._wipe()
        return count

    async def close(self) -> None:
        """Close every connection. The store cannot be used afterwards."""
        self._closed = True
        await self._progress.close()
        await self._settled()
        with border(self._place.name):
            await self._database.dispose()

    async def _settled(self) -> None:
        """Let what is under way end, for so long: a connection in use would not be closed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_idle.wait(), BUSY_SECONDS)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._under_way += 1
        self._is_idle.clear()
        try:
            with border(self._place.name):
                yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_idle.set()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        if self._closed:  # SQLAlchemy would connect again, and nobody would close that
            raise StoreError(f"the store {self._place.name} is closed; open it again to use it")
        with self._at_work():
            async with self._database.begin() as connection:
                yield connection

    @asynccontextmanager
    async def _unhurried(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may take as long as it takes."""
        if self._place.file is not None:
            async with self._transaction() as connection:
                yield connection
            return
        with border(self._place.name):
            database = connect(self._place)
            try:
                async with database.begin() as connection:
                    yield connection
            finally:
                await database.dispose()

    async def _set_clock(self, connection: AsyncConnection) -> None:
        """Set a clock that goes by the database's: this machine may have slept since."""
        if isinstance(self._clock, DatabaseClock):
            await self._clock.set_by(connection)

    async def _wipe(self) -> None:
        """Leave no word of what was deleted beside the file either: until it is emptied, SQLite's
        log of changes holds the pages as they were. Postgres does so in its own time."""
        if self._place.file is None:
            return
        with self._at_work():
            async with self._database.connect() as connection:
                whole = await connection.execution_options(isolation_level="AUTOCOMMIT")
                await whole.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    async def _write(
        self, connection: AsyncConnection, *runs: Run, forget_after: str | None = None
    ) -> None:
        if not runs:
            return
        now = self._clock()
        rows = [run_row(run, now, forget_after) for run in runs]
        await connection.execute(replacing(connection.dialect.name, RUNS, CLAIM_COLUMNS), rows)
        await write_contents(connection, [News(run.id, run) for run in runs])

    async def _charge(self, connection: AsyncConnection, runs: Sequence[Run]) -> None:
        """Charge what the runs have used to the keys that own them, with the write of their end."""
        day = self._clock()[:10]
        await record_usage(connection, [charge_of(run, day) for run in runs if run.owner])

    async def _workers(
        self, connection: AsyncConnection, runs: Sequence[str]
    ) -> Mapping[str, Sequence[str]]:
        """Whom each of the runs used, in the order of their names."""
        if not runs or not self._up_to_date:
            return {}
        used = select(WORKERS.c.run_id, WORKERS.c.worker).where(WORKERS.c.run_id.in_(runs))
        found: dict[str, list[str]] = {}
        for run_id, worker in await connection.execute(used.distinct().order_by(WORKERS.c.worker)):
            found.setdefault(run_id, []).append(worker)
        return found

    def _check_known(self, wanted: RunFilter) -> None:
        """Refuse a filter on what a database of an older Podium does not know."""
        if not self._up_to_date and (wanted.worker is not None or wanted.owner is not None):
            raise StoreError(
                f"{self._place.name} was made by an older Podium and can only be read, so its runs "
                f"cannot be found by worker or owner; make it writable and open it once"
            )

    async def _assembled(self, connection: AsyncConnection, run_id: str) -> Run:
        rows = (await connection.execute(_PIECES, {"run_id": run_id})).all()
        if not rows:  # deleted since it was found
            raise no_run(run_id)
        return assemble(Piece(*row) for row in rows)
