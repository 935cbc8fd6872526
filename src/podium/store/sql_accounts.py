"""What runs came to, asked of the database that keeps them. Made by `sql`, whose transactions it
uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from itertools import groupby
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnClause,
    ColumnElement,
    Integer,
    Row,
    bindparam,
    case,
    func,
    literal_column,
    select,
    union_all,
)

from podium.errors import StoreError
from podium.run import Run
from podium.store.accounts import RunMark, RunSums
from podium.store.documents import OWN, Piece, assemble, plain
from podium.store.sql_keys import Transaction
from podium.store.tables import ROUNDS, RUNS, STEPS

# Numbers in the text of the statement: as parameters they would differ between what Postgres is to
# select and what it is to group by.
_DAY: Final = func.substr(RUNS.c.created_at, literal_column("1"), literal_column("10"))
_OWN: Final[ColumnClause[int]] = literal_column(str(OWN), Integer)

_SUMS: Final = select(
    _DAY.label("day"),
    RUNS.c.tier,
    RUNS.c.owner,
    func.count().label("runs"),
    func.coalesce(func.sum(RUNS.c.total_tokens), 0).label("tokens"),
    func.coalesce(func.sum(RUNS.c.cost_usd), 0.0).label("cost_usd"),
    func.sum(case((RUNS.c.total_tokens.is_(None), 1), else_=0)).label("unknown_tokens"),
    func.sum(case((RUNS.c.cost_usd.is_(None), 1), else_=0)).label("unknown_cost"),
).group_by(_DAY, RUNS.c.tier, RUNS.c.owner)

_IDS: Final[BindParameter[str]] = bindparam("ids", expanding=True)

# One statement, so that runs which are being written meanwhile are read as of one moment.
_PIECES: Final = union_all(
    select(RUNS.c.id.label("run_id"), _OWN.label("round"), _OWN.label("step"), RUNS.c.document)
    .where(RUNS.c.id.in_(_IDS)),
    select(ROUNDS.c.run_id, ROUNDS.c.round, _OWN, ROUNDS.c.document)
    .where(ROUNDS.c.run_id.in_(_IDS)),
    select(STEPS.c.run_id, STEPS.c.round, STEPS.c.step, STEPS.c.document)
    .where(STEPS.c.run_id.in_(_IDS)),
).order_by("run_id", "round", "step")  # fmt: skip


class SqlAccounts:
    """Reads many runs from SQLite or Postgres."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def sums(self, *, since: str, until: str, owner: str | None = None) -> list[RunSums]:
        """What the runs of these days came to, by day, tier and owner."""
        query = _SUMS.where(*_ended(since, until, owner)).order_by(_DAY, RUNS.c.tier, RUNS.c.owner)
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            RunSums(
                day=row["day"],
                tier=row["tier"],
                owner=row["owner"],
                runs=row["runs"],
                tokens=int(row["tokens"]),  # Postgres sums integers to decimals
                cost_usd=float(row["cost_usd"]),
                unknown_tokens=row["unknown_tokens"],
                unknown_cost=row["unknown_cost"],
            )
            for row in rows
        ]

    async def marks(
        self, *, since: str, until: str, limit: int, owner: str | None = None
    ) -> list[RunMark]:
        """The runs of these days that do not go on any more, the newest first."""
        query = (
            select(RUNS.c.id, RUNS.c.updated_at)
            .where(*_ended(since, until, owner))
            .order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
            .limit(limit)
        )
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).all()
        return [RunMark(*row) for row in rows]

    async def load(self, ids: Sequence[str]) -> list[Run]:
        """These runs, whole, in no particular order; those that are gone, or that cannot be read
        any more, are left out."""
        async with self._transaction() as connection:
            rows = (await connection.execute(_PIECES, {"ids": list(ids)})).all()
        return list(_readable(rows))


def _readable(rows: Sequence[Row[Any]]) -> Iterator[Run]:
    for _, pieces in groupby(rows, key=lambda row: row[0]):
        try:
            yield assemble(Piece(row.round, row.step, row.document) for row in pieces)
        except StoreError:  # one that is damaged must not cost the others
            continue


def _ended(since: str, until: str, owner: str | None) -> list[ColumnElement[bool]]:
    """The runs of these days, that owner's, which have ended."""
    next_day = date.fromisoformat(until) + timedelta(days=1)
    conditions = [
        RUNS.c.created_at >= since,
        RUNS.c.created_at < next_day.isoformat(),
        RUNS.c.status != "running",
    ]
    return conditions if owner is None else [*conditions, RUNS.c.owner == plain(owner)]
