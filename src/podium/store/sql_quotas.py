"""Charging runs to their keys, inside a transaction of whoever writes their end.

`charges` has a row for each run with all that it was charged so far. Two transactions that charge
the same run come one after the other, for each first makes sure of the row and then locks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date, timedelta
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Executable,
    Text,
    bindparam,
    case,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.store.keys import Charged, KeyUsage, Standing
from podium.store.quotas import RunCharge
from podium.store.rows import plain
from podium.store.tables import CHARGES, KEY_USAGE, KEYS, RUNS, TABS, adding, inserting, replacing

_USD: Final = KEY_USAGE.c.cost_usd + KEY_USAGE.c.assumed_usd
_TOKENS: Final = KEY_USAGE.c.input_tokens + KEY_USAGE.c.output_tokens + KEY_USAGE.c.assumed_tokens


def _sums(period: str, when: ColumnElement[bool]) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Money and tokens over the days that are meant; Postgres sums integers to decimals."""
    return (
        func.coalesce(func.sum(case((when, _USD), else_=0.0)), 0.0).label(f"{period}_usd"),
        func.coalesce(func.sum(case((when, _TOKENS), else_=0)), 0).label(f"{period}_tokens"),
    )


STANDING: Final = select(
    *_sums("day", KEY_USAGE.c.day == bindparam("day")),
    *_sums("month", KEY_USAGE.c.day.between(bindparam("first"), bindparam("last"))),
    func.coalesce(func.sum(_USD), 0.0).label("total_usd"),
    func.coalesce(func.sum(_TOKENS), 0).label("total_tokens"),
).where(KEY_USAGE.c.key_id == bindparam("key_id"))
"""One row, whatever was used."""


def days_of(key_id: str, day: str) -> dict[str, str]:
    """What `STANDING` must know: whose it is, and which day, in which month."""
    month = day[:7]
    return {"key_id": key_id, "day": day, "first": f"{month}-01", "last": f"{month}-31"}


def standing_of(row: RowMapping) -> Standing:
    """What a row of `STANDING` says."""
    return Standing(
        day=Charged(float(row["day_usd"]), int(row["day_tokens"])),
        month=Charged(float(row["month_usd"]), int(row["month_tokens"])),
        total=Charged(float(row["total_usd"]), int(row["total_tokens"])),
    )


AMOUNTS: Final = tuple(
    column.name for column in CHARGES.columns if column.name not in ("run_id", "key_id", "day")
)
"""What is added up of a run."""

_Place = tuple[str, str, str]
"""Key, day and model."""

DAYS_AFTER: Final = 2
"""How long it is known what a run was charged that is kept no more: longer than one is held."""

DAYS_LOOKED_AT: Final = 7
"""So that charges of the many runs that are kept are not looked at again and again."""


async def record_usage(
    connection: AsyncConnection,
    charges: Sequence[RunCharge],
    besides: Sequence[KeyUsage] = (),
    closed: Sequence[str] = (),
) -> None:
    """Charge each run what it has not been charged yet, and add what else was used; the tabs of
    these runs, and those that are closed, are charged by that. A run whose owner is no key is
    nobody's to pay for."""
    lines: dict[_Place, dict[str, Any]] = {}
    for usage in besides:
        _add(lines, usage, {name: getattr(usage, name) for name in ("requests", *AMOUNTS)})
    for used, more in await _charged(connection, charges):
        _add(lines, used, more)
    if lines:
        # In one order everywhere, or two that write of two keys could wait for each other.
        rows = [line for _, line in sorted(lines.items())]
        await connection.execute(adding(connection.dialect.name, KEY_USAGE), rows)
    if charges or closed:
        await _close_tabs(connection, [charge.run_id for charge in charges], closed)


async def _close_tabs(
    connection: AsyncConnection, run_ids: Sequence[str], closed: Sequence[str]
) -> None:
    theirs = TABS.c.run_id.in_(run_ids) | TABS.c.id.in_(closed)
    # In the order in which tabs are written, or who writes some of them could wait for this.
    locked = select(TABS.c.id).where(theirs).order_by(TABS.c.id).with_for_update()
    ids = (await connection.execute(locked)).scalars().all()
    if ids:
        await connection.execute(delete(TABS).where(TABS.c.id.in_(ids)))


async def _charged(
    connection: AsyncConnection, charges: Sequence[RunCharge]
) -> list[tuple[KeyUsage, dict[str, Any]]]:
    """Write down what each run is charged by now, and give what that is more than before."""
    latest = {charge.run_id: charge for charge in sorted(charges, key=lambda each: each.run_id)}
    if not latest:
        return []
    dialect = connection.dialect.name
    whose = [{"run": run_id, "key": charge.used.key_id} for run_id, charge in latest.items()]
    await connection.execute(_opening(dialect), whose)
    rows = select(CHARGES).where(CHARGES.c.run_id.in_(latest)).order_by(CHARGES.c.run_id)
    before = (await connection.execute(rows.with_for_update())).mappings().all()
    found = [(row, latest[row["run_id"]].used) for row in before]
    changed = [(row, used, more) for row, used in found if any((more := _more(used, row)).values())]
    if changed:
        now = [
            {"run_id": row["run_id"], "key_id": used.key_id, "day": used.day}
            | {name: row[name] + more[name] for name in AMOUNTS}
            for row, used, more in changed
        ]
        await connection.execute(replacing(dialect, CHARGES), now)
    return [(used, more) for _, used, more in changed]


async def note_gone(connection: AsyncConnection, run_ids: Sequence[str], day: str) -> None:
    """These runs were deleted on that day. What they were charged is known a while longer, for an
    end of theirs may still be on its way."""
    if run_ids:
        gone = update(CHARGES).where(CHARGES.c.run_id.in_(run_ids)).values(day=day)
        await connection.execute(gone)


async def prune_charges(connection: AsyncConnection, today: str) -> None:
    """Forget what was charged to runs that are gone for some days, or were never kept."""
    last = date.fromisoformat(today) - timedelta(days=DAYS_AFTER)
    some_days = CHARGES.c.day.between(f"{last - timedelta(days=DAYS_LOOKED_AT)}", f"{last}")
    kept = select(RUNS.c.id).where(RUNS.c.id == CHARGES.c.run_id)
    await connection.execute(delete(CHARGES).where(some_days, ~kept.exists()))


def _more(used: KeyUsage, before: RowMapping) -> dict[str, Any]:
    """What was used beyond what was charged; less than before is an older sum, and adds nothing."""
    return {name: max(0, getattr(used, name) - before[name]) for name in AMOUNTS}


def _add(lines: dict[_Place, dict[str, Any]], used: KeyUsage, more: Mapping[str, Any]) -> None:
    """Add that to the line of the same key, day and model."""
    place = (used.key_id, used.day, plain(used.model))
    line = lines.get(place)
    if line is None:
        line = lines[place] = asdict(KeyUsage(key_id=place[0], day=place[1], model=place[2]))
    for name, amount in more.items():
        line[name] += amount


@cache
def _opening(dialect: str) -> Executable:
    """Make the row of a run that was charged nothing yet, if its owner is a key."""
    nothing = [literal(0).label(name) for name in AMOUNTS]
    row = select(bindparam("run", type_=Text), KEYS.c.id, literal("").label("day"), *nothing).where(
        KEYS.c.id == bindparam("key", type_=Text)
    )
    insert = inserting(dialect, CHARGES).from_select(["run_id", "key_id", "day", *AMOUNTS], row)
    return insert.on_conflict_do_nothing(index_elements=CHARGES.primary_key)
