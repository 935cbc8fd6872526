"""`podium pool`: list the workers, check that each one answers, and stress-test the pool."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Final

import typer

from podium.cli import options
from podium.cli.app import NounGroup
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
from podium.client.assembly import assemble, connect_endpoints, default_options, load_router
from podium.client.client import AsyncPodium
from podium.conductors import TierRouter
from podium.config import Settings, WorkerSettings
from podium.core.errors import PodiumError, UsageError
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request, ResponseOptions, Usage, plausible_usage, user
from podium.core.retry import BreakerPolicy
from podium.core.run import Run
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.workers import Faults, FaultyWorker, Http

app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

CHECK_REQUEST: Final = Request((user("Reply with the word ok."),), max_tokens=16)
"""Vendors allow no fewer tokens than these."""

CHECK_TIMEOUT: Final = 60.0

STRESS_FAULTS: Final = Faults.evenly(0.2)
STRESS_CONCURRENCY: Final = 8
STRESS_MAX_TOKENS: Final = 16
"""Short answers, so that stressing a hosted pool costs little."""

STRESS_HEADINGS: Final = ("worker", "calls", "faults", "failed", "took over", "breaker opened")


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
        echo_json([_profile_document(worker.profile) for worker in settings.workers])
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
    stress: Annotated[
        bool, typer.Option("--stress", help="Inject faults and show how the pool copes.")
    ] = False,
    runs: Annotated[
        int, typer.Option("--runs", metavar="N", min=1, help="With --stress: how many workflows.")
    ] = 50,
    yes: Annotated[
        bool, typer.Option("--yes", help="With --stress: also call workers that may charge for it.")
    ] = False,
) -> None:
    """Send every worker one tiny request; exit code 1 if one does not answer.

    With --stress, run small workflows over the pool while 20 % of all calls fail at random, and
    show how fallbacks, retries and circuit breakers cope. Exit code 1 if a run is not answered, or
    a cost is wrong.
    """
    if stress:
        _stress(pool, runs, json=json, agreed=yes)
    elif not check_workers(pool, json=json):
        raise typer.Exit(ExitCode.FAILED)


def check_workers(pool: PoolOptions, *, json: bool = False) -> bool:
    """Send every worker one tiny request, print the results, and return whether all answered."""
    settings, results = asyncio.run(_check(pool))
    if json:
        _print_results(settings, results)
    else:
        for result in results:
            echo(to_one_line(_result_line(settings[result.worker].profile, result)))
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
    http = Http()
    try:
        results = await asyncio.gather(
            *(
                _check_worker(worker, http, offline=pool.offline)
                for worker in settings.workers
                if worker.profile.is_model
            )
        )
    finally:
        await http.close()
    return settings, results


async def _check_worker(worker: WorkerSettings, http: Http, *, offline: bool) -> WorkerCheck:
    profile = worker.profile
    try:
        for model in worker_weights(worker):
            await fetch(model, offline=offline)
        async with connect_worker(worker, http) as connected, asyncio.timeout(CHECK_TIMEOUT):
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
    if not policy.on:
        return "circuit breaker: off; a worker is called however often it fails"
    return (
        f"circuit breaker: opens for {format_seconds(policy.cooldown_seconds)} or more after "
        f"{pluralize(policy.failures, 'failure')} in a row, or when {policy.share:.0%} of "
        f"{policy.window} calls have failed"
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


def _profile_document(profile: WorkerProfile) -> dict[str, Any]:
    return {**asdict(profile), "capabilities": sorted(profile.capabilities)}


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


# ---- stress test


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStressReport:
    """The counts of one worker. `took_over` are steps that it did as a fallback."""

    worker: str
    calls: int
    faults: int
    failed: int
    took_over: int
    openings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StressReport:
    """The outcome of a stress test. `misstated` are calls whose recorded usage or cost differs from
    what the worker reported, `unknown_cost` calls whose cost is unknown."""

    runs: int
    answered: int
    retries: int
    fallbacks: int
    openings: int
    seconds: float
    cost_usd: float
    unknown_cost: int
    misstated: int
    errors: tuple[str, ...]
    workers: tuple[WorkerStressReport, ...]

    @property
    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        return {**asdict(self), "answered_share": self.answered / self.runs}

    @property
    def lines(self) -> Iterator[str]:
        """The report as text."""
        rows = [
            tuple(str(getattr(worker, field.name)) for field in fields(worker))
            for worker in self.workers
        ]
        widths = [max(map(len, column)) for column in zip(STRESS_HEADINGS, *rows, strict=True)]
        for row in (STRESS_HEADINGS, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield "  ".join(cells).rstrip()
        yield ""
        yield (
            f"answered {self.answered} of {pluralize(self.runs, 'run')} in "
            f"{format_seconds(self.seconds)}: {self.retries} retries, {self.fallbacks} fallbacks, "
            f"breakers opened {self.openings} times"
        )
        exact = "exact" if not self.misstated else f"WRONG for {pluralize(self.misstated, 'call')}"
        unknown = f", unknown for {pluralize(self.unknown_cost, 'call')}"
        yield f"cost {format_usd(self.cost_usd)}{unknown if self.unknown_cost else ''}: {exact}"
        for error in self.errors:
            yield f"not answered: {error}"


class RecordingWorker:
    """Records the usage of every reply that a worker returns."""

    def __init__(self, worker: FaultyWorker) -> None:
        self.profile = worker.profile
        self.worker = worker
        self.usage: Counter[Usage] = Counter()

    async def reply(self, request: Request) -> Reply:
        """Return the worker's reply."""
        reply = await self.worker.reply(request)
        self.usage[plausible_usage(reply.usage)] += 1
        return reply

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Stream the worker's reply."""
        async with aclosing(self.worker.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    self.usage[plausible_usage(piece.usage)] += 1
                yield piece


def _stress(pool: PoolOptions, runs: int, *, json: bool, agreed: bool) -> None:
    settings = asyncio.run(_load_settings(pool))
    paid = [worker.profile.name for worker in settings.workers if not _is_free(worker.profile)]
    if paid and not agreed:
        raise UsageError(
            f"--stress makes about {3 * runs} tiny calls, which {', '.join(paid)} may charge for; "
            f"add --yes to make them"
        )
    if not json:
        workers = pluralize(len(settings.workers), "worker")
        echo(f"{pluralize(runs, 'run')} over {workers} with faults")
    report = asyncio.run(run_stress_test(settings, runs, offline=pool.offline))
    if json:
        echo_json(report.document)
    else:
        for line in report.lines:
            echo(line)
    if report.answered < report.runs or report.misstated:
        echo_error(
            "the pool does not withstand that; give workers a fallback, or allow more in [retry] "
            "and [breaker]"
        )
        raise typer.Exit(ExitCode.FAILED)


def _is_free(profile: WorkerProfile) -> bool:
    return profile.price is not None and profile.price.is_free


async def run_stress_test(settings: Settings, runs: int, *, offline: bool) -> StressReport:
    """Run that many workflows over the pool with injected faults."""
    for described in settings.workers:
        for model in worker_weights(described):
            await fetch(model, offline=offline)
    http = Http()
    assembly = assemble(settings, os.environ, http)
    recording = [
        RecordingWorker(FaultyWorker(worker, STRESS_FAULTS))
        for worker in assembly.workers
        if worker.profile.is_model
    ]
    rest: list[Worker] = [worker for worker in assembly.workers if not worker.profile.is_model]
    try:
        async with AsyncPodium(
            [*recording, *rest],
            assembly.conductor,
            pool=settings.pool,
            options=default_options(settings),
            retry=settings.retry,
            breaker=settings.breaker,
            hedges=settings.hedges,
        ) as podium:
            started = time.perf_counter()
            done = await _run_workflows(podium, [item.profile.name for item in recording], runs)
            seconds = time.perf_counter() - started
            openings = (await podium.open()).call_policy.breakers.openings
            return _report(done, recording, openings, seconds)
    finally:
        await assembly.close()
        await http.close()


async def _run_workflows(podium: AsyncPodium, names: Sequence[str], runs: int) -> list[Run]:
    slots = asyncio.Semaphore(STRESS_CONCURRENCY)

    async def run_one(number: int) -> Run:
        async with slots:
            return await podium.run(
                _workflow(names, number),
                f"This is test {number}. Reply with the word ok.",
                response_options=ResponseOptions(max_tokens=STRESS_MAX_TOKENS),
                stream=number % 2 == 1,
            )

    return list(await asyncio.gather(*map(run_one, range(runs))))


def _workflow(names: Sequence[str], number: int) -> Workflow:
    """Two parallel steps and one that reads both; the workers rotate through the positions."""
    one, two, three = (names[(number + shift) % len(names)] for shift in range(3))
    return Workflow(
        (
            Step(one, "Reply with the word ok."),
            Step(two, "Reply with the word fine."),
            Step(three, "Reply with the word done.", (0, 1)),
        )
    )


def _report(
    runs: Sequence[Run],
    recording: Sequence[RecordingWorker],
    openings: Counter[str],
    seconds: float,
) -> StressReport:
    steps = [step for run in runs for step in run.steps]
    calls = [call for run in runs for call in run.calls]
    taken_over = Counter(
        step.answered_by for step in steps if step.answered_by not in ("", step.worker)
    )
    failed = Counter(call.worker for call in calls if call.error is not None and call.was_made)
    misstated = 0
    for item in recording:
        good = [c for c in calls if c.worker == item.profile.name and c.error is None]
        misstated += (Counter(call.usage for call in good) - item.usage).total()
        price = item.profile.price
        misstated += sum(
            call.cost_usd != (price.cost(call.usage) if price else None) for call in good
        )
    return StressReport(
        runs=len(runs),
        answered=sum(run.status == "answered" for run in runs),
        retries=sum(
            max(0, count - 1)
            for step in steps
            for count in Counter(call.worker for call in step.attempts if call.was_made).values()
        ),
        fallbacks=taken_over.total(),
        openings=openings.total(),
        seconds=seconds,
        cost_usd=sum(call.cost_usd or 0.0 for call in calls),
        unknown_cost=sum(call.cost_usd is None for call in calls),
        misstated=misstated,
        errors=tuple(sorted({run.error or "" for run in runs if run.status != "answered"})),
        workers=tuple(
            WorkerStressReport(
                worker=item.profile.name,
                calls=item.worker.calls,
                faults=item.worker.injected.total(),
                failed=failed[item.profile.name],
                took_over=taken_over[item.profile.name],
                openings=openings[item.profile.name],
            )
            for item in recording
        ),
    )
