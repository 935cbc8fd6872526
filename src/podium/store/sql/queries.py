"""Queries over many runs: lists, filters, ids and statistics.

Each list follows an index, newest run first, until the page is full. Filters read indexed columns
only; a text search alone reads questions and answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, Final, get_args

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnClause,
    ColumnElement,
    Integer,
    Row,
    Select,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.errors import NotFound, StoreError, UsageError
from podium.core.run import Run, RunStatus, Tier, timestamp
from podium.store.base import LAST, SUMMARY_CHARACTERS, RunFilter, RunRevision
from podium.store.keys import MODEL_OF, KeyUsage
from podium.store.sql.database import DatabasePart
from podium.store.sql.tables import (
    NO_INDEX,
    ROUNDS,
    RUN_WORKERS,
    RUNS,
    STEPS,
    StoredDocument,
    build_run,
    storable_text,
)

ID_PREFIX: Final = "run_"

MAX_CANDIDATES: Final = 5
"""How many runs an error names whose ids all begin as given."""

NEWEST_FIRST: Final = (RUNS.c.created_at.desc(), RUNS.c.id.desc())

# Numbers in the text of the statement: as parameters they would differ between what Postgres is to
# select and what it is to group by.
_DAY: Final = func.substr(RUNS.c.created_at, literal_column("1"), literal_column("10"))
_NO_INDEX: Final[ColumnClause[int]] = literal_column(str(NO_INDEX), Integer)

_TOTALS: Final = select(
    _DAY.label("day"),
    RUNS.c.tier.label("model"),
    RUNS.c.owner.label("key_id"),
    func.count().label("requests"),
    # Postgres sums large integers to decimals.
    cast(func.coalesce(func.sum(RUNS.c.total_tokens), 0), BigInteger).label("input_tokens"),
    func.coalesce(func.sum(RUNS.c.cost_usd), 0.0).label("cost_usd"),
    func.sum(case((RUNS.c.total_tokens.is_(None), 1), else_=0)).label("unknown_usage_count"),
    func.sum(case((RUNS.c.cost_usd.is_(None), 1), else_=0)).label("unknown_cost_count"),
).group_by(_DAY, RUNS.c.tier, RUNS.c.owner)

_IDS: Final[BindParameter[str]] = bindparam("ids", expanding=True)

# One statement, so that runs which are being written meanwhile are read as of one moment.
_DOCUMENTS: Final = union_all(
    select(
        RUNS.c.id.label("run_id"),
        _NO_INDEX.label("round"),
        _NO_INDEX.label("step"),
        RUNS.c.document,
    ).where(RUNS.c.id.in_(_IDS)),
    select(ROUNDS.c.run_id, ROUNDS.c.round, _NO_INDEX, ROUNDS.c.document)
    .where(ROUNDS.c.run_id.in_(_IDS)),
    select(STEPS.c.run_id, STEPS.c.round, STEPS.c.step, STEPS.c.document)
    .where(STEPS.c.run_id.in_(_IDS)),
).order_by("run_id", "round", "step")  # fmt: skip

_COUNT: Final = func.count()

SUMMARIES: Final = select(
    *(RUNS.c[name] for name in ("id", "created_at", "updated_at", "status", "conductor", "tier")),
    *(RUNS.c[name] for name in ("cost_usd", "total_tokens", "calls", "seconds", "owner")),
    func.substr(RUNS.c.question, 1, SUMMARY_CHARACTERS).label("question"),
    func.substr(RUNS.c.answer, 1, SUMMARY_CHARACTERS).label("answer"),
    select(_COUNT).where(STEPS.c.run_id == RUNS.c.id).scalar_subquery().label("steps"),
    select(_COUNT).where(ROUNDS.c.run_id == RUNS.c.id).scalar_subquery().label("rounds"),
).order_by(*NEWEST_FIRST)


async def read_run(connection: AsyncConnection, run_id: str) -> Run:
    rows = (await connection.execute(_DOCUMENTS, {"ids": [run_id]})).all()
    if not rows:  # deleted since its id was found
        raise run_not_found(run_id)
    return build_run(StoredDocument(row.round, row.step, row.document) for row in rows)


class RunStatistics(DatabasePart):
    """Reads many runs. An `owner` of None is everyone, an empty one runs without a key."""

    async def daily_totals(
        self, *, since: str, until: str, owner: str | None = None
    ) -> list[KeyUsage]:
        """Sum the ended runs of these days by day, tier and owner; input tokens are all tokens."""
        query = _TOTALS.where(*_ended_between(since, until, owner))
        query = query.order_by(_DAY, RUNS.c.tier, RUNS.c.owner)
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [KeyUsage(**{**row, "model": MODEL_OF[row["model"]]}) for row in rows]

    async def list_revisions(
        self, *, since: str, until: str, limit: int, owner: str | None = None
    ) -> list[RunRevision]:
        """List the ended runs of these days, newest first."""
        query = (
            select(RUNS.c.id, RUNS.c.updated_at)
            .where(*_ended_between(since, until, owner))
            .order_by(*NEWEST_FIRST)
            .limit(limit)
        )
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).all()
        return [RunRevision(*row) for row in rows]

    async def load(self, ids: Sequence[str]) -> list[Run]:
        """Load these runs in no particular order, without those deleted or unreadable."""
        async with self._transaction() as connection:
            rows = (await connection.execute(_DOCUMENTS, {"ids": list(ids)})).all()
        return list(_readable(rows))


def _readable(rows: Sequence[Row[Any]]) -> Iterator[Run]:
    for _, documents in groupby(rows, key=lambda row: row[0]):
        try:
            yield build_run(StoredDocument(row.round, row.step, row.document) for row in documents)
        except StoreError:  # a damaged run must not cost the others
            continue


def _ended_between(since: str, until: str, owner: str | None) -> list[ColumnElement[bool]]:
    next_day = date.fromisoformat(until) + timedelta(days=1)
    conditions = [
        RUNS.c.created_at >= since,
        RUNS.c.created_at < next_day.isoformat(),
        RUNS.c.status != "running",
    ]
    return conditions if owner is None else [*conditions, RUNS.c.owner == storable_text(owner)]


def filter_runs(query: Select[Any], wanted: RunFilter, dialect: str) -> Select[Any]:
    """Restrict the query to runs that match the filter."""
    conditions: list[ColumnElement[bool]] = []
    if wanted.owner is not None:
        conditions.append(RUNS.c.owner == storable_text(wanted.owner))
    if wanted.since is not None:
        conditions.append(RUNS.c.created_at >= _timestamp(wanted.since))
    if wanted.until is not None:
        conditions.append(RUNS.c.created_at <= _timestamp(wanted.until))
    if wanted.status is not None:
        conditions.append(RUNS.c.status == _one_of(get_args(RunStatus), wanted.status, "status"))
    if wanted.tier is not None:
        conditions.append(RUNS.c.tier == _one_of(get_args(Tier), wanted.tier, "tier"))
    if wanted.worker is not None:
        used = (RUN_WORKERS.c.run_id == RUNS.c.id) & (
            RUN_WORKERS.c.worker == storable_text(wanted.worker)
        )
        conditions.append(exists().where(used))
    if wanted.cost_from is not None:
        conditions.append(RUNS.c.cost_usd >= wanted.cost_from)
    if wanted.cost_to is not None:
        conditions.append(RUNS.c.cost_usd <= wanted.cost_to)
    if wanted.text is not None:
        words = storable_text(wanted.text).lower()
        columns = (RUNS.c.question, RUNS.c.answer)
        conditions.append(or_(*(_contains(column, words, dialect) for column in columns)))
    return query.where(*conditions)


def _contains(column: ColumnElement[str | None], words: str, dialect: str) -> ColumnElement[bool]:
    # SQLite's own comparison ignores ASCII case and is twice as fast as lower(), which is Python's
    # there; Postgres compares case.
    if not (dialect == "sqlite" and words.isascii()):
        column = func.lower(column)
    return column.contains(words, autoescape=True)


def _timestamp(moment: datetime) -> str:
    try:
        return timestamp(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    except OverflowError as error:
        raise UsageError(f"{moment} is out of range in UTC; name another time") from error


def _one_of(known: tuple[str, ...], value: str, field: str) -> str:
    if value not in known:
        raise UsageError(f"unknown {field} {value!r}; expected one of {', '.join(known)}")
    return value


async def find_run_id(connection: AsyncConnection, wanted: str, owner: str | None = None) -> str:
    """Resolve an id, the beginning of one, or `last` to a full id, among the owner's runs if one
    is named."""
    if not wanted:
        raise UsageError("name a run by its id, the beginning of its id, or last")
    ids = select(RUNS.c.id).order_by(*NEWEST_FIRST).limit(MAX_CANDIDATES + 1)
    if owner is not None:
        ids = ids.where(RUNS.c.owner == storable_text(owner))
    if wanted == LAST:
        found: Sequence[str] = (await connection.execute(ids.limit(1))).scalars().all()
    else:
        starts = (storable_text(wanted), ID_PREFIX + storable_text(wanted))
        whole = ids.where(RUNS.c.id.in_(starts))
        begun = ids.where(
            or_(*(func.substr(RUNS.c.id, 1, len(start)) == start for start in starts))
        )
        found = (await connection.execute(whole)).scalars().all()
        found = found or (await connection.execute(begun)).scalars().all()
    if not found:
        raise run_not_found(wanted)
    if len(found) > 1:
        shown = ", ".join(found[:MAX_CANDIDATES]) + (", …" if len(found) > MAX_CANDIDATES else "")
        raise UsageError(f"{wanted!r} matches several runs: {shown}; give more of the id")
    return found[0]


def run_not_found(wanted: str) -> NotFound:
    """Build the error of a run that is not in the store."""
    if wanted == LAST:
        return NotFound("there is no run yet; ask something first")
    return NotFound(f"run not found: {wanted!r}; list them with: podium runs list")
