"""Claims on runs, in a database that several processes share.

A running run has a claim: a number that grows each time a process claims the run. Each write names
the number that its process holds; after another process has claimed the run, nothing is written and
`RunTakenOver` is raised. A paused process therefore cannot overwrite what was done in its place.

A claim is valid while its process sends heartbeats: one that misses them for the time of a lease
loses its runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import cycle, islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import case, func, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium._util.process import is_gone
from podium.core.errors import Conflict, RunTakenOver
from podium.core.run import Run, timestamp
from podium.store.base import RECENT_HOURS, AbandonedRun
from podium.store.sql.database import Transaction
from podium.store.sql.queries import run_not_found
from podium.store.sql.rows import RunUpdate, plain, run_row, write_contents
from podium.store.sql.tables import CLAIM_COLUMNS, RUNNING, RUNS, insert_missing, upsert

SCANNED_RUNS: Final = 1000
"""The most running runs that one search for abandoned ones looks at."""

MAX_LOST: Final = 1000
"""The most runs lost to other processes whose late writes are still refused."""

UNCLAIMED: Final = 0
"""The claim of a run that was begun and never claimed again."""

MAX_BATCH: Final = 64


class ClaimState(NamedTuple):
    """The claim on a run as stored."""

    status: str
    updated_at: str
    claim: int
    process: str


class ClaimTable:
    """The claims of one store, and its view of those of others."""

    def __init__(self, clock: Callable[[], str], lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._claims: dict[str, int] = {}
        self._ended: set[str] = set()
        self._lost: dict[str, None] = {}

    def is_claimed(self, run_id: str, seen: ClaimState) -> bool:
        """True if this store or a live process holds the run."""
        if seen.status != "running":
            return False
        return self._holds(run_id, seen.claim) or self.is_alive(seen.process, seen.updated_at)

    def _holds(self, run_id: str, claim: int) -> bool:
        return self._claims.get(run_id) == claim and run_id not in self._ended

    def is_known(self, run_id: str) -> bool:
        """True if the run was begun or claimed here."""
        return run_id in self._claims

    def drop(self, run_ids: Iterable[str]) -> None:
        """Forget the claims on runs that have ended."""
        for run_id in run_ids:
            self._claims.pop(run_id, None)
            self._ended.discard(run_id)
            self._lost.pop(run_id, None)

    def end(self, run_id: str) -> None:
        """Release a run whose end could not be written; the number stays for a later write."""
        if run_id in self._claims:
            self._ended.add(run_id)

    async def read_state(self, connection: AsyncConnection, run_id: str) -> ClaimState | None:
        """Read the claim on the run with that full id; None if there is no such run."""
        query = select(RUNS.c.status, RUNS.c.updated_at, RUNS.c.claim, RUNS.c.process).where(
            RUNS.c.id == plain(run_id)
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
        row["claim"] = seen.claim + 1
        if takeover:
            row["takeovers"] = RUNS.c.takeovers + 1
        unchanged = (
            (RUNS.c.status == seen.status)
            & (RUNS.c.updated_at == seen.updated_at)
            & (RUNS.c.claim == seen.claim)
        )
        statement = update(RUNS).where(RUNS.c.id == run.id, unchanged).values(row)
        if (await connection.execute(statement)).rowcount == 0:
            raise run_claimed(run.id, "another")

    def add(self, run_id: str, claim: int) -> None:
        """Remember that the run is claimed here under that number."""
        self.drop([run_id])
        self._claims[run_id] = claim

    async def release(self, connection: AsyncConnection, run: Run) -> None:
        """Write the run as it was before it was claimed, unless another process holds it now."""
        if run.id not in self._claims:
            return
        before = replace(run, process="") if run.status == "running" else run
        row = run_row(before, self._clock())
        del row["expires_at"]
        own = (RUNS.c.id == run.id) & (RUNS.c.claim == self._claims[run.id])
        await connection.execute(update(RUNS).where(own).values(row))

    async def begin(self, connection: AsyncConnection, run: Run) -> None:
        """Write the row of a run that begins or resumes here, as the first statement of a
        transaction; raises `RunTakenOver` if another process began it."""
        row, dialect = run_row(run, self._clock()), connection.dialect.name
        if run.id in self._claims:
            await self.fence(connection, [run.id])
            await connection.execute(upsert(dialect, RUNS, CLAIM_COLUMNS), row)
            self._ended.discard(run.id)
            return
        if (await connection.execute(insert_missing(dialect, RUNS), row)).rowcount == 0:
            raise await self._taken_over(connection, run.id)
        self._claims[run.id] = UNCLAIMED

    async def begin_new(self, connection: AsyncConnection, runs: Sequence[Run]) -> None:
        """Write the rows of new runs. Call `add` for each after the transaction."""
        if runs:
            now = self._clock()
            rows = [run_row(run, now) for run in sorted(runs, key=lambda run: run.id)]
            await connection.execute(insert(RUNS), rows)

    async def touch(
        self, connection: AsyncConnection, run_id: str, *, progress: bool = False
    ) -> None:
        """Renew the lease of a run; raises `RunTakenOver` or `NotFound`. `progress` resets its
        takeovers."""
        values: dict[str, str | int] = {"updated_at": self._clock()}
        if progress:
            values["takeovers"] = 0
        own = RUNS.c.id == run_id
        if run_id in self._claims:
            own &= RUNS.c.claim == self._claims[run_id]
        if (await connection.execute(update(RUNS).where(own).values(values))).rowcount:
            return
        await self._check(connection, [run_id])
        raise run_not_found(run_id)

    async def touch_all(
        self, connection: AsyncConnection, run_ids: Set[str], progress: Set[str]
    ) -> None:
        """Renew the leases of several runs; raises `NotFound` if any was lost or deleted."""
        if not run_ids:
            return
        # Padded to a power of two, so that few lengths of the statement are ever prepared.
        length = 1 << (len(run_ids) - 1).bit_length()
        named = list(islice(cycle(sorted(run_ids)), length))
        pairs = [(run_id, self._claims.get(run_id, UNCLAIMED)) for run_id in named]
        own = tuple_(RUNS.c.id, RUNS.c.claim).in_(pairs)
        values: dict[str, Any] = {"updated_at": self._clock()}
        if progress:
            done = list(islice(cycle(sorted(progress)), length))
            values["takeovers"] = case((RUNS.c.id.in_(done), 0), else_=RUNS.c.takeovers)
        locked = select(RUNS.c.id).where(own).order_by(RUNS.c.id).with_for_update()
        statement = update(RUNS).where(RUNS.c.id.in_(locked)).values(values)
        if (await connection.execute(statement)).rowcount < len(run_ids):
            raise run_not_found(", ".join(sorted(run_ids)))

    async def fence(self, connection: AsyncConnection, run_ids: Sequence[str]) -> None:
        """Keep other processes from claiming these runs until the transaction ends, as its first
        statement; raises `RunTakenOver` if one has."""
        known = [run_id for run_id in run_ids if run_id in self._claims]
        if known and await self._renew(connection, known) < len(known):
            await self._check(connection, known)

    async def heartbeat(self, connection: AsyncConnection, run_ids: Sequence[str]) -> list[str]:
        """Renew the leases of these runs; return those that another process has claimed."""
        known = [run_id for run_id in run_ids if run_id in self._claims]
        if not known or await self._renew(connection, known) == len(known):
            return []
        return await self._find_lost(connection, known)

    async def list_abandoned(self, connection: AsyncConnection, limit: int) -> list[AbandonedRun]:
        """List running runs that no live process holds."""
        recent = timestamp(self._now() - timedelta(hours=RECENT_HOURS))
        query = (
            select(
                RUNS.c.id,
                RUNS.c.owner,
                RUNS.c.takeovers,
                RUNS.c.claim,
                RUNS.c.process,
                RUNS.c.updated_at,
            )
            .where(
                RUNNING,  # literally as in the partial index, which a parameter would not match
                RUNS.c.updated_at >= recent,
                RUNS.c.expires_at.is_(None),
            )
            .order_by(RUNS.c.updated_at)
            .limit(SCANNED_RUNS)
        )
        found = [
            AbandonedRun(id=row.id, owner=row.owner, takeovers=row.takeovers)
            for row in await connection.execute(query)
            if not self._holds(row.id, row.claim) and not self.is_alive(row.process, row.updated_at)
        ]
        return found[:limit]

    def is_alive(self, process: str, updated_at: str) -> bool:
        """True if the process sent a heartbeat within its lease and is not known to be gone."""
        return updated_at >= self.lease_start() and not is_gone(process)

    def lease_start(self) -> str:
        """Return the time since when a heartbeat keeps a claim valid."""
        return timestamp(self._now() - timedelta(seconds=self._lease_seconds))

    def _now(self) -> datetime:
        return datetime.fromisoformat(self._clock())

    async def _renew(self, connection: AsyncConnection, known: Sequence[str]) -> int:
        """Renew the leases of runs; return how many are still held here."""
        pairs = [(run_id, self._claims[run_id]) for run_id in known]
        own = tuple_(RUNS.c.id, RUNS.c.claim).in_(pairs) & (RUNS.c.status == "running")
        # Locked in one order everywhere, or two writers could wait for each other.
        locked = select(RUNS.c.id).where(own).order_by(RUNS.c.id).with_for_update()
        statement = update(RUNS).where(RUNS.c.id.in_(locked)).values(updated_at=self._clock())
        return (await connection.execute(statement)).rowcount

    async def _find_lost(self, connection: AsyncConnection, known: Sequence[str]) -> list[str]:
        query = select(RUNS.c.id, RUNS.c.claim).where(RUNS.c.id.in_(known))
        rows = await connection.execute(query)  # some may end here meanwhile
        lost = [run_id for run_id, claim in rows if claim != self._claims.get(run_id, claim)]
        # A late write of a lost run must still be refused, so its number is dropped much later.
        self._lost.update(dict.fromkeys(lost))
        while len(self._lost) > MAX_LOST:
            self.drop([next(iter(self._lost))])
        return lost

    async def _check(self, connection: AsyncConnection, known: Sequence[str]) -> None:
        known = [run_id for run_id in known if run_id in self._claims]
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
        if len(batch) > 1 and await self._is_written([item for item, _ in batch]):
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


class RunWriter:
    """Writes updates of running runs, those of several runs in one transaction."""

    def __init__(self, transaction: Transaction, claims: ClaimTable) -> None:
        self._transaction = transaction
        self._claims = claims
        self._batcher = Batcher[RunUpdate](write_one=self._write_one, write_all=self._write_all)
        self.close = self._batcher.close

    async def write(self, update: RunUpdate) -> None:
        """Write the update. The round of a step must have been written before."""
        if isinstance(update.content, Run) and self._claims.is_known(update.run_id):
            await self._write_one(update)  # a resumed run replaces its row
        else:
            await self._batcher.add(update)

    async def _write_one(self, update: RunUpdate) -> None:
        async with self._transaction() as connection:
            if isinstance(update.content, Run):
                await self._claims.begin(connection, update.content)
            else:
                await self._claims.touch(connection, update.run_id, progress=update.is_progress)
            await write_contents(connection, [update])

    async def _write_all(self, updates: Sequence[RunUpdate]) -> None:
        begun = [update.content for update in updates if isinstance(update.content, Run)]
        running = {update.run_id for update in updates if not isinstance(update.content, Run)}
        progress = {update.run_id for update in updates if update.is_progress}
        async with self._transaction() as connection:
            await self._claims.touch_all(connection, running, progress)
            await self._claims.begin_new(connection, begun)
            await write_contents(connection, updates)
        for run in begun:
            self._claims.add(run.id, UNCLAIMED)
