"""Accounting: spending and the audit log.

A key sees its own spending; with the scope `admin`, everything is visible. Spending of keys comes
from their usage records, spending without a key from stored runs; no request is in both. Only runs
know their workers, so the rest is `unattributed_usd` by worker. Unknown amounts are counted, not
summed.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query

from podium.core.request import add
from podium.core.run import timestamp
from podium.server.access import Principal
from podium.server.api_error import invalid
from podium.server.endpoints.http import PrincipalDep, ServiceDep
from podium.server.endpoints.pool import best_worker
from podium.server.model_catalog import parse_tier
from podium.server.service import Service
from podium.server.worker_statistics import RunMetrics, RunMetricsWindow
from podium.store.keys import KeyUsage

DAY_SECONDS: Final = 86_400

GroupBy = Literal["key", "tier", "worker", "day"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """A sum of spending. `requests` come from clients, `calls` go to workers (None if unknown).
    `unknown_cost_count` and `unknown_usage_count` count what is in no sum; `assumed_usd` is what
    keys were charged for it."""

    requests: int = 0
    calls: int | None = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unknown_usage_count: int = 0
    unknown_cost_count: int = 0
    assumed_usd: float = 0.0

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            requests=self.requests + other.requests,
            calls=add(self.calls, other.calls),
            tokens=self.tokens + other.tokens,
            cost_usd=self.cost_usd + other.cost_usd,
            unknown_usage_count=self.unknown_usage_count + other.unknown_usage_count,
            unknown_cost_count=self.unknown_cost_count + other.unknown_cost_count,
            assumed_usd=self.assumed_usd + other.assumed_usd,
        )


NOTHING = Spending()


@dataclass(frozen=True, slots=True)
class SpendingGroup:
    """Spending of one key, tier, worker or day, by day."""

    name: str
    days: Mapping[str, Spending]

    @property
    def total(self) -> Spending:
        return sum(self.days.values(), NOTHING)


def _spent(usage: KeyUsage) -> Spending:
    return Spending(
        requests=usage.requests,
        calls=None,
        tokens=usage.input_tokens + usage.output_tokens,
        cost_usd=usage.cost_usd,
        unknown_usage_count=usage.unknown_usage_count,
        unknown_cost_count=usage.unknown_cost_count,
        assumed_usd=usage.assumed_usd,
    )


GATEWAY = "gateway"
"""Stands among the tiers for workers called by name."""

_GROUP_NAMES: Final[dict[GroupBy, Callable[[KeyUsage], str]]] = {
    "key": lambda usage: usage.key_id,
    "tier": lambda usage: parse_tier(usage.model) or GATEWAY,
    "day": lambda usage: usage.day,
}


def group_spending(used: Iterable[KeyUsage], by: GroupBy) -> list[SpendingGroup]:
    """Group by key, tier or day; most expensive first, days in order. Only runs know workers."""
    groups = _group((_GROUP_NAMES[by](usage), usage.day, _spent(usage)) for usage in used)
    return sorted(groups, key=lambda group: group.name) if by == "day" else groups


def group_by_worker(
    used: Iterable[KeyUsage], runs: Iterable[RunMetrics], since: str, until: str
) -> list[SpendingGroup]:
    """Group by worker: calls in runs, and requests by its name. Calls after midnight in a run of
    the last day count for that day."""
    spent = []
    for run in runs:
        is_known = run.is_cost_known
        for call in run.calls:
            amount = Spending(
                calls=1,
                tokens=call.tokens or 0,
                unknown_usage_count=int(call.tokens is None),
                cost_usd=call.cost_usd or 0.0 if is_known else 0.0,
                unknown_cost_count=int(call.cost_usd is None),
            )
            day = min(max(_day_of(int(call.at // DAY_SECONDS)), since), until)
            spent.append((call.worker, day, amount))
    spent += [  # none of these calls is in a run
        (usage.model, usage.day, replace(_spent(usage), calls=0))
        for usage in used
        if parse_tier(usage.model) is None
    ]
    return _group(spent)


@lru_cache(maxsize=4096)
def _day_of(number: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=number)).isoformat()


def total_spending(used: Iterable[KeyUsage]) -> Spending:
    return sum(map(_spent, used), NOTHING)


def _group(spent: Iterable[tuple[str, str, Spending]]) -> list[SpendingGroup]:
    found = defaultdict[str, dict[str, Spending]](dict)
    for name, day, amount in spent:
        found[name][day] = found[name].get(day, NOTHING) + amount
    groups = [SpendingGroup(name, dict(sorted(days.items()))) for name, days in found.items()]
    return sorted(groups, key=lambda group: (-group.total.cost_usd, group.name))


router = APIRouter()


async def key_names(service: Service, principal: Principal) -> dict[str, str]:
    if not principal.has_scope("admin"):
        return {principal.key_id: principal.name}
    return {key.id: key.name for key in await (await service.store.flush()).keys.keys()}


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
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    moment = None if since is None else timestamp(since)
    found = await log.entries(since=moment, actor=actor, before=before, limit=limit + 1)
    return {
        "object": "list",
        "data": [
            {**asdict(entry), "details": json.loads(entry.details)} for entry in found[:limit]
        ],
        "has_more": len(found) > limit,
    }


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
    by: GroupBy = "day",
) -> dict[str, Any]:
    """Return spending from one day to another, both included, by key, tier, worker or day; the last
    30 days by default. Requests of unknown cost are counted separately. `by=worker` requires the
    scope `runs:read`."""
    first, last = _read_range(since, until)
    is_admin = principal.has_scope("admin")
    spent = await _usage(service, None if is_admin else principal.key_id, first, last)
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
        groups = await asyncio.to_thread(group_by_worker, spent, window.runs, first, last)
        rest = whole.cost_usd - sum(item.total.cost_usd for item in groups)
        document["unattributed_usd"] = max(0.0, rest)
        document["runs"] = {
            "counted": len(window.runs),
            "is_complete": window.is_complete,
            "unreadable_runs": window.unreadable_runs,
        }
    else:
        groups = group_spending(spent, by)
    names = await key_names(service, principal) if by == "key" else {}
    document["groups"] = [_group_document(group, by, names) for group in groups]
    return document


@router.get("/v1/spend/single-worker", tags=["spend"])
async def single_worker_spending(
    service: ServiceDep,
    principal: PrincipalDep,
    since: Annotated[date | None, Query(alias="from", description="first day, in UTC")] = None,
    until: Annotated[date | None, Query(alias="to", description="last day, in UTC")] = None,
) -> dict[str, Any]:
    """Estimate what the runs of these days would have cost with the best single worker alone: it
    reads what the first worker read, and writes as many tokens as the answer has. Runs of unknown
    cost are left out. Requires the scope `runs:read`."""
    first, last = _read_range(since, until)
    window = await _window(service, principal, first, last)
    worker = best_worker(service, principal)
    price = None if worker is None else service.pool[worker].price
    runs, spent, alone = 0, 0.0, 0.0
    for run in window.runs:
        cost = (
            None
            if price is None or run.single_worker_usage is None
            else price.cost(run.single_worker_usage)
        )
        if cost is not None and run.is_cost_known:
            runs, alone = runs + 1, alone + cost
            spent += sum(call.cost_usd or 0.0 for call in run.calls)
    return {
        "object": "spend.single_worker",
        "from": first,
        "to": last,
        "worker": worker,
        "runs": runs,
        "cost_usd": spent,
        "single_worker_usd": alone,
        "skipped_runs": len(window.runs) - runs + window.unreadable_runs,
        "is_complete": window.is_complete,
    }


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


async def _usage(service: Service, key_id: str | None, first: str, last: str) -> list[KeyUsage]:
    """Return the usage of keys, and for administrators also that of runs without a key."""
    store = await service.store.flush()
    used = await store.keys.usage(key_id=key_id, since=first, until=last)
    if key_id is not None:
        return used
    return used + await store.statistics.daily_totals(since=first, until=last, owner="")


async def _window(
    service: Service, principal: Principal, first: str, last: str
) -> RunMetricsWindow:
    principal.require("runs:read")
    owner = None if principal.has_scope("admin") else principal.key_id
    statistics = (await service.store.flush()).statistics
    return await service.run_metrics.load(
        statistics, since=first, until=last, owner=owner, limit=MAX_RUNS
    )


def _group_document(group: SpendingGroup, by: GroupBy, names: dict[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": group.name,
        "total": asdict(group.total),
        "days": [{"day": day, **asdict(spent)} for day, spent in group.days.items()],
    }
    if by == "key":
        document["key_name"] = names.get(group.name)
    return document
