"""Judgements of runs, in the database that keeps the runs. Made by `sql`, whose transactions it
uses."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import select

from podium.errors import NotFound
from podium.store.documents import plain
from podium.store.feedback import Feedback
from podium.store.sql_keys import Transaction
from podium.store.tables import FEEDBACK, RUNS
from podium.store.upsert import replacing


class SqlFeedbackStore:
    """Keeps judgements in SQLite or Postgres."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def give(self, feedback: Feedback) -> None:
        """Write a judgement in place of an earlier one; raises `NotFound` without such a run."""
        row = {**asdict(feedback), "comment": plain(feedback.comment)}
        known = select(RUNS.c.id).where(RUNS.c.id == plain(feedback.run_id))
        async with self._transaction() as connection:
            if (await connection.execute(known)).first() is None:
                raise NotFound(f"no run {feedback.run_id!r} in the store to have thought of")
            await connection.execute(replacing(connection.dialect.name, FEEDBACK), [row])

    async def of(self, run_id: str) -> Feedback | None:
        """What was thought of that run, if anybody said."""
        query = select(FEEDBACK).where(FEEDBACK.c.run_id == plain(run_id))
        async with self._transaction() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else Feedback(**row)
