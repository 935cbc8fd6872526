"""What a key was charged, summed up in the database."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, bindparam, case, func, select
from sqlalchemy.engine import RowMapping

from podium.store.keys import Charged, Standing
from podium.store.tables import KEY_USAGE

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
