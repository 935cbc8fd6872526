"""Which run is meant: by its id, by the beginning of it, or by the word `last`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.errors import NotFound, UsageError
from podium.store.base import LAST
from podium.store.documents import plain
from podium.store.sql_listing import NEWEST_FIRST
from podium.store.tables import RUNS

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
