"""Whatever befalls workers, every run ends, and says what it used as exactly as that is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

import pytest

from benchmarks.chaos.faulty import FAULTS, FaultyWorker, evenly
from podium.conductors import FixedConductor
from podium.core.budget import Budget
from podium.core.events import Event, StepDelta
from podium.core.pool import Limits, WorkerProfile
from podium.core.request import NO_USAGE, Delta, Price, Reply, Request, Usage, plausible_usage
from podium.core.run import Attempt, Run
from podium.core.workflow import Step, Workflow
from podium.engine import BreakerPolicy, CallPolicy, RetryPolicy
from podium.engine.runner import Options, Runner
from podium.workers import ScriptedWorker

RUNS = 300
IN_FLIGHT = 32
ENDED = {"answered", "partial", "failed"}
UNBILLED = {"rate_limited", "rate_limited_with_retry_after", "server_error"}

PRICE = Price(input=1.0, output=4.0)

DIAMOND = Workflow(
    (
        Step("first", "Say what there is to be said."),
        Step("second", "Say it in other words.", (0,)),
        Step("first", "Say the opposite.", (0,)),
        Step("second", "Bring it together.", (1, 2)),
    )
)


class Observed:
    """The worker as its caller sees it; `said` is the usage of every reply that came through."""

    def __init__(self, worker: FaultyWorker) -> None:
        self.profile = worker.profile
        self.worker = worker
        self.said: list[Usage] = []

    async def reply(self, request: Request) -> Reply:
        reply = await self.worker.reply(request)
        self.said.append(reply.usage)
        return reply

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        async for piece in self.worker.stream(request):
            if isinstance(piece, Reply):
                self.said.append(piece.usage)
            yield piece


def observed(name: str, shares: Mapping[str, float], *, fallback: str | None = None) -> Observed:
    profile = WorkerProfile(
        name=name,
        provider="scripted",
        model=name,
        price=PRICE,
        fallback=fallback,
        limits=Limits(concurrency=16, max_output_tokens=500),
    )
    line = f"{name} has said what there is to be said of this, and no more."
    return Observed(FaultyWorker(ScriptedWorker(profile, line), shares, seed=3))


class Time:
    """Advances on sleep only."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


async def performed(
    workers: list[Observed],
    *,
    stream: bool,
    breaker: BreakerPolicy | None = None,
) -> list[Run]:
    """Many runs, so many of them at once."""
    time = Time()
    call_policy = CallPolicy(RetryPolicy(), breaker, clock=time, sleep=time.sleep)
    runner = Runner(FixedConductor(DIAMOND), workers, call_policy=call_policy)
    options = Options(budget=Budget(usd=1.0))
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one(number: int) -> Run:
        async with places:
            lines: list[str] = []

            def hear(event: Event) -> None:
                if isinstance(event, StepDelta):
                    lines.append(event.text)

            run = await runner.run(f"question {number}", options=options, emit=hear, stream=stream)
            text = "".join(lines)
            assert text == (run.steps[-1].reply if stream else ""), "what was told is on record"
            assert text in ("", run.answer), "what was told stands"
            assert text or not stream or run.status != "answered"
            return run

    return list(await asyncio.gather(*map(one, range(RUNS))))


def attempts_of(runs: list[Run], worker: Observed) -> list[Attempt]:
    return [call for run in runs for call in run.calls if call.worker == worker.profile.name]


def check_exact(runs: list[Run], worker: Observed) -> None:
    """What the runs say of a worker is what it said itself, as far as that can be."""
    attempts = attempts_of(runs, worker)
    check_replies(attempts, worker)
    bad = [attempt for attempt in attempts if attempt.error is not None]
    refused = sum("is tried again in" in (attempt.error or "") for attempt in bad)
    injected = worker.worker.injected
    free = sum(attempt.usage == NO_USAGE and attempt.cost_usd == 0 for attempt in bad)
    assert free == refused + sum(injected[kind] for kind in UNBILLED)
    assert all(a.usage == NO_USAGE or a.cost_usd is None for a in bad), "unknown is not zero"
    assert len(attempts) == worker.worker.calls + refused


def check_replies(attempts: list[Attempt], worker: Observed) -> None:
    good = [attempt for attempt in attempts if attempt.error is None]
    key = str
    assert sorted((a.usage for a in good), key=key) == sorted(
        map(plausible_usage, worker.said), key=key
    )
    for attempt in good:
        assert attempt.cost_usd == PRICE.cost(attempt.usage)
        assert attempt.cost_usd is None or attempt.cost_usd > 0


def check_ended(run: Run) -> None:
    assert run.status in ENDED
    assert run.answer if run.status == "answered" else run.error
    known = [call.cost_usd for call in run.calls]
    assert run.cost_usd == (None if None in known else pytest.approx(sum(filter(None, known))))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", [*FAULTS, "evenly"])
async def test_every_run_ends_and_its_usage_is_exact(kind: str, stream: bool) -> None:
    faults = evenly(0.2) if kind == "evenly" else {kind: 0.2}
    first, second, reserve = (
        observed("first", faults, fallback="reserve"),
        observed("second", faults, fallback="reserve"),
        observed("reserve", faults),
    )
    workers = [first, second, reserve]
    runs = await asyncio.wait_for(performed(workers, stream=stream, breaker=BreakerPolicy()), 60)
    for run in runs:
        check_ended(run)
    for worker in (first, second, reserve):
        check_exact(runs, worker)
    assert sum(worker.worker.injected.total() for worker in (first, second, reserve)) > RUNS / 2
    answered = sum(run.status == "answered" for run in runs)
    assert answered >= 0.99 * RUNS, f"{answered} of {RUNS} were answered"


async def test_a_worker_that_is_down_is_hardly_asked_and_every_run_is_answered() -> None:
    down = observed("first", {"server_error": 1.0}, fallback="reserve")
    second, reserve = observed("second", {}), observed("reserve", {})
    workers = [down, second, reserve]
    runs = await performed(workers, stream=False, breaker=BreakerPolicy())
    assert {run.status for run in runs} == {"answered"}
    assert down.worker.calls < RUNS / 4, "half of 1,200 steps are its own"
    for worker in workers:
        check_exact(runs, worker)
