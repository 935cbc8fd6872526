"""Runs in SQLite or Postgres: one implementation for both.

A store belongs to one event loop. Keys, quotas, feedback, audit log and idempotent requests live in
the same database, as attributes of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Generic, Self, TypeVar

from sqlalchemy import ColumnElement, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.errors import NotFound, StoreError, UsageError
from podium.core.run import Round, Run, StepRecord
from podium.store.base import (
    EVERY_RUN,
    LEASE_SECONDS,
    AbandonedRun,
    RunFilter,
    RunList,
    RunStore,
    RunSummary,
)
from podium.store.keys import charge_of
from podium.store.sql.claims import UNCLAIMED, ClaimTable, run_claimed
from podium.store.sql.database import Clock, Database
from podium.store.sql.queries import SUMMARIES, RunStatistics, filter_runs, find_run_id, read_run
from podium.store.sql.quotas import mark_deleted, prune_charges, record_usage
from podium.store.sql.records import (
    AuditLog,
    ChatStore,
    DisabledWorkerStore,
    FeedbackStore,
    IdempotencyStore,
    KeyStore,
)
from podium.store.sql.tables import (
    RUN_WORKERS,
    RUNS,
    Content,
    plain,
    write_contents,
    write_whole,
)

DELETE_BATCH: Final = 200
"""Runs deleted per transaction, so that no writer waits for long."""

MAX_BATCH: Final = 64

_Update = tuple[str, Content]
"""A run's id, and its new content."""


Item = TypeVar("Item")

_Waiting = tuple[Item, asyncio.Future[None]]


class Batcher(Generic[Item]):
    """Writes items of concurrent callers together. It belongs to one event loop.

    `write_all` writes several items or none: where it raises, `write_one` writes each by itself, so
    that a failing item costs no other.
    """

    def __init__(
        self,
        *,
        write_one: Callable[[Item], Awaitable[None]],
        write_all: Callable[[Sequence[Item]], Awaitable[None]],
    ) -> None:
        self._write_one = write_one
        self._write_all = write_all
        self._waiting: list[_Waiting[Item]] = []
        self._writer: asyncio.Task[None] | None = None

    async def add(self, item: Item) -> None:
        """Write the item, and wait until it is written."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((item, done))
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write())
        await done

    async def close(self) -> None:
        """Wait for pending writes."""
        if self._writer is not None:
            await asyncio.wait({self._writer})

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            batch = [item for item in batch if not item[1].cancelled()]
            try:
                await self._write_batch(batch)
            finally:  # no caller may wait for ever
                for _, done in batch:
                    done.cancel()

    async def _write_batch(self, batch: Sequence[_Waiting[Item]]) -> None:
        if len(batch) == 1:
            await self._write_alone(*batch[0])
        elif await self._is_written([item for item, _ in batch]):
            for _, done in batch:
                _resolve(done, None)
        else:
            await asyncio.gather(*(self._write_alone(*entry) for entry in batch))

    async def _is_written(self, items: Sequence[Item]) -> bool:
        try:
            await self._write_all(items)
        except Exception:  # noqa: BLE001 - each item by itself shows which one failed
            return False
        return True

    async def _write_alone(self, item: Item, done: asyncio.Future[None]) -> None:
        try:
            await self._write_one(item)
        except Exception as error:  # noqa: BLE001 - raised to the caller of `add`
            _resolve(done, error)
        else:
            _resolve(done, None)


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # the caller was cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


class SqlRunStore(RunStore):
    """Keeps runs in SQLite or Postgres. Create it with `open`."""

    def __init__(self, database: Database, lease_seconds: float = LEASE_SECONDS) -> None:
        self.database = database
        self._transaction = database.transaction
        self._clock = database.clock
        self._claims = ClaimTable(database.clock, lease_seconds)
        self._batcher = Batcher[_Update](write_one=self._write_one, write_all=self._write_all)
        self.audit = AuditLog(self._transaction, self._clock)
        self.chats = ChatStore(self._transaction, self._clock)
        self.disabled_workers = DisabledWorkerStore(self._transaction)
        self.feedback = FeedbackStore(self._transaction)
        self.idempotency = IdempotencyStore(self._transaction, self._clock, self._claims.is_alive)
        self.keys = KeyStore(self._transaction, self._clock)
        self.statistics = RunStatistics(self._transaction)

    @classmethod
    async def open(
        cls,
        where: str | Path,
        *,
        clock: Clock | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Self:
        """Open the database and create its tables if it is new."""
        database = await Database.open(where, clock=clock, lease_seconds=lease_seconds)
        return cls(database, lease_seconds)

    async def begin(self, run: Run) -> None:
        if run.id in self._claims.numbers:
            await self._write_one((run.id, run))  # a resumed run replaces its row
        else:
            await self._batcher.add((run.id, run))

    async def save(self, run_id: str, content: Round | StepRecord) -> None:
        await self._batcher.add((run_id, content))

    async def _write_one(self, update: _Update) -> None:
        run_id, content = update
        async with self._transaction() as connection:
            if isinstance(content, Run):
                await self._claims.begin(connection, content, self._clock())
            else:
                await self._claims.touch(connection, run_id, progress=_is_progress(content))
            await write_contents(connection, [update])

    async def _write_all(self, updates: Sequence[_Update]) -> None:
        begun = [content for _, content in updates if isinstance(content, Run)]
        running = {run_id for run_id, content in updates if not isinstance(content, Run)}
        progress = {run_id for run_id, content in updates if _is_progress(content)}
        async with self._transaction() as connection:
            await self._claims.touch_all(connection, running, progress)
            await self._claims.begin_new(connection, begun)
            await write_contents(connection, updates)
        for run in begun:
            self._claims.add(run.id, UNCLAIMED)

    async def finish(self, *runs: Run) -> None:
        """Write ended runs, replacing all that was written of them, and charge their keys."""
        await self._write_whole(runs)

    async def save_until(self, run: Run, until: str) -> None:
        await self._write_whole([run], expires_at=until)

    async def _write_whole(self, runs: Sequence[Run], expires_at: str | None = None) -> None:
        ids = [run.id for run in runs]
        try:
            async with self._transaction() as connection:
                now = self._clock()
                await self._claims.fence(connection, ids, now)
                await write_whole(connection, runs, now, expires_at)
                if charges := [charge_of(run, now[:10]) for run in runs if run.owner]:
                    await record_usage(connection, charges)
        except StoreError:
            if len(runs) == 1:  # several are written one by one after a failure
                self._claims.end(runs[0].id)
            raise
        self._claims.drop(ids)

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
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
        try:
            async with self._transaction() as connection:
                await self._claims.release(connection, run)
        finally:  # if it could not be written, the claim expires with its lease
            self._claims.drop([run.id])

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        async with self._transaction() as connection:
            await self.database.sync_clock(connection)
            return await self._claims.heartbeat(connection, run_ids)

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        async with self._transaction() as connection:
            await self.database.sync_clock(connection)
            return await self._claims.list_abandoned(connection, limit)

    async def is_claimed(self, run_id: str) -> bool:
        async with self._transaction() as connection:
            seen = await self._claims.read_state(connection, run_id)
        return seen is not None and self._claims.is_claimed(run_id, seen)

    async def load(self, run_id: str) -> Run:
        async with self._transaction() as connection:
            return await read_run(connection, await find_run_id(connection, run_id))

    async def list(
        self, wanted: RunFilter = EVERY_RUN, *, limit: int = 20, before: str | None = None
    ) -> RunList:
        if limit < 1:
            raise UsageError(f"limit is {limit}; expected at least 1")
        query = filter_runs(SUMMARIES, wanted, self.database.engine.dialect.name).limit(limit)
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
        async with self._transaction() as connection:
            deleted = await connection.execute(delete(RUNS).where(RUNS.c.id == plain(run_id)))
            if deleted.rowcount == 0:
                raise NotFound(f"run not found: {run_id!r}; deleting takes the full id")
            await mark_deleted(connection, [run_id], self._clock()[:10])
        await self.database.truncate_log()

    async def delete_before(self, moment: str) -> int:
        # An old run that claims to be running but was not written to since lost its process.
        running = (RUNS.c.status == "running") & (RUNS.c.updated_at >= moment)
        await self.chats.delete_before(moment)
        return await self._delete_all((RUNS.c.created_at < moment) & ~running)

    async def delete_expired(self) -> int:
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
            await self.database.truncate_log()
        return count

    async def close(self) -> None:
        self.database.is_closed = True  # no more transactions begin
        await self._batcher.close()
        await self.database.close()


def _is_progress(content: Content) -> bool:
    """True if a step is done, so that a resumed run need not repeat it."""
    return isinstance(content, StepRecord) and content.status == "done"


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
