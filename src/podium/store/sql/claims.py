"""Claims on runs, in a database that several processes share.

A running run has a claim: a number that grows each time a process claims the run. Each write names
the number that its process holds; after another process has claimed the run, nothing is written and
`RunTakenOver` is raised. A paused process therefore cannot overwrite what was done in its place.

A claim is valid while its process sends heartbeats: one that misses them for the time of a lease
loses its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import cycle, islice
from typing import Any, Final, NamedTuple

from sqlalchemy import case, func, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium._util.process import is_gone
from podium.core.errors import Conflict, RunTakenOver
from podium.core.run import Run, timestamp
from podium.store.base import RECENT_HOURS, AbandonedRun
from podium.store.sql.queries import run_not_found
from podium.store.sql.tables import (
    CLAIM_COLUMNS,
    RUNNING,
    RUNS,
    insert_missing,
    plain,
    run_row,
    upsert,
)

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
    claim: int
    process: str


class ClaimTable:
    """The claims of one store, and its view of those of others."""

    def __init__(self, clock: Callable[[], str], lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self.numbers: dict[str, int] = {}
        """The claims of runs that were begun or claimed here."""
        self._ended: set[str] = set()
        self._lost: dict[str, None] = {}

    def is_claimed(self, run_id: str, seen: ClaimState) -> bool:
        """True if this store or a live process holds the run."""
        if seen.status != "running":
            return False
        return self._is_held(run_id, seen.claim) or self.is_alive(seen.process, seen.updated_at)

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
        self.numbers[run_id] = claim

    async def release(self, connection: AsyncConnection, run: Run) -> None:
        """Write the run as it was before it was claimed, unless another process holds it now."""
        if run.id not in self.numbers:
            return
        before = replace(run, process="") if run.status == "running" else run
        row = run_row(before, self._clock())
        del row["expires_at"]
        own = (RUNS.c.id == run.id) & (RUNS.c.claim == self.numbers[run.id])
        await connection.execute(update(RUNS).where(own).values(row))

    async def begin(self, connection: AsyncConnection, run: Run, now: str) -> None:
        """Write the row of a run that begins or resumes here, as the first statement of a
        transaction; raises `RunTakenOver` if another process began it."""
        row, dialect = run_row(run, now), connection.dialect.name
        if run.id in self.numbers:
            await self.fence(connection, [run.id], now)
            await connection.execute(upsert(dialect, RUNS, CLAIM_COLUMNS), row)
            self._ended.discard(run.id)
            return
        if (await connection.execute(insert_missing(dialect, RUNS), row)).rowcount == 0:
            raise await self._taken_over(connection, run.id)
        self.numbers[run.id] = UNCLAIMED

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
        if run_id in self.numbers:
            own &= RUNS.c.claim == self.numbers[run_id]
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
        pairs = [(run_id, self.numbers.get(run_id, UNCLAIMED)) for run_id in named]
        own = tuple_(RUNS.c.id, RUNS.c.claim).in_(pairs)
        values: dict[str, Any] = {"updated_at": self._clock()}
        if progress:
            done = list(islice(cycle(sorted(progress)), length))
            values["takeovers"] = case((RUNS.c.id.in_(done), 0), else_=RUNS.c.takeovers)
        locked = select(RUNS.c.id).where(own).order_by(RUNS.c.id).with_for_update()
        statement = update(RUNS).where(RUNS.c.id.in_(locked)).values(values)
        if (await connection.execute(statement)).rowcount < len(run_ids):
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
            if not self._is_held(row.id, row.claim)
            and not self.is_alive(row.process, row.updated_at)
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

    async def _renew(self, connection: AsyncConnection, known: Sequence[str], now: str) -> int:
        """Renew the leases of runs; return how many are still held here."""
        pairs = [(run_id, self.numbers[run_id]) for run_id in known]
        own = tuple_(RUNS.c.id, RUNS.c.claim).in_(pairs) & (RUNS.c.status == "running")
        # Locked in one order everywhere, or two writers could wait for each other.
        locked = select(RUNS.c.id).where(own).order_by(RUNS.c.id).with_for_update()
        statement = update(RUNS).where(RUNS.c.id.in_(locked)).values(updated_at=now)
        return (await connection.execute(statement)).rowcount

    async def _find_lost(self, connection: AsyncConnection, known: Sequence[str]) -> list[str]:
        query = select(RUNS.c.id, RUNS.c.claim).where(RUNS.c.id.in_(known))
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
