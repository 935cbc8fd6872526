"""Judgements of runs, in the database that keeps the runs. Made by `sql`, whose transactions it
uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, Executable, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.errors import NotFound
from podium.core.run import timestamp
from podium.store.base import Feedback, IdempotentRequest
from podium.store.sql.keys import Transaction
from podium.store.sql.rows import plain
from podium.store.sql.tables import FEEDBACK, REQUESTS, RUNS, inserting, noting

KEPT_HOURS: Final = 24
"""How long a name stands for its run."""


class SqlIdempotencyStore:
    """Keeps names of requests in SQLite or Postgres. `is_held` says whether a process is at work
    that has said so at a given moment."""

    def __init__(
        self,
        transaction: Transaction,
        clock: Callable[[], str],
        is_held: Callable[[str, str], bool],
    ) -> None:
        self._transaction = transaction
        self._clock = clock
        self._is_held = is_held

    async def register(self, request: IdempotentRequest) -> IdempotentRequest:
        """Write the request down unless one of its name is there already; give the one that is."""
        row = {**asdict(request), "name": plain(request.name), "created_at": self._clock()}
        theirs = (REQUESTS.c.owner == request.owner) & (REQUESTS.c.name == row["name"])
        async with self._transaction() as connection:
            await self.prune(connection, theirs)
            await connection.execute(noting(connection.dialect.name, REQUESTS), [row])
            found = (await connection.execute(select(REQUESTS).where(theirs))).mappings().one()
        return IdempotentRequest(**found)

    async def take_over(self, found: IdempotentRequest, process: str) -> IdempotentRequest | None:
        """Have that process begin the run of a request whose own process ended before."""
        if self._is_held(found.process, found.created_at):
            return None
        taken = replace(found, process=process, created_at=self._clock())
        now = {"process": taken.process, "created_at": taken.created_at}
        async with self._transaction() as connection:
            taking = update(REQUESTS).where(_is(found)).values(now)
            return taken if (await connection.execute(taking)).rowcount else None

    async def remove(self, request: IdempotentRequest) -> None:
        """Forget a request that came to no run, unless somebody has taken it up meanwhile."""
        async with self._transaction() as connection:
            await connection.execute(delete(REQUESTS).where(_is(request)))

    async def prune(
        self, connection: AsyncConnection, among: ColumnElement[bool] | None = None
    ) -> None:
        """Forget the names that have stood for long enough, or those among some."""
        now = datetime.fromisoformat(self._clock())
        old = REQUESTS.c.created_at < timestamp(now - timedelta(hours=KEPT_HOURS))
        await connection.execute(delete(REQUESTS).where(old if among is None else old & among))


def _is(found: IdempotentRequest) -> ColumnElement[bool]:
    return (
        (REQUESTS.c.owner == found.owner)
        & (REQUESTS.c.name == plain(found.name))
        & (REQUESTS.c.run_id == found.run_id)
        & (REQUESTS.c.process == found.process)
        & (REQUESTS.c.created_at == found.created_at)
    )


class SqlFeedbackStore:
    """Keeps judgements in SQLite or Postgres. `is_up_to_date` is False over a database of an older
    Podium that can only be read: it may have no place for judgements, and none is found there."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.is_up_to_date = True

    async def save(self, feedback: Feedback) -> None:
        """Write a judgement in place of an earlier one, unless that is a person's and this is a
        grader's; raises `NotFound` without such a run."""
        texts = {name: plain(getattr(feedback, name)) for name in ("comment", "grader", "task")}
        row = {**asdict(feedback), **texts}
        known = select(RUNS.c.id).where(RUNS.c.id == plain(feedback.run_id))
        async with self._transaction() as connection:
            if (await connection.execute(known)).first() is None:
                raise NotFound(f"no run {feedback.run_id!r} in the store to have thought of")
            await connection.execute(_given(connection.dialect.name), [row])

    async def delete(self, run_id: str) -> None:
        """Forget what was thought of that run; raises `NotFound` where nobody said."""
        withdrawn = delete(FEEDBACK).where(FEEDBACK.c.run_id == plain(run_id))
        async with self._transaction() as connection:
            if (await connection.execute(withdrawn)).rowcount == 0:
                raise NotFound(f"nobody has said what they think of {run_id!r}")

    async def get(self, run_id: str) -> Feedback | None:
        """What was thought of that run, if anybody said."""
        if not self.is_up_to_date:
            return None
        query = select(FEEDBACK).where(FEEDBACK.c.run_id == plain(run_id))
        async with self._transaction() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else Feedback(**row)

    async def page(self, after: str = "", *, limit: int = 500) -> Sequence[Feedback]:
        """Judgements in the order of their runs' ids, those after that id; none of a run that is
        only held for a while."""
        query = (
            select(FEEDBACK)
            .join(RUNS, RUNS.c.id == FEEDBACK.c.run_id)
            .where(FEEDBACK.c.run_id > plain(after), RUNS.c.forget_after.is_(None))
            .order_by(FEEDBACK.c.run_id)
            .limit(limit)
        )
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [Feedback(**row) for row in rows]


def _given(dialect: str) -> Executable:
    """A judgement that is new, or takes the place of one that it may."""
    insert = inserting(dialect, FEEDBACK)
    values = {
        column.name: insert.excluded[column.name]
        for column in FEEDBACK.columns
        if not column.primary_key
    }
    may = or_(FEEDBACK.c.grader != "", insert.excluded.grader == "")
    return insert.on_conflict_do_update(index_elements=FEEDBACK.primary_key, set_=values, where=may)
