"""Run questions over workers whose every call may fail: do all runs end, is usage exact?

Each worker is scripted, behind a `FaultyWorker`, with a `CallRecorder` around both.
Runs are stored in SQLite, and each is read back by another reader.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import Billed, has_ended, is_lost, misreports, overruns
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.workload import connected, every_run, in_turns, repeatable
from podium.client.client import AsyncPodium
from podium.core.budget import Budget
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import NotFound, PodiumError, WorkerError
from podium.core.events import Event, StepDelta
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import (
    NO_USAGE,
    UNKNOWN_USAGE,
    Delta,
    Price,
    Reply,
    Request,
    Usage,
    plausible_usage,
    user,
)
from podium.core.run import Run
from podium.core.worker import Caller, Worker
from podium.core.workflow import Workflow
from podium.engine import RetryPolicy
from podium.engine.runner import ConductorWorker
from podium.store import RunStore, open_store
from podium.workers.faulty import Faults, FaultyWorker
from podium.workers.scripted import ScriptedWorker

CALLS: Final[ContextVar[list[Billed]]] = ContextVar("calls")
"""Receives the calls of the run in the current context."""


class CallRecorder:
    """A worker that records every call."""

    def __init__(self, worker: Worker) -> None:
        self.profile = worker.profile
        self._worker = worker

    async def reply(self, request: Request) -> Reply:
        """Return the worker's reply."""
        try:
            reply = await self._worker.reply(request)
        except BaseException as error:
            self._note(_hidden_by(error))
            raise
        self._note(reply.usage)
        return reply

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Stream the worker's reply."""
        usage, is_recorded = UNKNOWN_USAGE, False
        try:
            async with aclosing(self._worker.stream(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        self._note(piece.usage)
                        is_recorded = True
                    yield piece
        except BaseException as error:
            usage = _hidden_by(error)
            raise
        finally:
            if not is_recorded:
                self._note(usage)

    def _note(self, usage_reported: Usage) -> None:
        usage = usage_reported if usage_reported is NO_USAGE else plausible_usage(usage_reported)
        price = self.profile.price
        cost = 0.0 if usage is NO_USAGE else price.cost(usage) if price else None
        CALLS.get().append(Billed(self.profile.name, usage, cost))


def _hidden_by(error: BaseException) -> Usage:
    """Return the known usage of a failed call: none, or unknown."""
    refused = isinstance(error, WorkerError) and not error.billed
    return NO_USAGE if refused else UNKNOWN_USAGE


LONE: Final = "lone"
"""The worker without a fallback."""

ALONE: Final = "alone"
"""Marks a question of which one step is for the worker without a fallback."""

MAX_STEPS: Final = 5
SHAPES: Final = ("chain", "join", "all", "some")

SHARE_ALONE: Final = 0.1
SHARE_CAPPED: Final = 0.1
SHARE_NESTED: Final = 0.2
SHARE_PLANNED_BY_CALL: Final = 0.3


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run to start."""

    question: str
    streams: bool
    rounds: int
    budget: Budget

    @property
    def must_be_answered(self) -> bool:
        """True if only faults stand between this run and its answer."""
        return ALONE not in self.question.split() and self.budget.calls is None


def planned_run(index: int, seed: int) -> PlannedRun:
    """Return the run with that number; every second one streams."""
    random_ = repeatable(seed, index)
    words = [f"chaos-{index:06d}", "what", "holds", "when", "things", "break?"]
    if random_.random() < SHARE_ALONE:
        words.append(ALONE)
    cap = random_.randint(1, 12) if random_.random() < SHARE_CAPPED else None
    return PlannedRun(
        question=" ".join(words),
        streams=index % 2 == 1,
        rounds=random_.choice((1, 1, 1, 2, 3)),
        budget=Budget(calls=cap, depth=1),
    )


class RandomConductor(Conductor):
    """A conductor that plans at random, and sometimes calls a worker first."""

    name = "random"

    def __init__(self, worker: Worker, seed: int) -> None:
        self.worker: Worker = worker
        self._seed = seed

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Return a workflow; after the first round, sometimes accept."""
        random_ = repeatable(self._seed, context.question, len(context.rounds))
        if context.answer is not None and random_.random() < 0.5:
            return Plan(None)
        if random_.random() < SHARE_PLANNED_BY_CALL:
            with suppress(WorkerError):  # it plans without the reply
                await call(self.worker, Request((user(f"Plan for: {context.question}"),)))
        return Plan(_workflow(context, random_))


def _workflow(context: PlanningContext, random_: random.Random) -> Workflow:
    conductors = [x.name for x in context.pool if x.provider == CONDUCTOR_PROVIDER]
    usual = [x for x in context.pool.names if x not in (LONE, *conductors)]
    count = random_.randint(1, min(MAX_STEPS, context.max_steps))
    shape = random_.choice(SHAPES)
    workers = [random_.choice(usual) for _ in range(count)]
    if conductors and count > 1 and random_.random() < SHARE_NESTED:
        workers[random_.randrange(count - 1)] = random_.choice(conductors)
    if ALONE in context.question.split():
        workers[random_.randrange(count)] = LONE
    return connected(workers, f"{context.question} part", shape, random_)


SHARE: Final = 0.2
IN_FLIGHT: Final = 64

LONGEST_RUN_SECONDS: Final = 60.0
"""A run that takes longer is stuck: it takes milliseconds otherwise."""

RETRY: Final = RetryPolicy(first_wait=0.005, longest_wait=0.1)
"""Short waits, as these faults pass at once; the number of tries is the default."""

PRICES: Final = {
    "anna": Price(input=3.0, output=15.0),
    "bert": Price(input=0.25, output=1.25, cached=0.03),
    "cora": Price(input=1.1, output=4.4),
    LONE: Price(input=2.0, output=8.0),
    "planner": Price(input=5.0, output=25.0),
}
FALLBACKS: Final = {"anna": "bert", "bert": "cora", "cora": "anna"}


async def measure_faults(runs: int, seed: int, in_flight: int = IN_FLIGHT) -> ChaosRow:
    """Run `runs` questions, `in_flight` at a time, with faults drawn from that seed."""
    workers = {name: faulty_worker(name, seed) for name in PRICES}
    planner = CallRecorder(workers["planner"])
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as directory:
        path = Path(directory) / "runs.db"
        async with (
            AsyncPodium(
                [
                    *(
                        CallRecorder(worker)
                        for name, worker in workers.items()
                        if name != "planner"
                    ),
                    ConductorWorker(WorkerProfile(name="deeper", fallback="anna")),
                ],
                RandomConductor(planner, seed),
                retry=RETRY,
                store=path,
            ) as podium,
            opened(path) as reader,
        ):
            trial = FaultTrial(podium, reader)
            await in_turns(runs, in_flight, lambda n: trial.perform(planned_run(n, seed)))
        async with opened(path) as store:
            kept = {summary.id async for summary in every_run(store)}
        trial.lost += len(trial.ids - kept)
    injected = sum((worker.injected for worker in workers.values()), Counter[str]())
    return trial.row(injected, time.perf_counter() - started)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[RunStore]:
    """Open the store of a trial."""
    store = await open_store(path)
    try:
        yield store
    finally:
        await store.close()


def faulty_worker(
    name: str, seed: int, script: Callable[[Request], str] | None = None
) -> FaultyWorker:
    """Return a scripted worker of which every fifth call fails."""
    profile = WorkerProfile(
        name=name, provider="scripted", price=PRICES[name], fallback=FALLBACKS.get(name)
    )
    return FaultyWorker(
        ScriptedWorker(profile, script or _reply_to, chunk=3, keep_requests=0),
        Faults.evenly(SHARE),
        seed,
    )


def _reply_to(request: Request) -> str:
    """Return a reply whose text and length depend on the question."""
    words = request.text.split()
    return f"As to {words[0]}: " + " ".join(words[-(len(request.text) % 40 + 3) :])


@dataclass(slots=True)
class FaultTrial:
    """Starts runs, checks each when it has ended, and counts.

    `to_be_answered` runs had a fallback and no cap, `hidden` calls an unknown usage.
    """

    podium: AsyncPodium
    reader: RunStore
    part: str = "faults"
    runs: int = 0
    lost: int = 0
    stuck: int = 0
    to_be_answered: int = 0
    answered: int = 0
    misreported: int = 0
    overran: int = 0
    calls: int = 0
    hidden: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)

    async def perform(self, planned: PlannedRun) -> None:
        """Ask, wait for the end, and check it."""
        events, calls = list[Event](), list[Billed]()
        CALLS.set(calls)
        self.runs += 1
        self.to_be_answered += planned.must_be_answered
        try:
            async with asyncio.timeout(LONGEST_RUN_SECONDS):
                run = await self.podium.ask(
                    planned.question,
                    rounds=planned.rounds,
                    budget=planned.budget,
                    emit=events.append,
                    stream=planned.streams,
                )
        except TimeoutError:
            self.stuck += 1
            return
        except PodiumError as error:
            self.lost += 1
            self.broken[f"a run raised {type(error).__name__}: {error}"] += 1
            return
        self.answered += planned.must_be_answered and run.status == "answered"
        await self._judge(run, calls, _streamed(events, run) if planned.streams else None)

    async def _judge(self, run: Run, calls: list[Billed], streamed: str | None) -> None:
        self.statuses[run.status] += 1
        self.calls += len(calls)
        self.hidden += sum(call.cost_usd is None for call in calls)
        self.ids.add(run.id)
        if not has_ended(run):
            self.broken[f"a run ended as {run.status} without a cause"] += 1
        try:
            kept = await self.reader.load(run.id)
        except NotFound:
            kept = None
        self.lost += is_lost(run, kept, streamed)
        self.misreported += misreports(run, calls)
        self.overran += overruns(run, len(calls))

    def row(self, injected: Counter[str], seconds: float) -> ChaosRow:
        """Return the result of the part."""
        ended = ", ".join(f"{count:,} {status}" for status, count in self.statuses.most_common())
        return ChaosRow(
            name=self.part,
            runs=self.runs,
            lost=self.lost,
            stuck=self.stuck,
            answered_share=self.answered / self.to_be_answered if self.to_be_answered else None,
            usage_mismatch=self.misreported,
            budget_overruns=self.overran,
            seconds=seconds,
            note=f"{injected.total():,} faults in {self.calls:,} calls; {ended}",
            broken=tuple(f"{words} ({count})" for words, count in self.broken.items()),
            figures={
                "calls": self.calls,
                "faults": injected.total(),
                "to_be_answered": self.to_be_answered,
                "calls_of_unknown_usage": self.hidden,
                "runs_per_second": round(self.runs / seconds, 1),
                **{f"fault_{kind}": count for kind, count in sorted(injected.items())},
            },
        )


def _streamed(events: list[Event], run: Run) -> str:
    """Return the streamed text of the round that answers the run."""
    finals = [round_.index for round_ in run.rounds if round_.final is not None]
    deltas = [event for event in events if isinstance(event, StepDelta) and not event.thinking]
    return "".join(
        delta.text for delta in deltas if (delta.run_id, delta.round) == (run.id, *finals[-1:])
    )
