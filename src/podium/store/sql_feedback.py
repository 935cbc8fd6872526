"""Judgements of runs, in the database that keeps the runs. Made by `sql`, whose transactions it
uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import Executable, delete, or_, select

from podium.errors import NotFound
from podium.store.documents import plain
from podium.store.feedback import Feedback
from podium.store.sql_keys import Transaction
from podium.store.tables import FEEDBACK, RUNS
from podium.store.upsert import inserting


class SqlFeedbackStore:
    """Keeps judgements in SQLite or Postgres. `is_up_to_date` is False over a database of an older
    Podium that can only be read: it may have no place for judgements, and none is found there."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.is_up_to_date = True

    async def give(self, feedback: Feedback) -> None:
        """Write a judgement in place of an earlier one, unless that is a person's and this is a
        grader's; raises `NotFound` without such a run."""
        texts = {name: plain(getattr(feedback, name)) for name in ("comment", "grader", "task")}
        row = {**asdict(feedback), **texts}
        known = select(RUNS.c.id).where(RUNS.c.id == plain(feedback.run_id))
        async with self._transaction() as connection:
            if (await connection.execute(known)).first() is None:
                raise NotFound(f"no run {feedback.run_id!r} in the store to have thought of")
            await connection.execute(_given(connection.dialect.name), [row])

    async def withdraw(self, run_id: str) -> None:
        """Forget what was thought of that run; raises `NotFound` where nobody said."""
        withdrawn = delete(FEEDBACK).where(FEEDBACK.c.run_id == plain(run_id))
        async with self._transaction() as connection:
            if (await connection.execute(withdrawn)).rowcount == 0:
                raise NotFound(f"nobody has said what they think of {run_id!r}")

    async def of(self, run_id: str) -> Feedback | None:
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
