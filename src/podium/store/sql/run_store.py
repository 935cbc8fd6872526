"""Runs in SQLite or Postgres: one implementation for both, with the claims of processes on them.

A store belongs to one event loop. Keys, quotas, feedback, audit log and idempotent requests live in
the same database, as attributes of the store.

A running run has a claim: a number that grows each time a process claims the run. Each write names
the number that its process holds; after another process has claimed the run, nothing is written and
`RunTakenOver` is raised. A paused process therefore cannot overwrite what was done in its place. A
claim is valid while its process sends heartbeats: one that misses them for the time of a lease
loses its runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from sqlalchemy import ColumnElement, case, delete, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.errors import Conflict, NotFound, RunTakenOver, StoreError, UsageError
from podium.core.run import Round, Run, StepRecord
from podium.store.base import (
    EVERY_RUN,
    LEASE_SECONDS,
    RECENT_HOURS,
    AbandonedRun,
    RunFilter,
    RunList,
    RunStore,
    RunSummary,
)
from podium.store.keys import charge_of
from podium.store.sql.database import Clock, Database
from podium.store.sql.queries import (
    SUMMARIES,
    RunStatistics,
    filter_runs,
    find_run_id,
    read_run,
    run_not_found,
)
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
    CLAIM_COLUMNS,
    IS_RUNNING,
    RUN_WORKERS,
    RUNS,
    Content,
    dialect_insert,
    replace_runs,
    run_row,
    storable_text,
    upsert,
    write_content,
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

    `write` writes all or none. Where it raises, each item is written by itself, so that a failing
    item costs no other.
    """

    def __init__(self, write: Callable[[Sequence[Item]], Awaitable[None]]) -> None:
        self._write = write
        self._waiting: list[_Waiting[Item]] = []
        self._writer: asyncio.Task[None] | None = None

    async def add(self, item: Item) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((item, done))
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write_waiting())
        await done

    async def close(self) -> None:
        if self._writer is not None:
            await asyncio.wait({self._writer})

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            try:
                await self._write_batch([item for item in batch if not item[1].cancelled()])
            finally:  # no caller may wait for ever
                for _, done in batch:
                    done.cancel()

    async def _write_batch(self, batch: Sequence[_Waiting[Item]]) -> None:
        if not batch:
            return
        try:
            await self._write([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - raised to the caller of `add`
            if len(batch) > 1:
                await asyncio.gather(*(self._write_batch([entry]) for entry in batch))
            else:
                _resolve(batch[0][1], error)
        else:
            for _, done in batch:
                _resolve(done, None)


def _resolve(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # the caller was cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


SCANNED_RUNS: Final = 1000
"""The most running runs that one search for abandoned ones looks at."""

MAX_LOST: Final = 1000
"""The most runs lost to other processes whose late writes are still refused."""

UNCLAIMED: Final = 0
"""The claim of a run that was begun and never claimed again."""


class ClaimState(NamedTuple):
    """The claim on a run as stored."""

    status: str
    updated_at: str
    claim_number: int
    process: str


class ClaimTable:
    """The claims of one store, and its view of those of others."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clock = database.clock
        self.numbers: dict[str, int] = {}
        """The claims of runs that were begun or claimed here."""
        self._ended: set[str] = set()
        self._lost: dict[str, None] = {}

    def is_claimed(self, run_id: str, seen: ClaimState) -> bool:
        """True if this store or a live process holds the run."""
        if seen.status != "running":
            return False
        return self._is_held(run_id, seen.claim_number) or self._database.is_alive(
            seen.process, seen.updated_at
        )

    def _is_held(self, run_id: str, claim: int) -> bool:
        return self.numbers.get(run_id) == claim and run_id not in self._ended

    def drop(self, run_ids: Iterable[str]) -> None:
        """Forget the claims on runs that have ended."""
        for run_id in run_ids:
            self.numbers.pop(run_id, None)
            self._ended.discard(run_id)
            self._lost.pop(run_id, None)

    def end(self, run_id: str) -> None:
        """Release a run whose end could not be written; the number stays for a later write."""
        if run_id in self.numbers:
            self._ended.add(run_id)

    async def read_state(self, connection: AsyncConnection, run_id: str) -> ClaimState | None:
        """Read the claim on the run with that full id; None if there is no such run."""
        query = select(RUNS.c.status, RUNS.c.updated_at, RUNS.c.claim_number, RUNS.c.process).where(
            RUNS.c.id == storable_text(run_id)
        )
        row = (await connection.execute(query)).one_or_none()
        return None if row is None else ClaimState(*row)

    async def claim(
        self,
        connection: AsyncConnection,
        run: Run,
        seen: ClaimState,
        process: str,
        *,
        takeover: bool,
    ) -> None:
        """Claim the run, unless it was written to since it was seen. Call `add` after the
        transaction."""
        row = run_row(replace(run, status="running", process=process), self._clock())
        del row["expires_at"]
        row["claim_number"] = seen.claim_number + 1
        if takeover:
            row["takeovers"] = RUNS.c.takeovers + 1
        unchanged = (
            (RUNS.c.status == seen.status)
            & (RUNS.c.updated_at == seen.updated_at)
            & (RUNS.c.claim_number == seen.claim_number)
        )
        statement = update(RUNS).where(RUNS.c.id == run.id, unchanged).values(row)
        if (await connection.execute(statement)).rowcount == 0:
            raise run_claimed(run.id, "another")

    def add(self, run_id: str, claim: int) -> None:
        """Remember that the run is claimed here under that number."""
        self.drop([run_id])
        self.numbers[run_id] = claim

    async def release(self, connection: AsyncConnection, run: Run) -> None:
        """Write the run as it was before it was claimed, unless another process holds it now."""
        if run.id not in self.numbers:
            return
        before = replace(run, process="") if run.status == "running" else run
        row = run_row(before, self._clock())
        del row["expires_at"]
        own = (RUNS.c.id == run.id) & (RUNS.c.claim_number == self.numbers[run.id])
        await connection.execute(update(RUNS).where(own).values(row))

    async def begin(self, connection: AsyncConnection, runs: Sequence[Run]) -> None:
        """Write the rows of new runs; raises `RunTakenOver` if another process began one. Call
        `add` for each after the transaction."""
        if not runs:
            return
        now = self._clock()
        rows = [run_row(run, now) for run in sorted(runs, key=lambda run: run.id)]
        statement = dialect_insert(connection.dialect.name, RUNS)
        statement = statement.on_conflict_do_nothing(index_elements=RUNS.primary_key)
        written = await connection.execute(statement.returning(RUNS.c.id), rows)
        for run_id in {run.id for run in runs} - set(written.scalars()):
            raise await self._taken_over(connection, run_id)

    async def begin_again(self, connection: AsyncConnection, run: Run) -> None:
        """Replace the row of a run that is resumed here."""
        now = self._clock()
        await self.fence(connection, [run.id], now)
        statement = upsert(connection.dialect.name, RUNS, CLAIM_COLUMNS)
        await connection.execute(statement, run_row(run, now))
        self._ended.discard(run.id)

    async def touch(
        self, connection: AsyncConnection, run_ids: Set[str], progress: Set[str]
    ) -> None:
        """Renew the leases of runs, and reset the takeovers of those with `progress`; raises
        `RunTakenOver` or `NotFound` if any was lost or deleted."""
        if not run_ids:
            return
        # Padded to a power of two, so that few lengths of the statement are ever prepared.
        length = 1 << (len(run_ids) - 1).bit_length()
        named = list(islice(cycle(sorted(run_ids)), length))
        pairs = [(run_id, self.numbers.get(run_id, UNCLAIMED)) for run_id in named]
        own = tuple_(RUNS.c.id, RUNS.c.claim_number).in_(pairs)
        values: dict[str, Any] = {"updated_at": self._clock()}
        if progress:
            done = list(islice(cycle(sorted(progress)), length))
            values["takeovers"] = case((RUNS.c.id.in_(done), 0), else_=RUNS.c.takeovers)
        locked = select(RUNS.c.id).where(own).order_by(RUNS.c.id).with_for_update()
        statement = update(RUNS).where(RUNS.c.id.in_(locked)).values(values)
        if (await connection.execute(statement)).rowcount < len(run_ids):
            await self._check(connection, sorted(run_ids))
            raise run_not_found(", ".join(sorted(run_ids)))

    async def fence(self, connection: AsyncConnection, run_ids: Sequence[str], now: str) -> None:
        """Keep other processes from claiming these runs until the transaction ends, as its first
        statement; raises `RunTakenOver` if one has."""
        known = [run_id for run_id in run_ids if run_id in self.numbers]
        if known and await self._renew(connection, known, now) < len(known):
            await self._check(connection, known)

    async def heartbeat(self, connection: AsyncConnection, run_ids: Sequence[str]) -> list[str]:
        """Renew the leases of these runs; return those that another process has claimed."""
        known = [run_id for run_id in run_ids if run_id in self.numbers]
        if not known or await self._renew(connection, known, self._clock()) == len(known):
            return []
        return await self._find_lost(connection, known)

    async def list_abandoned(self, connection: AsyncConnection, limit: int) -> list[AbandonedRun]:
        """List running runs that no live process holds."""
        recent = self._database.time_before(RECENT_HOURS * 3600)
        query = (
            select(
                RUNS.c.id,
                RUNS.c.owner,
                RUNS.c.takeovers,
                RUNS.c.claim_number,
                RUNS.c.process,
                RUNS.c.updated_at,
            )
            .where(
                IS_RUNNING,  # literally as in the partial index, which a parameter would not match
                RUNS.c.updated_at >= recent,
                RUNS.c.expires_at.is_(None),
            )
            .order_by(RUNS.c.updated_at)
            .limit(SCANNED_RUNS)
        )
        found = [
            AbandonedRun(id=row.id, owner=row.owner, takeovers=row.takeovers)
            for row in await connection.execute(query)
            if not self._is_held(row.id, row.claim_number)
            and not self._database.is_alive(row.process, row.updated_at)
        ]
        return found[:limit]

    async def _renew(self, connection: AsyncConnection, known: Sequence[str], now: str) -> int:
        """Renew the leases of runs; return how many are still held here."""
        pairs = [(run_id, self.numbers[run_id]) for run_id in known]
        own = tuple_(RUNS.c.id, RUNS.c.claim_number).in_(pairs) & (RUNS.c.status == "running")
        # Locked in one order everywhere, or two writers could wait for each other.
        locked = select(RUNS.c.id).where(own).order_by(RUNS.c.id).with_for_update()
        statement = update(RUNS).where(RUNS.c.id.in_(locked)).values(updated_at=now)
        return (await connection.execute(statement)).rowcount

    async def _find_lost(self, connection: AsyncConnection, known: Sequence[str]) -> list[str]:
        query = select(RUNS.c.id, RUNS.c.claim_number).where(RUNS.c.id.in_(known))
        rows = await connection.execute(query)  # some may end here meanwhile
        lost = [run_id for run_id, claim in rows if claim != self.numbers.get(run_id, claim)]
        # A late write of a lost run must still be refused, so its number is dropped much later.
        self._lost.update(dict.fromkeys(lost))
        while len(self._lost) > MAX_LOST:
            self.drop([next(iter(self._lost))])
        return lost

    async def _check(self, connection: AsyncConnection, known: Sequence[str]) -> None:
        known = [run_id for run_id in known if run_id in self.numbers]
        for run_id in await self._find_lost(connection, known):
            raise await self._taken_over(connection, run_id)

    async def _taken_over(self, connection: AsyncConnection, run_id: str) -> RunTakenOver:
        query = select(func.max(RUNS.c.process)).where(RUNS.c.id == run_id)
        process = (await connection.execute(query)).scalar_one()
        return RunTakenOver(
            f"{run_id} was taken over by process {process or 'unknown'}: this process missed its "
            f"heartbeat for longer than the lease; it writes nothing more of the run"
        )


def run_claimed(run_id: str, process: str) -> Conflict:
    """Build the error of a run that another process holds."""
    return Conflict(f"{run_id} is still running in process {process}; wait for it or stop it")


class SqlRunStore(RunStore):
    """Keeps runs in SQLite or Postgres. Create it with `open`."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._transaction = database.transaction
        self._clock = database.clock
        self._claims = ClaimTable(database)
        self._batcher = Batcher[_Update](self._write_updates)
        self.audit = AuditLog(database)
        self.chats = ChatStore(database)
        self.disabled_workers = DisabledWorkerStore(database)
        self.feedback = FeedbackStore(database)
        self.idempotency = IdempotencyStore(database)
        self.keys = KeyStore(database)
        self.statistics = RunStatistics(database)

    @classmethod
    async def open(
        cls,
        where: str | Path,
        *,
        clock: Clock | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Self:
        """Open the database and create its tables if it is new."""
        return cls(await Database.open(where, clock=clock, lease_seconds=lease_seconds))

    async def begin(self, run: Run) -> None:
        if run.id not in self._claims.numbers:
            await self._batcher.add((run.id, run))
            return
        async with self._transaction() as connection:
            await self._claims.begin_again(connection, run)
            await write_content(connection, [(run.id, run)])

    async def save(self, run_id: str, content: Round | StepRecord) -> None:
        await self._batcher.add((run_id, content))

    async def _write_updates(self, updates: Sequence[_Update]) -> None:
        begun = [content for _, content in updates if isinstance(content, Run)]
        running = {run_id for run_id, content in updates if not isinstance(content, Run)}
        progress = {  # done steps, which a resumed run need not repeat
            run_id
            for run_id, content in updates
            if isinstance(content, StepRecord) and content.status == "done"
        }
        async with self._transaction() as connection:
            await self._claims.touch(connection, running, progress)
            await self._claims.begin(connection, begun)
            await write_content(connection, updates)
        for run in begun:
            self._claims.add(run.id, UNCLAIMED)

    async def finish(self, *runs: Run) -> None:
        """Write ended runs, replacing all that was written of them, and charge their keys."""
        await self._replace_runs(runs)

    async def save_until(self, run: Run, until: str) -> None:
        await self._replace_runs([run], expires_at=until)

    async def _replace_runs(self, runs: Sequence[Run], expires_at: str | None = None) -> None:
        ids = [run.id for run in runs]
        try:
            async with self._transaction() as connection:
                now = self._clock()
                await self._claims.fence(connection, ids, now)
                await replace_runs(connection, runs, now, expires_at)
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
        self._claims.add(run.id, seen.claim_number + 1)  # not before the commit
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
            deleted = await connection.execute(
                delete(RUNS).where(RUNS.c.id == storable_text(run_id))
            )
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
        running = (RUNS.c.status == "running") & (RUNS.c.updated_at >= self.database.lease_start())
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


async def _workers_of(
    connection: AsyncConnection, run_ids: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    if not run_ids:
        return {}
    used = select(RUN_WORKERS.c.run_id, RUN_WORKERS.c.worker).where(
        RUN_WORKERS.c.run_id.in_(run_ids)
    )
    found: dict[str, list[str]] = {}
    for run_id, worker in await connection.execute(used.distinct().order_by(RUN_WORKERS.c.worker)):
        found.setdefault(run_id, []).append(worker)
    return found
