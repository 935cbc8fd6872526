"""Lists of runs as queries: what a summary is read from, and which runs a filter leaves.

Every list is read along an index, the newest run first, until the page is full. Whatever a filter
looks at is in an index too, so that nothing of the runs that it leaves out is read; only a search
for words reads their questions and answers. Nothing here touches a database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, Final, get_args

from sqlalchemy import (
    BindParameter,
    ColumnClause,
    ColumnElement,
    Integer,
    Row,
    Select,
    bindparam,
    case,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.errors import NotFound, StoreError, UsageError
from podium.core.run import Run, RunStatus, Tier, timestamp
from podium.store.base import LAST, SUMMARY_CHARACTERS, DailyTotals, RunFilter, RunRevision
from podium.store.sql.keys import Transaction
from podium.store.sql.rows import OWN, Piece, assemble, plain
from podium.store.sql.tables import ROUNDS, RUNS, STEPS, WORKERS

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


class SqlRunStatistics:
    """Reads many runs from SQLite or Postgres."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def daily_totals(
        self, *, since: str, until: str, owner: str | None = None
    ) -> list[DailyTotals]:
        """What the runs of these days came to, by day, tier and owner."""
        query = _SUMS.where(*_ended(since, until, owner)).order_by(_DAY, RUNS.c.tier, RUNS.c.owner)
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            DailyTotals(
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

    async def list_revisions(
        self, *, since: str, until: str, limit: int, owner: str | None = None
    ) -> list[RunRevision]:
        """The runs of these days that do not go on any more, the newest first."""
        query = (
            select(RUNS.c.id, RUNS.c.updated_at)
            .where(*_ended(since, until, owner))
            .order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
            .limit(limit)
        )
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).all()
        return [RunRevision(*row) for row in rows]

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


NEWEST_FIRST: Final = (RUNS.c.created_at.desc(), RUNS.c.id.desc())


def _summaries(owner: ColumnElement[str]) -> Select[Any]:
    counted = func.count()
    return select(
        RUNS.c.id,
        RUNS.c.created_at,
        RUNS.c.updated_at,
        RUNS.c.status,
        func.substr(RUNS.c.question, 1, SUMMARY_CHARACTERS).label("question"),
        func.substr(RUNS.c.answer, 1, SUMMARY_CHARACTERS).label("answer"),
        RUNS.c.conductor,
        RUNS.c.tier,
        RUNS.c.cost_usd,
        RUNS.c.total_tokens,
        RUNS.c.calls,
        RUNS.c.seconds,
        owner.label("owner"),
        select(counted).where(STEPS.c.run_id == RUNS.c.id).scalar_subquery().label("steps"),
        select(counted).where(ROUNDS.c.run_id == RUNS.c.id).scalar_subquery().label("rounds"),
    ).order_by(*NEWEST_FIRST)


SUMMARIES: Final = _summaries(RUNS.c.owner)

FIRST_SUMMARIES: Final = _summaries(literal(""))
"""The same from a database that is still as the first schema left it."""


def narrowed(query: Select[Any], wanted: RunFilter, dialect: str) -> Select[Any]:
    """The query for the wanted runs alone, in a database of that kind."""
    return query.where(*_conditions(wanted, dialect))


def _conditions(wanted: RunFilter, dialect: str) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.owner is not None:
        conditions.append(RUNS.c.owner == plain(wanted.owner))
    if wanted.since is not None:
        conditions.append(RUNS.c.created_at >= _moment(wanted.since))
    if wanted.until is not None:
        conditions.append(RUNS.c.created_at <= _moment(wanted.until))
    if wanted.status is not None:
        conditions.append(RUNS.c.status == _one_of(get_args(RunStatus), wanted.status, "status"))
    if wanted.tier is not None:
        conditions.append(RUNS.c.tier == _one_of(get_args(Tier), wanted.tier, "tier"))
    if wanted.worker is not None:
        used = (WORKERS.c.run_id == RUNS.c.id) & (WORKERS.c.worker == plain(wanted.worker))
        conditions.append(exists().where(used))
    if wanted.cost_from is not None:
        conditions.append(RUNS.c.cost_usd >= wanted.cost_from)
    if wanted.cost_to is not None:
        conditions.append(RUNS.c.cost_usd <= wanted.cost_to)
    if wanted.text is not None:
        words = plain(wanted.text).lower()
        texts = (RUNS.c.question, RUNS.c.answer)
        conditions.append(or_(*(_holds(text, words, dialect) for text in texts)))
    return conditions


def _holds(text: ColumnElement[str | None], words: str, dialect: str) -> ColumnElement[bool]:
    """Whether the text contains the words, in capitals or not."""
    # SQLite's own comparison knows ASCII's capitals, and is twice as fast as lower(), which is
    # Python's there; other databases compare capitals as such.
    if not (dialect == "sqlite" and words.isascii()):
        text = func.lower(text)
    return text.contains(words, autoescape=True)


def _moment(moment: datetime) -> str:
    """The moment as it is stored; one without a time zone is meant in UTC."""
    try:
        return timestamp(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    except OverflowError as error:
        raise UsageError(f"{moment} is before or after all time in UTC; name another") from error


def _one_of(known: tuple[str, ...], value: str, what: str) -> str:
    if value not in known:
        raise UsageError(f"no run has the {what} {value!r}; it is one of {', '.join(known)}")
    return value


ID_PREFIX: Final = "run_"

CANDIDATES: Final = 5
"""How many runs are named when the beginning of an id is not enough."""


async def whole_id(connection: AsyncConnection, wanted: str, owner: str | None = None) -> str:
    """The whole id of the one run that is meant, among those of the owner if one is named."""
    if not wanted:
        raise UsageError("name a run by its id, the beginning of its id, or last")
    ids = select(RUNS.c.id).order_by(*NEWEST_FIRST).limit(CANDIDATES + 1)
    if owner is not None:
        ids = ids.where(RUNS.c.owner == plain(owner))
    if wanted == LAST:
        found: Sequence[str] = (await connection.execute(ids.limit(1))).scalars().all()
    else:
        starts = (plain(wanted), ID_PREFIX + plain(wanted))
        whole = ids.where(RUNS.c.id.in_(starts))
        begun = ids.where(
            or_(*(func.substr(RUNS.c.id, 1, len(start)) == start for start in starts))
        )
        found = (await connection.execute(whole)).scalars().all()
        found = found or (await connection.execute(begun)).scalars().all()
    if not found:
        raise no_run(wanted)
    if len(found) > 1:
        raise _several_runs(wanted, found)
    return found[0]


def no_run(wanted: str) -> NotFound:
    """There is none of that name."""
    if wanted == LAST:
        return NotFound("there is no run yet; ask something first")
    return NotFound(f"no run {wanted!r} in the store; see which there are with: podium runs list")


def _several_runs(wanted: str, found: Sequence[str]) -> UsageError:
    shown = ", ".join(found[:CANDIDATES]) + (", …" if len(found) > CANDIDATES else "")
    return UsageError(f"{wanted!r} is the beginning of several runs: {shown}; give more of the id")
