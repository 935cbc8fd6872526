"""Lists of runs as queries: what a summary is read from, and which runs a filter leaves.

Every list is read along an index, the newest run first, until the page is full. Whatever a filter
looks at is in an index too, so that nothing of the runs that it leaves out is read; only a search
for words reads their questions and answers. Nothing here touches a database.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, get_args

from sqlalchemy import ColumnElement, Select, exists, func, literal, or_, select

from podium.errors import UsageError
from podium.run import RunStatus, Tier, timestamp
from podium.store.base import SUMMARY_CHARACTERS, RunFilter
from podium.store.documents import plain
from podium.store.tables import ROUNDS, RUNS, STEPS, WORKERS

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
