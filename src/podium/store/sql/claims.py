"""Who performs which run, in a database that several processes use.

A run that goes on has a claim: a number that grows whenever somebody takes the run up. Whoever
writes to the run names the number that they had; where another has taken it up meanwhile, nothing
is written and `RunTakenOver` is raised. So a process that was paused for too long cannot spoil what
was done in its place, whatever it still believes.

A claim is as good as its lease: the process must say every so often that it is at work. Made by
`sql`, whose transactions it uses.
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
from podium.store.sql.queries import no_run
from podium.store.sql.rows import plain, run_row
from podium.store.sql.tables import CLAIM_COLUMNS, GOING_ON, RUNS, noting, replacing

LOOKED_AT: Final = 1000
"""Runs that are looked at, at a time, for whether their processes are gone."""

MOST_LOST: Final = 1000
"""Runs that were lost to others, and whose writes are still refused."""

UNCLAIMED: Final = 0
"""The number of a run that nobody has taken up since it was begun."""


class ClaimState(NamedTuple):
    """How a run stands: its status, when it was last written to, its claim, and whose that is."""

    status: str
    updated_at: str
    number: int
    process: str


class SqlClaims:
    """The claims that one store has, and what it makes of those of others."""

    def __init__(self, clock: Callable[[], str], lease_seconds: float) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._numbers: dict[str, int] = {}
        self._ended: set[str] = set()
        self._lost_lately: dict[str, None] = {}

    def is_claimed(self, run_id: str, seen: ClaimState) -> bool:
        """Whether the run is this store's own, or that of a process that is at work on it."""
        if seen.status != "running":
            return False
        return self._has(run_id, seen.number) or self.is_held(seen.process, seen.updated_at)

    def _has(self, run_id: str, number: int) -> bool:
        return self._numbers.get(run_id) == number and run_id not in self._ended

    def drop(self, run_ids: Iterable[str]) -> None:
        """These runs go on no longer."""
        for run_id in run_ids:
            self._numbers.pop(run_id, None)
            self._ended.discard(run_id)
            self._lost_lately.pop(run_id, None)

    def end(self, run_id: str) -> None:
        """The run goes on no longer, though that could not be written: anybody may take it up, and
        who writes its end later must still name the claim that it had."""
        if run_id in self._numbers:
            self._ended.add(run_id)

    async def standing(self, connection: AsyncConnection, run_id: str) -> ClaimState | None:
        """How the run with that whole id stands; None where there is none."""
        query = select(RUNS.c.status, RUNS.c.updated_at, RUNS.c.claims, RUNS.c.process).where(
            RUNS.c.id == plain(run_id)
        )
        row = (await connection.execute(query)).one_or_none()
        return None if row is None else ClaimState(*row)

    async def take(
        self,
        connection: AsyncConnection,
        run: Run,
        seen: ClaimState,
        process: str,
        *,
        takeover: bool,
    ) -> None:
        """Take the run up for that process, unless anybody has written to it since it was seen."""
        row = run_row(replace(run, status="running", process=process), self._clock())
        del row["forget_after"]  # it is not more to be kept than before
        row["claims"] = seen.number + 1
        if takeover:
            row["takeovers"] = RUNS.c.takeovers + 1
        unchanged = (
            (RUNS.c.status == seen.status)
            & (RUNS.c.updated_at == seen.updated_at)
            & (RUNS.c.claims == seen.number)
        )
        claim = update(RUNS).where(RUNS.c.id == run.id, unchanged).values(row)
        if (await connection.execute(claim)).rowcount == 0:
            raise taken(run.id, "another")

    def has_taken(self, run_id: str, seen: ClaimState) -> None:
        """The run, which stood so, was taken up here."""
        self.drop([run_id])
        self._numbers[run_id] = seen.number + 1

    async def release_claim(self, connection: AsyncConnection, run: Run) -> None:
        """Have the run be as it was before it was taken up, unless it is another's now."""
        if run.id not in self._numbers:
            return
        before = replace(run, process="") if run.status == "running" else run
        row = run_row(before, self._clock())
        del row["forget_after"]  # it is not more to be kept than before
        mine = (RUNS.c.id == run.id) & (RUNS.c.claims == self._numbers[run.id])
        await connection.execute(update(RUNS).where(mine).values(row))

    async def enter(self, connection: AsyncConnection, run: Run) -> None:
        """Write the row of a run that begins. Only one that goes on here already may be there
        before; any other was for somebody else to begin, too, who was quicker: `RunTakenOver` is
        raised. It is the first statement of a transaction."""
        row, dialect = run_row(run, self._clock()), connection.dialect.name
        if run.id in self._numbers:
            await self.fence(connection, [run.id])
            await connection.execute(replacing(dialect, RUNS, CLAIM_COLUMNS), row)
            self._ended.discard(run.id)
            return
        if (await connection.execute(noting(dialect, RUNS), row)).rowcount == 0:
            raise await self._taken_over(connection, run.id)
        self._numbers[run.id] = UNCLAIMED

    def knows(self, run_id: str) -> bool:
        """Whether the run goes on here, or did until another took it up."""
        return run_id in self._numbers

    async def enter_all(self, connection: AsyncConnection, runs: Sequence[Run]) -> None:
        """Write the rows of runs that begin, none of which may be there before. Call `have_entered`
        when the transaction has ended."""
        if runs:
            now = self._clock()
            rows = [run_row(run, now) for run in sorted(runs, key=lambda run: run.id)]
            await connection.execute(insert(RUNS), rows)

    def have_entered(self, runs: Iterable[Run]) -> None:
        """These runs have begun here."""
        self._numbers.update((run.id, UNCLAIMED) for run in runs)

    async def touch(
        self, connection: AsyncConnection, run_id: str, *, progress: bool = False
    ) -> None:
        """Say that the run goes on here; raises `RunTakenOver` where it does not, and `NotFound`
        where it is gone. With `progress` it was worth while to take it over."""
        values: dict[str, str | int] = {"updated_at": self._clock()}
        if progress:
            values["takeovers"] = 0
        mine = RUNS.c.id == run_id
        if run_id in self._numbers:
            mine &= RUNS.c.claims == self._numbers[run_id]
        if (await connection.execute(update(RUNS).where(mine).values(values))).rowcount:
            return
        await self._check(connection, [run_id])
        raise no_run(run_id)

    async def touch_all(
        self, connection: AsyncConnection, run_ids: Set[str], progress: Set[str]
    ) -> None:
        """Say that all of these runs go on here; raises `NotFound` where any does not. With those
        of `progress` it was worth while to take them over."""
        if not run_ids:
            return
        # The same run may be named often, so that statements of few lengths are ever prepared.
        length = 1 << (len(run_ids) - 1).bit_length()
        named = list(islice(cycle(sorted(run_ids)), length))
        pairs = [(run_id, self._numbers.get(run_id, UNCLAIMED)) for run_id in named]
        mine = tuple_(RUNS.c.id, RUNS.c.claims).in_(pairs)
        values: dict[str, Any] = {"updated_at": self._clock()}
        if progress:
            done = list(islice(cycle(sorted(progress)), length))
            values["takeovers"] = case((RUNS.c.id.in_(done), 0), else_=RUNS.c.takeovers)
        locked = select(RUNS.c.id).where(mine).order_by(RUNS.c.id).with_for_update()
        said = update(RUNS).where(RUNS.c.id.in_(locked)).values(values)
        if (await connection.execute(said)).rowcount < len(run_ids):
            raise no_run(", ".join(sorted(run_ids)))

    async def fence(self, connection: AsyncConnection, run_ids: Sequence[str]) -> None:
        """Let nobody take these runs up before the transaction ends; raises `RunTakenOver` where
        somebody has. It is the first statement of a transaction."""
        known = [run_id for run_id in run_ids if run_id in self._numbers]
        if known and await self._said(connection, known) < len(known):
            await self._check(connection, known)

    async def heartbeat(self, connection: AsyncConnection, run_ids: Sequence[str]) -> list[str]:
        """Say that these runs go on here, and give those that another has taken up."""
        known = [run_id for run_id in run_ids if run_id in self._numbers]
        if not known or await self._said(connection, known) == len(known):
            return []
        return await self._lost(connection, known)

    async def list_abandoned(self, connection: AsyncConnection, limit: int) -> list[AbandonedRun]:
        """Runs that say that they go on, and that nobody performs."""
        recent = timestamp(self._now() - timedelta(hours=RECENT_HOURS))
        query = (
            select(
                RUNS.c.id,
                RUNS.c.owner,
                RUNS.c.takeovers,
                RUNS.c.claims,
                RUNS.c.process,
                RUNS.c.updated_at,
            )
            .where(
                GOING_ON,  # as the index has it, which a parameter would not find
                RUNS.c.updated_at >= recent,
                RUNS.c.forget_after.is_(None),
            )
            .order_by(RUNS.c.updated_at)
            .limit(LOOKED_AT)
        )
        found = [
            AbandonedRun(id=row.id, owner=row.owner, takeovers=row.takeovers)
            for row in await connection.execute(query)
            if not self._has(row.id, row.claims) and not self.is_held(row.process, row.updated_at)
        ]
        return found[:limit]

    def is_held(self, process: str, updated_at: str) -> bool:
        """Whether that process has said lately that it is at work, and is not known to be gone."""
        return updated_at >= self.lease_begin() and not is_gone(process)

    def lease_begin(self) -> str:
        """Since when somebody must have said that they perform a run."""
        return timestamp(self._now() - timedelta(seconds=self._lease_seconds))

    def _now(self) -> datetime:
        return datetime.fromisoformat(self._clock())

    async def _said(self, connection: AsyncConnection, known: Sequence[str]) -> int:
        """Write down that these runs, which go on, do so here; how many of them do."""
        pairs = [(run_id, self._numbers[run_id]) for run_id in known]
        mine = tuple_(RUNS.c.id, RUNS.c.claims).in_(pairs) & (RUNS.c.status == "running")
        # In one order, whoever writes: two that wait for each other's runs would wait in vain.
        locked = select(RUNS.c.id).where(mine).order_by(RUNS.c.id).with_for_update()
        said = update(RUNS).where(RUNS.c.id.in_(locked)).values(updated_at=self._clock())
        return (await connection.execute(said)).rowcount

    async def _lost(self, connection: AsyncConnection, known: Sequence[str]) -> list[str]:
        query = select(RUNS.c.id, RUNS.c.claims).where(RUNS.c.id.in_(known))
        rows = await connection.execute(query)  # some may end here while they are looked up
        lost = [run_id for run_id, number in rows if number != self._numbers.get(run_id, number)]
        self._forget_in_time(lost)
        return lost

    def _forget_in_time(self, lost: Iterable[str]) -> None:
        """Who performed these runs stops, but may be about to write: so their numbers are dropped
        only when many more were lost."""
        self._lost_lately.update(dict.fromkeys(lost))
        while len(self._lost_lately) > MOST_LOST:
            self.drop([next(iter(self._lost_lately))])

    async def _check(self, connection: AsyncConnection, known: Sequence[str]) -> None:
        known = [run_id for run_id in known if run_id in self._numbers]
        for run_id in await self._lost(connection, known):
            raise await self._taken_over(connection, run_id)

    async def _taken_over(self, connection: AsyncConnection, run_id: str) -> RunTakenOver:
        query = select(func.max(RUNS.c.process)).where(RUNS.c.id == run_id)
        return taken_over(run_id, (await connection.execute(query)).scalar_one())


def taken(run_id: str, process: str) -> Conflict:
    """The run is somebody else's."""
    return Conflict(f"{run_id} is still going on in process {process}; wait for it or stop it")


def taken_over(run_id: str, process: str) -> RunTakenOver:
    """The run was this process's, and is another's now."""
    return RunTakenOver(
        f"{run_id} was taken over by the process {process or 'of somebody else'}, for this one was "
        f"silent for longer than its lease; nothing more is written of it here"
    )
