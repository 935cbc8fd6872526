"""`podium pool`: who is in the pool, and whether each of them answers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer

from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.doctor import mini_lines
from podium.cli.formatting import counted, money, one_line, price, seconds
from podium.cli.models import fetch, weights_of
from podium.cli.output import Exit, complain, say, say_json
from podium.cli.settings import Choice, settings_for
from podium.client.assembly import load_router
from podium.conductors import TierRouter
from podium.config import Settings, WorkerSettings
from podium.core.errors import PodiumError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import Request, user
from podium.core.retry import BreakerPolicy
from podium.core.worker import Worker
from podium.workers import Http, connect

app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

TINY: Final = Request((user("Reply with the word ok."),), max_tokens=16)
"""What every worker is asked by `check`; vendors allow no fewer tokens than these."""

LONGEST_CHECK: Final = 60.0
"""Seconds in which a worker has to answer it."""


Stress = Annotated[
    bool, typer.Option("--stress", help="Rehearse faults: see how the pool bears them.")
]
Runs = Annotated[
    int, typer.Option("--runs", metavar="N", min=1, help="With --stress: how many workflows.")
]
Yes = Annotated[
    bool, typer.Option("--yes", help="With --stress: workers that may bill it are called too.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How one worker took the tiny request. `error` is None when it answered."""

    worker: str
    latency_ms: float | None = None
    cost_usd: float | None = None
    error: str | None = None


@app.command("list")
def list_(
    json: options.JsonList = False,
    pool: options.Pool = None,
    config: options.Config = None,
    offline: options.Offline = False,
) -> None:
    """List the workers with their prices and capabilities; nothing is sent to them."""
    choice = Choice(pool=pool, config=config, offline=offline)
    settings = asyncio.run(_settings(choice))
    if json:
        say_json([_profile_document(worker.profile) for worker in settings.workers])
        return
    say(f"from {settings.source}")
    for index, worker in enumerate(settings.workers):
        say(f"  {index} {one_line(_described(worker.profile))}")
    say(_breaker_line(settings.breaker))


@app.command()
def check(
    json: options.JsonList = False,
    pool: options.Pool = None,
    config: options.Config = None,
    exclude: options.Exclude = None,
    offline: options.Offline = False,
    stress: Stress = False,
    runs: Runs = 50,
    yes: Yes = False,
) -> None:
    """Reach every worker once with a tiny request; exit code 1 if one does not answer.

    With --stress, carry out small workflows over the pool while 20 % of all calls go wrong, on
    purpose and at random: see how its fallbacks, retries and breakers bear that. Exit code 1 if a
    run is not answered, or a bill is not right.
    """
    choice = Choice(pool=pool, config=config, exclude=frozenset(exclude or ()), offline=offline)
    if stress:
        _stress(choice, runs, json=json, agreed=yes)
        return
    settings, results = asyncio.run(_check(choice))
    if json:
        _say_results(settings, results)
    else:
        for result in results:
            say(one_line(_result_line(settings[result.worker].profile, result)))
        for line in mini_lines(settings):
            say(one_line(line))
    failed = [result.worker for result in results if result.error is not None]
    if failed:
        complain(f"no answer from {', '.join(failed)}; put it right, or leave it out of the pool")
        raise typer.Exit(Exit.FAILED)


def _say_results(settings: Settings, results: Sequence[Checked]) -> None:
    """As JSON; `router` is the one of the mini tier, where it may choose that worker."""
    mini = load_router(settings)
    for warning in mini.warnings if mini is not None else ():
        complain(warning)
    say_json(
        [_result_document(settings[result.worker].profile, result, mini) for result in results]
    )


def _stress(choice: Choice, runs: int, *, json: bool, agreed: bool) -> None:
    from podium.cli.stress import stressed  # it takes the whole library

    settings = asyncio.run(_settings(choice))
    paid = [worker.profile.name for worker in settings.workers if not _is_free(worker.profile)]
    if paid and not agreed:
        raise UsageError(
            f"--stress makes some {3 * runs} tiny calls, which may be billed by "
            f"{', '.join(paid)}; add --yes to make them"
        )
    if not json:
        say(f"{counted(runs, 'run')} over {counted(len(settings.workers), 'worker')} with faults")
    found = asyncio.run(stressed(settings, runs, offline=choice.offline))
    if json:
        say_json(found.document)
    else:
        for line in found.lines:
            say(line)
    if found.answered < found.runs or found.misstated:
        complain(
            "the pool does not bear that; give workers a fallback, or let [retry] and [breaker] "
            "have more patience"
        )
        raise typer.Exit(Exit.FAILED)


def _is_free(profile: WorkerProfile) -> bool:
    return profile.price is not None and profile.price.is_free


async def _settings(choice: Choice) -> Settings:
    settings = await settings_for(choice, os.environ)
    for warning in settings.warnings:
        complain(warning)
    return settings


async def _check(choice: Choice) -> tuple[Settings, list[Checked]]:
    settings = await _settings(choice)
    http = Http()
    try:
        results = await asyncio.gather(
            *(
                _reach(worker, http, offline=choice.offline)
                for worker in settings.workers
                if worker.profile.provider != CONDUCTOR_PROVIDER  # it would have to plan
            )
        )
    finally:
        await http.close()
    return settings, results


async def _reach(worker: WorkerSettings, http: Http, *, offline: bool) -> Checked:
    profile = worker.profile
    try:
        for model in weights_of(worker):
            await fetch(model, offline=offline)
        async with connected(worker, http) as reached, asyncio.timeout(LONGEST_CHECK):
            began = time.perf_counter()
            reply = await reached.reply(TINY)
            latency = time.perf_counter() - began
    except TimeoutError:
        return Checked(worker=profile.name, error=f"no reply within {LONGEST_CHECK:g} s")
    except PodiumError as error:
        return Checked(worker=profile.name, error=str(error))
    return Checked(
        worker=profile.name,
        latency_ms=latency * 1000,
        cost_usd=profile.price.cost(reply.usage) if profile.price else None,
    )


@asynccontextmanager
async def connected(settings: WorkerSettings, http: Http) -> AsyncIterator[Worker]:
    """The worker, which gives up what it holds, such as a loaded model, once it was asked."""
    worker = connect(settings.profile, settings.endpoint(os.environ), http)
    try:
        yield worker
    finally:
        close = getattr(worker, "close", None)
        if close is not None:
            await close()


def _breaker_line(policy: BreakerPolicy) -> str:
    if not policy.on:
        return "a worker is called however often it fails: [breaker] is off"
    return (
        f"a worker is left alone for {seconds(policy.cooling_seconds)} and more after "
        f"{counted(policy.failures, 'failure')} in a row, or when {policy.share:.0%} of "
        f"{policy.window} calls have failed"
    )


def _described(profile: WorkerProfile) -> str:
    parts = [f"{profile.provider}/{profile.model}", price(profile.price)]
    if profile.limits.context_window:
        parts.append(f"window {profile.limits.context_window:,}")
    parts += sorted(profile.capabilities)
    if profile.fallback:
        parts.append(f"falls back to {profile.fallback}")
    described = f": {profile.description}" if profile.description else ""
    return f"{profile.name} ({', '.join(parts)}){described}"


def _result_line(profile: WorkerProfile, result: Checked) -> str:
    if result.latency_ms is None:
        return f"failed: {result.worker}: {result.error}"
    took = f"{seconds(result.latency_ms / 1000)}, this cost {money(result.cost_usd)}"
    return f"ok: {_described(profile)}; {took}"


def _profile_document(profile: WorkerProfile) -> dict[str, Any]:
    return {**asdict(profile), "capabilities": sorted(profile.capabilities)}


def _result_document(
    profile: WorkerProfile, result: Checked, mini: TierRouter | None
) -> dict[str, Any]:
    return {
        "worker": result.worker,
        "ok": result.error is None,
        "latency_ms": result.latency_ms,
        "cost_usd": result.cost_usd,
        "error": result.error,
        "price": asdict(profile.price) if profile.price else None,
        "capabilities": sorted(profile.capabilities),
        "router": mini.router_fingerprint
        if mini is not None and mini.router.knows(profile)
        else None,
    }
