"""The models and the pool, with statistics over the runs that the caller may see.

Workers that a key excludes are not shown to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request as HttpRequest

from podium.client.documents import profile_document
from podium.core.budget import Budget, Ledger
from podium.core.errors import PodiumError
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import Request, user
from podium.core.run import total_cost
from podium.core.worker import Worker
from podium.engine import BudgetedCaller
from podium.server.access import Principal
from podium.server.api_error import ApiError
from podium.server.dialects.fields import flag, read_object
from podium.server.endpoints.http import (
    PrincipalDep,
    ServiceDep,
    is_anthropic_client,
    parse_json_object,
)
from podium.server.endpoints.openapi import named_body
from podium.server.model_catalog import ModelEntry
from podium.server.service import Service
from podium.server.worker_statistics import (
    NOTHING,
    RunMetricsWindow,
    error_kind,
    format_timestamp,
    worker_stats,
)
from podium.store.audit import AuditAction

router = APIRouter(prefix="/v1/pool", tags=["pool"])

DEFAULT_DAYS: Final = 7
MAX_DAYS: Final = 90
MAX_RUNS: Final = 2_000
"""Runs that are read at most, the newest of the window."""

CHECK_SECONDS: Final = 60.0


@router.get("")
async def pool(
    service: ServiceDep,
    principal: PrincipalDep,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS, description="days to look back")] = (
        DEFAULT_DAYS
    ),
) -> dict[str, Any]:
    """Return every worker with its statistics of the last days: calls, failures, latency, cost and
    roles, with example steps. Unknown values are null. `breaker` is the state of this process's
    circuit breaker: `closed`, `open` or `half-open`. `best` is the worker for a whole question, of
    those that the caller may request. Requires the scope `runs:read`."""
    principal.require("runs:read")
    now = datetime.now(UTC)
    since = (now - timedelta(days=days - 1)).date().isoformat()
    window = await service.run_metrics.load(
        (await service.store.flush()).statistics,
        since=since,
        until=now.date().isoformat(),
        owner=None if principal.has_scope("admin") else principal.key_id,
        limit=MAX_RUNS,
    )
    found = await asyncio.to_thread(worker_stats, window.runs)  # slow for thousands of runs
    planner = await _planner(service)
    breakers = (await service.podium.open()).call_policy.breakers
    profiles = [*service.pool]
    if planner is not None and planner.name not in service.pool.names:
        profiles.append(planner)
    return {
        "object": "pool",
        "key": None if principal.has_scope("admin") else principal.name,
        "best": best_worker(service, principal),
        "window": {
            "from": since,
            "to": now.isoformat(timespec="milliseconds"),
            "days": days,
            "runs": len(window.runs),
            "is_complete": window.is_complete,
            "unreadable_runs": window.unreadable_runs,
        },
        "workers": [
            {
                **profile_document(profile),
                "is_worker": profile.name in service.pool.names,
                "is_planner": profile == planner,
                "is_enabled": profile.name not in service.disabled.names,
                **found.get(profile.name, NOTHING),
                "breaker": breakers.state(profile.name),
                "gateway_requests": _gateway_requests(profile.name, service)
                if principal.has_scope("admin")
                else None,
            }
            for profile in profiles
            if _is_visible(profile.name, profile.provider, principal)
        ],
        "removed_workers": _removed_workers(window, found, profiles, principal),
    }


CHECK_REQUEST: Final = Request((user("Reply with the word ok."),), max_tokens=16)


@router.post("/{worker}/check")
async def check(worker: str, service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:
    """Send the worker one tiny request now: how long it took, its cost, or its error. Requires the
    scope `admin`."""
    found = await _find(worker, service, principal)
    runtime = await service.podium.open()
    policy = runtime.call_policy
    policy.bind()
    caller = BudgetedCaller(policy, Ledger(Budget()), policy.clock())
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await caller(found, CHECK_REQUEST)
        error = None
    except TimeoutError:
        error = f"no reply within {CHECK_SECONDS:g} s"
    except PodiumError as failure:
        error = str(failure)
    last = caller.attempts[-1] if caller.attempts else None
    return {
        "object": "worker.check",
        "worker": worker,
        "error": error,
        "error_kind": None if error is None else error_kind(error),
        "seconds": None if last is None else (last.finished_ms - last.started_ms) / 1000,
        "cost_usd": total_cost(iter(caller.attempts)),
    }


@router.patch("/{worker}", openapi_extra=named_body("WorkerSwitch"))
async def switch(
    worker: str, request: HttpRequest, service: ServiceDep, principal: PrincipalDep
) -> dict[str, Any]:
    """Enable or disable a worker for new runs; runs under way keep it. Running servers follow
    within seconds. Requires the scope `admin`."""
    await _find(worker, service, principal)
    body = read_object(parse_json_object(await request.body())).reject_unknown(("is_enabled",))
    is_enabled = body.required("is_enabled", flag)
    others = set(service.pool.names) - service.disabled.names - {worker}
    if not is_enabled and not others:
        raise ApiError("conflict", f"{worker!r} is the last enabled worker; enable another first")
    action: AuditAction = "worker enabled" if is_enabled else "worker disabled"
    await service.audit.record(action, principal, worker)
    await service.disabled.switch(worker, on=is_enabled)
    return {"object": "worker", "name": worker, "is_enabled": is_enabled}


async def _find(name: str, service: Service, principal: Principal) -> Worker:
    principal.require("admin")
    for worker in (await service.podium.open()).assembly.workers:
        if worker.profile.name == name:
            return worker
    raise ApiError("not_found", f"worker not found: {name[:80]!r}; GET /v1/pool lists the workers")


def best_worker(service: Service, principal: Principal) -> str | None:
    """Return the worker for a whole question, of those that the principal may use."""
    unavailable = {
        profile.name
        for profile in service.pool
        if profile.provider == CONDUCTOR_PROVIDER
        or not principal.can_list(profile.name, profile.provider)
    }
    return (
        None
        if len(unavailable) == len(service.pool)
        else service.pool.without(unavailable).most_expensive.name
    )


async def _planner(service: Service) -> WorkerProfile | None:
    planner = (await service.podium.open()).assembly.conductor.worker
    return None if planner is None else planner.profile


def _is_visible(name: str, provider: str, principal: Principal) -> bool:
    return name not in principal.exclude and provider not in principal.exclude


def _removed_workers(
    window: RunMetricsWindow,
    found: dict[str, dict[str, Any]],
    now: list[WorkerProfile],
    principal: Principal,
) -> list[dict[str, Any]]:
    """Return workers of these runs that are no longer in the pool."""
    names = {profile.name for profile in now}
    providers = {
        name: provider
        for run in window.runs
        for name, provider in run.providers.items()
        if name not in names
    }
    return [
        {"name": name, "provider": providers.get(name, ""), **stats}
        for name, stats in found.items()
        if name not in names and _is_visible(name, providers.get(name, ""), principal)
    ]


def _gateway_requests(name: str, service: Service) -> dict[str, Any]:
    """Count requests for the worker by its own name since the server started."""
    counts = service.metrics.requests_by_status(name)
    requests = sum(counts.values())
    failed = sum(count for status, count in counts.items() if int(status) >= 500)
    since = format_timestamp(service.started)
    return {"requests": requests, "failed": failed, "since": since}


models_router = APIRouter(prefix="/v1/models", tags=["models"])


@models_router.get("")
async def models(
    request: HttpRequest, service: ServiceDep, principal: PrincipalDep
) -> dict[str, Any]:
    """List the tiers and the workers; in Anthropic's format with the header `anthropic-version`."""
    entries = list(_visible(service, principal))
    if not is_anthropic_client(request):
        return {"object": "list", "data": [_openai_entry(entry, service) for entry in entries]}
    return {
        "data": [_anthropic_entry(entry, service) for entry in entries],
        "has_more": False,
        "first_id": entries[0].name if entries else None,
        "last_id": entries[-1].name if entries else None,
    }


@models_router.get("/{name:path}")
async def model(
    request: HttpRequest, name: str, service: ServiceDep, principal: PrincipalDep
) -> dict[str, Any]:
    """Return one model, also by its pinned name."""
    listed = service.catalog.find(name).name
    for item in _visible(service, principal):
        if item.name == listed:
            entry = replace(item, name=name)
            return (_anthropic_entry if is_anthropic_client(request) else _openai_entry)(
                entry, service
            )
    raise ApiError("not_found", f"model not found for this API key: {name[:200]!r}", field="model")


def _visible(service: Service, principal: Principal) -> Iterable[ModelEntry]:
    return (item for item in service.catalog if principal.can_list(item.name, item.owner))


def _openai_entry(entry: ModelEntry, service: Service) -> dict[str, Any]:
    return {
        "id": entry.name,
        "object": "model",
        "created": int(service.started),
        "owned_by": entry.owner,
    }


def _anthropic_entry(entry: ModelEntry, service: Service) -> dict[str, Any]:
    created = datetime.fromtimestamp(service.started, UTC).isoformat(timespec="seconds")
    return {
        "type": "model",
        "id": entry.name,
        "display_name": entry.description or entry.name,
        "created_at": created.replace("+00:00", "Z"),
    }
