"""Accounting: spending, the audit log and the names of keys.

A key sees its own spending; with the scope `admin`, everything is visible.
"""

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
    """List the keys whose runs are visible: the caller's own, or all for `admin`."""
    principal.require("runs:read")
    names = await key_names(service, principal)
    ordered = sorted(names.items(), key=lambda named: (named[1], named[0]))
    return {
        "object": "list",
        "data": [{"object": "key", "id": key_id, "name": name} for key_id, name in ordered],
    }


async def key_names(service: Service, principal: Principal) -> dict[str, str]:
    """Return the names of the visible keys by id."""
    if not principal.has_scope("admin"):
        return {principal.key_id: principal.name}
    return {key.id: key.name for key in await keys_in(await service.store.flush()).keys()}


MAX_LISTED: Final = 1_000


@router.get("/v1/audit", tags=["audit"])
async def audit(
    service: ServiceDep,
    principal: PrincipalDep,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED)] = 100,
    before: Annotated[int | None, Query(ge=1)] = None,
    since: datetime | None = None,
    actor: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    """List administrative actions, newest first. `before` is the number of the last entry of the
    previous page, `actor` a key's id or name, or `user:NAME` for a user of the server's machine;
    times without a time zone are UTC. Requires the scope `admin`."""
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


DEFAULT_DAYS: Final = 30
MAX_DAYS: Final = 366
EARLIEST: Final = date.min + timedelta(days=DEFAULT_DAYS)
LATEST: Final = date.max - timedelta(days=1)
"""Bounds of a range's last day: the days around it must be valid dates."""

MAX_RUNS: Final = 5_000
"""Runs that `by=worker` reads at most, the newest of the range."""


@router.get("/v1/spend", tags=["spend"])
async def spend(
    service: ServiceDep,
    principal: PrincipalDep,
    since: Annotated[date | None, Query(alias="from", description="first day, in UTC")] = None,
    until: Annotated[date | None, Query(alias="to", description="last day, in UTC")] = None,
    by: By = "day",
) -> dict[str, Any]:
    """Return spending from one day to another, both included, by key, tier, worker or day; the last
    30 days by default. Requests of unknown cost are counted separately. `by=worker` requires the
    scope `runs:read`."""
    first, last = _read_range(since, until)
    is_admin = principal.has_scope("admin")
    spent = await _entries(service, None if is_admin else principal.key_id, first, last)
    whole = total_spending(spent)
    document: dict[str, Any] = {
        "object": "spend",
        "from": first,
        "to": last,
        "by": by,
        "key": None if is_admin else principal.name,
        "total": asdict(whole),
    }
    if by == "worker":
        window = await _window(service, principal, first, last)
        groups = await asyncio.to_thread(group_by_worker, spent, window.digests, first, last)
        rest = whole.cost_usd - sum(item.total.cost_usd for item in groups)
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


def _read_range(since: date | None, until: date | None) -> tuple[str, str]:
    last = until or datetime.now(UTC).date()
    if not EARLIEST <= last <= LATEST:
        raise invalid("to", f"to: expected a day from {EARLIEST} to {LATEST}, got {last}")
    first = since or last - timedelta(days=DEFAULT_DAYS - 1)
    if first > last:
        raise invalid("from", f"from ({first}) is after to ({last})")
    if (last - first).days >= MAX_DAYS:
        raise invalid(
            "from", f"from {first} to {last} is more than {MAX_DAYS} days; request a shorter range"
        )
    return first.isoformat(), last.isoformat()


async def _entries(
    service: Service, key_id: str | None, first: str, last: str
) -> list[SpendingEntry]:
    """Return the usage of keys, and for administrators also that of runs without a key."""
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
        accounts, since=first, until=last, owner=owner, limit=MAX_RUNS
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
