"""What was spent: a key sees its own, and who sees the runs of every key sees all of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from podium.core.run import timestamp
from podium.server.access import Principal
from podium.server.api_error import invalid
from podium.server.endpoints.auth import PrincipalDep, ServiceDep
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

router = APIRouter()


@router.get("/v1/keys", tags=["runs"])
async def keys(service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:
    """The names of the keys of which you may see the runs: your own, or every one for `admin`."""
    principal.require("runs:read")
    names = await key_names(service, principal)
    in_order = sorted(names.items(), key=lambda named: (named[1], named[0]))
    return {
        "object": "list",
        "data": [{"object": "key", "id": key_id, "name": name} for key_id, name in in_order],
    }


async def key_names(service: Service, principal: Principal) -> dict[str, str]:
    """The names of the keys that the principal may know of, by their ids: their own, or every one
    for `admin`."""
    if not principal.has_scope("admin"):
        return {principal.key_id: principal.name}
    return {key.id: key.name for key in await keys_in(await service.store.flush()).keys()}


MOST_LISTED: Final = 1_000


@router.get("/v1/audit", tags=["audit"])
async def audit(
    service: ServiceDep,
    principal: PrincipalDep,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    before: Annotated[int | None, Query(ge=1)] = None,
    since: datetime | None = None,
    actor: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    """Administrative acts, the newest first: who did what, when, to what and from where. `before`
    is the number of the last entry of the page before, `actor` a key's id or name, or a user of
    the server's machine as `user:NAME`; moments without a time zone are meant in UTC. Takes the
    scope `admin`."""
    principal.require("admin")
    log = service.audit.log
    if log is None:
        return {"object": "list", "data": [], "has_more": False}
    moment = None if since is None else _utc(since)
    found = await log.entries(since=moment, actor=actor, before=before, limit=limit + 1)
    return {
        "object": "list",
        "data": [
            {**asdict(entry), "details": json.loads(entry.details)} for entry in found[:limit]
        ],
        "has_more": len(found) > limit,
    }


def _utc(moment: datetime) -> str:
    return timestamp(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


USUAL_DAYS: Final = 30
MOST_DAYS: Final = 366
EARLIEST: Final = date.min + timedelta(days=USUAL_DAYS)
LATEST: Final = date.max - timedelta(days=1)
"""A range can end on these days and between: calendars must have what is before and after it."""

MOST_RUNS: Final = 5_000
"""Runs that are looked through for what their workers cost, the newest of the range."""


@router.get("/v1/spend", tags=["spend"])
async def spend(
    service: ServiceDep,
    principal: PrincipalDep,
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
    store = await service.store.flush()
    used = await keys_in(store).usage(key_id=key_id, since=first, until=last)
    if key_id is not None:
        return spending_entries(used, ())
    return spending_entries(
        used, await statistics_in(store).daily_totals(since=first, until=last, owner="")
    )


async def _window(service: Service, principal: Principal, first: str, last: str) -> DigestWindow:
    principal.require("runs:read")
    owner = None if principal.has_scope("admin") else principal.key_id
    accounts = statistics_in(await service.store.flush())
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
