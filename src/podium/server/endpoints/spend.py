"""What was spent: a key sees its own, and who sees the runs of every key sees all of it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from podium.server.access import Principal
from podium.server.api_error import invalid
from podium.server.endpoints.auth import Admitted, Serving
from podium.server.endpoints.key_names import key_names
from podium.server.service import Service
from podium.server.statistics.spending import (
    By,
    SpendingEntry,
    SpendingGroup,
    group_by_worker,
    group_spending,
    spending_entries,
    total_spending,
)
from podium.server.statistics.workers import DigestWindow
from podium.store import keys_in, statistics_in

router = APIRouter(prefix="/v1/spend", tags=["spend"])

USUAL_DAYS: Final = 30
MOST_DAYS: Final = 366
EARLIEST: Final = date.min + timedelta(days=USUAL_DAYS)
LATEST: Final = date.max - timedelta(days=1)
"""A range can end on these days and between: calendars must have what is before and after it."""

MOST_RUNS: Final = 5_000
"""Runs that are looked through for what their workers cost, the newest of the range."""


@router.get("")
async def spend(
    service: Serving,
    principal: Admitted,
    since: Annotated[date | None, Query(alias="from", description="the first day, of UTC")] = None,
    until: Annotated[date | None, Query(alias="to", description="the last day, of UTC")] = None,
    by: By = "day",
) -> dict[str, Any]:
    """What was spent from one day to another, both included, by key, tier, worker or day; the
    last 30 days unless said otherwise. Requests of which the cost is unknown are counted apart.
    `by=worker` takes the scope `runs:read`, for only runs tell who worked."""
    first, last = _span(since, until)
    sees_all = principal.has_scope("admin")
    spent = await _entries(service, None if sees_all else principal.key_id, first, last)
    whole = total_spending(spent)
    document: dict[str, Any] = {
        "object": "spend",
        "from": first,
        "to": last,
        "by": by,
        "key": None if sees_all else principal.name,
        "total": asdict(whole),
    }
    if by == "worker":
        window = await _window(service, principal, first, last)
        groups = await asyncio.to_thread(group_by_worker, spent, window.digests, first, last)
        rest = whole.cost_usd - sum(each.total.cost_usd for each in groups)
        document["elsewhere_usd"] = max(0.0, rest)
        document["runs"] = {
            "counted": len(window.digests),
            "is_whole": window.is_whole,
            "left_out": window.left_out,
        }
    else:
        groups = group_spending(spent, by)
    names = await key_names(service, principal) if by == "key" else {}
    document["groups"] = [_group(group, by, names) for group in groups]
    return document


def _span(since: date | None, until: date | None) -> tuple[str, str]:
    last = until or datetime.now(UTC).date()
    if not EARLIEST <= last <= LATEST:
        raise invalid("to", f"to is {last}; it is a day from {EARLIEST} to {LATEST}")
    first = since or last - timedelta(days=USUAL_DAYS - 1)
    if first > last:
        raise invalid("from", f"from is {first}, which is after to, {last}; swap them")
    if (last - first).days >= MOST_DAYS:
        raise invalid(
            "from", f"from {first} to {last} is more than {MOST_DAYS} days; ask for fewer at a time"
        )
    return first.isoformat(), last.isoformat()


async def _entries(
    service: Service, key_id: str | None, first: str, last: str
) -> list[SpendingEntry]:
    """What the books of keys say, and for who sees all also the runs that were without one."""
    store = await service.keeper.flush()
    used = await keys_in(store).usage(key_id=key_id, since=first, until=last)
    if key_id is not None:
        return spending_entries(used, ())
    return spending_entries(
        used, await statistics_in(store).daily_totals(since=first, until=last, owner="")
    )


async def _window(service: Service, principal: Principal, first: str, last: str) -> DigestWindow:
    principal.require("runs:read")
    owner = None if principal.has_scope("admin") else principal.key_id
    accounts = statistics_in(await service.keeper.flush())
    return await service.digests.between(
        accounts, since=first, until=last, owner=owner, limit=MOST_RUNS
    )


def _group(group: SpendingGroup, by: By, names: dict[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": group.name,
        "total": asdict(group.total),
        "days": [{"day": day, **asdict(spent)} for day, spent in group.days.items()],
    }
    if by == "key":
        document["key_name"] = names.get(group.name)
    return document
