"""`podium pool`: list the workers, and check that each one answers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import typer

from podium.cli import options
from podium.cli.app import SubcommandGroup
from podium.cli.doctor import mini_tier_lines
from podium.cli.models import fetch, worker_weights
from podium.cli.options import PoolOptions, load_settings, with_option_groups
from podium.cli.output import (
    ExitCode,
    describe_price,
    echo,
    echo_error,
    echo_json,
    format_seconds,
    format_usd,
    pluralize,
    to_one_line,
)
from podium.client.assembly import connect_endpoints, load_router
from podium.client.documents import profile_document
from podium.conductors import TierRouter
from podium.config import Settings, WorkerSettings
from podium.core.errors import PodiumError
from podium.core.pool import WorkerProfile
from podium.core.request import Request, user
from podium.core.retry import BreakerPolicy
from podium.core.worker import Worker
from podium.workers import Http

app = typer.Typer(cls=SubcommandGroup, rich_markup_mode=None, add_completion=False)

CHECK_REQUEST: Final = Request((user("Reply with the word ok."),), max_tokens=16)
"""Vendors allow no fewer tokens than these."""

CHECK_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCheck:
    """The result of one check request. `error` is None if the worker answered."""

    worker: str
    latency_ms: float | None = None
    cost_usd: float | None = None
    error: str | None = None


@app.command("list")
@with_option_groups
def list_(pool: options.PoolFiles, json: options.Json = False) -> None:
    """List the workers with their prices and capabilities; nothing is sent to them."""
    settings = asyncio.run(_load_settings(pool))
    if json:
        echo_json([profile_document(worker.profile) for worker in settings.workers])
        return
    echo(f"from {settings.source}")
    for index, worker in enumerate(settings.workers):
        echo(f"  {index} {to_one_line(_describe(worker.profile))}")
    echo(_breaker_line(settings.breaker))


@app.command()
@with_option_groups
def check(
    pool: options.WithoutConductor,
    json: options.Json = False,
) -> None:
    """Send every model one tiny request; exit code 1 if one does not answer."""
    if not check_workers(pool, json=json):
        raise typer.Exit(ExitCode.FAILED)


def check_workers(pool: PoolOptions, *, json: bool = False) -> bool:
    settings, results = asyncio.run(_check(pool))
    if json:
        _print_results(settings, results)
    else:
        for result in results:
            echo(to_one_line(_result_line(settings[result.worker].profile, result)))
        if others := [one.name for one in settings.pool if not one.is_model]:
            echo(to_one_line(f"not asked, because they are not models: {', '.join(others)}"))
        for line in mini_tier_lines(settings):
            echo(to_one_line(line))
    failed = [result.worker for result in results if result.error is not None]
    if failed:
        echo_error(f"no answer from {', '.join(failed)}; fix it, or remove it from the pool")
    return not failed


def _print_results(settings: Settings, results: Sequence[WorkerCheck]) -> None:
    """Print JSON; `router` names the mini tier's router if it may choose the worker."""
    router = load_router(settings)
    for warning in router.warnings if router is not None else ():
        echo_error(warning)
    echo_json(
        [_result_document(settings[result.worker].profile, result, router) for result in results]
    )


async def _load_settings(pool: PoolOptions) -> Settings:
    settings = await load_settings(pool, os.environ)
    for warning in settings.warnings:
        echo_error(warning)
    return settings


async def _check(pool: PoolOptions) -> tuple[Settings, list[WorkerCheck]]:
    settings = await _load_settings(pool)
    return settings, await check_models(settings, offline=pool.offline)


async def check_models(
    settings: Settings, *, offline: bool = False, seconds: float = CHECK_TIMEOUT
) -> list[WorkerCheck]:
    """Send every model one tiny request."""
    http = Http()
    models = [worker for worker in settings.workers if worker.profile.is_model]
    try:
        return await asyncio.gather(
            *(_check_worker(worker, http, offline, seconds) for worker in models)
        )
    finally:
        await http.close()


async def _check_worker(
    worker: WorkerSettings, http: Http, offline: bool, seconds: float
) -> WorkerCheck:
    profile = worker.profile
    try:
        for model in worker_weights(worker):
            await fetch(model, offline=offline)
        async with connect_worker(worker, http) as connected, asyncio.timeout(seconds):
            started = time.perf_counter()
            reply = await connected.reply(CHECK_REQUEST)
            latency = time.perf_counter() - started
    except TimeoutError:
        return WorkerCheck(worker=profile.name, error=f"no reply within {CHECK_TIMEOUT:g} s")
    except PodiumError as error:
        return WorkerCheck(worker=profile.name, error=str(error))
    return WorkerCheck(
        worker=profile.name,
        latency_ms=latency * 1000,
        cost_usd=profile.price.cost(reply.usage) if profile.price else None,
    )


@asynccontextmanager
async def connect_worker(settings: WorkerSettings, http: Http) -> AsyncIterator[Worker]:
    """Connect to a worker, and release what it holds, such as a loaded model, afterwards."""
    worker = connect_endpoints(settings, os.environ, http)
    try:
        yield worker
    finally:
        close = getattr(worker, "close", None)
        if close is not None:
            await close()


def _breaker_line(policy: BreakerPolicy) -> str:
    if not policy.enabled:
        return "circuit breaker: off; a worker is called however often it fails"
    return (
        f"circuit breaker: opens for {format_seconds(policy.cooldown_seconds)} or more after "
        f"{pluralize(policy.consecutive_failures, 'failure')} in a row, or when "
        f"{policy.failure_rate:.0%} of {policy.window} calls have failed"
    )


def _describe(profile: WorkerProfile) -> str:
    parts = [f"{profile.provider}/{profile.model}", describe_price(profile.price)]
    if profile.limits.context_window:
        parts.append(f"context window {profile.limits.context_window:,}")
    parts += sorted(profile.capabilities)
    if profile.fallback:
        parts.append(f"falls back to {profile.fallback}")
    description = f": {profile.description}" if profile.description else ""
    return f"{profile.name} ({', '.join(parts)}){description}"


def _result_line(profile: WorkerProfile, result: WorkerCheck) -> str:
    if result.latency_ms is None:
        return f"failed: {result.worker}: {result.error}"
    used = f"{format_seconds(result.latency_ms / 1000)}, this cost {format_usd(result.cost_usd)}"
    return f"ok: {_describe(profile)}; {used}"


def _result_document(
    profile: WorkerProfile, result: WorkerCheck, router: TierRouter | None
) -> dict[str, Any]:
    known = router if router is not None and router.router.knows(profile) else None
    return {
        "worker": result.worker,
        "ok": result.error is None,
        "latency_ms": result.latency_ms,
        "cost_usd": result.cost_usd,
        "error": result.error,
        "price": asdict(profile.price) if profile.price else None,
        "capabilities": sorted(profile.capabilities),
        "router": known.router_fingerprint if known else None,
    }
