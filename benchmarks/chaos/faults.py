"""Run questions over workers whose every call may fail: do all runs end, is usage exact?

The planner writes random plans, some with an invalid tail. With `overlap`, steps begin while the
plan is written, one worker is asked beside the planner as speculation, and some runs are cancelled.
Each worker is scripted, behind a `FaultyWorker`, with a `CallRecorder` around both. Runs are stored
in SQLite, and each is read back by another reader.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.chaos.faulty import FaultyWorker, evenly
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.upstream import MARK
from benchmarks.chaos.workload import (
    DEEPER,
    EXACT_USD,
    connect_steps,
    every_run,
    has_ended,
    run_concurrently,
    seeded_random,
)
from podium.client.client import AsyncPodium
from podium.conductors import ModelConductor
from podium.conductors.plan import write
from podium.core.budget import Budget
from podium.core.errors import NotFound, PodiumError, WorkerError
from podium.core.events import Event, RunDone, StepDelta
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import (
    NO_USAGE,
    UNKNOWN_USAGE,
    Delta,
    Price,
    Reply,
    Request,
    Usage,
    add,
    plausible_usage,
)
from podium.core.run import Run, dump
from podium.core.worker import Worker
from podium.engine import RetryPolicy
from podium.engine.runner import ConductorWorker
from podium.store import RunStore, open_store
from podium.workers.scripted import ScriptedWorker

SHARE: Final = 0.2
"""Of all calls, how many fail."""

IN_FLIGHT: Final = 64
LONGEST_RUN_SECONDS: Final = 60.0
"""A run that takes longer is stuck: it takes milliseconds otherwise."""

RETRY: Final = RetryPolicy(initial_wait_seconds=0.005, max_wait_seconds=0.1)
"""Short waits, as these faults pass at once; the number of tries is the default."""

SHARE_ALONE: Final = 0.1
SHARE_CAPPED: Final = 0.1
SHARE_NESTED: Final = 0.1
SHARE_INVALID: Final = 0.25
SHARE_CANCELLED: Final = 0.1
LATEST_CANCEL_SECONDS: Final = 0.1
TAILS: Final = ('"worker": 99', '"access": [7]', "", '"worker": "unknown"')

LONE: Final = "lone"
"""The worker without a fallback."""

ALONE: Final = "-alone"
"""In the mark of a question of which one step is for the worker without a fallback."""

PRICES: Final = {
    "anna": Price(input=3.0, output=15.0),
    "bert": Price(input=0.25, output=1.25, cached=0.03),
    "cora": Price(input=1.1, output=4.4),
    LONE: Price(input=2.0, output=8.0),
    "planner": Price(input=5.0, output=25.0),
}
FALLBACKS: Final = {"anna": "bert", "bert": "cora", "cora": "anna"}
POOL: Final = Pool(
    tuple(WorkerProfile(name=name) for name in (*PRICES, DEEPER) if name != "planner")
)

_WORKER: Final = re.compile(r'"worker": \d+')


class Billed(NamedTuple):
    """One call as the worker reports it."""

    worker: str
    usage: Usage
    cost_usd: float | None


CALLS: Final[ContextVar[list[Billed]]] = ContextVar("calls")
"""Receives the calls of the run in the current context."""


class CallRecorder:
    """A worker that records every call; if `paced`, it pauses between the pieces of a stream."""

    def __init__(self, worker: Worker, *, paced: bool = False) -> None:
        self.profile = worker.profile
        self._worker = worker
        self._paced = paced

    async def reply(self, request: Request) -> Reply:
        try:
            reply = await self._worker.reply(request)
        except BaseException as error:
            self._note(_usage_of_failure(error))
            raise
        self._note(reply.usage)
        return reply

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        usage, is_recorded = UNKNOWN_USAGE, False
        try:
            async with aclosing(self._worker.stream(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        self._note(piece.usage)
                        is_recorded = True
                    yield piece
                    if self._paced:
                        await asyncio.sleep(0.001)
        except BaseException as error:
            usage = _usage_of_failure(error)
            raise
        finally:
            if not is_recorded:
                self._note(usage)

    def _note(self, usage_reported: Usage) -> None:
        usage = usage_reported if usage_reported is NO_USAGE else plausible_usage(usage_reported)
        price = self.profile.price
        cost = 0.0 if usage is NO_USAGE else price.cost(usage) if price else None
        CALLS.get().append(Billed(self.profile.name, usage, cost))


def _usage_of_failure(error: BaseException) -> Usage:
    refused = isinstance(error, WorkerError) and not error.billed
    return NO_USAGE if refused else UNKNOWN_USAGE


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run to start; `cancel_after` seconds it is cancelled."""

    question: str
    streams: bool
    rounds: int
    budget: Budget
    cancel_after: float | None = None

    @property
    def must_be_answered(self) -> bool:
        """True if only faults stand between this run and its answer."""
        is_free = self.budget.calls is None and self.cancel_after is None
        return is_free and ALONE not in self.question


def planned_run(index: int, seed: int, *, overlap: bool = False) -> PlannedRun:
    """Return the run with that number; every second one streams."""
    rng = seeded_random(seed, index)
    alone = ALONE if rng.random() < SHARE_ALONE else ""
    cap = rng.randint(1, 12) if rng.random() < SHARE_CAPPED else None
    is_cancelled = overlap and rng.random() < SHARE_CANCELLED
    return PlannedRun(
        question=f"chaos-{index:06d}{alone} what holds when things break?",
        streams=index % 2 == 1,
        rounds=rng.choice((1, 1, 1, 2, 3)),
        budget=Budget(calls=cap, depth=1),
        cancel_after=rng.random() * LATEST_CANCEL_SECONDS if is_cancelled else None,
    )


def write_plan(request: Request, seed: int) -> str:
    """Return a random plan for the question, whose last step is sometimes invalid."""
    mark = next(iter(MARK.findall(request.text)), "chaos")
    rng = seeded_random(seed, mark, len(request.text), len(request.messages))
    workers = [rng.choice(list(FALLBACKS)) for _ in range(rng.randint(1, 5))]
    if len(workers) > 1 and rng.random() < SHARE_NESTED:
        workers[0] = DEEPER
    if ALONE in mark:
        workers[-1] = LONE
    shape = rng.choice(("chain", "join", "all", "some"))
    text = write(connect_steps(workers, f"{mark} part", shape, rng), POOL, layout="step-by-step")
    if rng.random() < SHARE_INVALID:
        last = list(_WORKER.finditer(text))[-1]
        text = text[: last.start()] + rng.choice(TAILS) + text[last.end() :]
    return text


async def measure_faults(
    runs: int, seed: int, in_flight: int = IN_FLIGHT, *, overlap: bool = False
) -> ChaosRow:
    """Run `runs` questions, `in_flight` at a time, with faults drawn from that seed."""
    workers = {name: _faulty_worker(name, seed) for name in PRICES}
    recorded = {name: CallRecorder(worker, paced=overlap) for name, worker in workers.items()}
    conductor = ModelConductor(
        recorded.pop("planner"),
        plan_format="json",
        overlap=overlap,
        speculate=overlap,
        fallback="anna",
    )
    deeper = ConductorWorker(WorkerProfile(name=DEEPER, fallback="anna"))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as directory:
        path = Path(directory) / "runs.db"
        async with (
            AsyncPodium([*recorded.values(), deeper], conductor, retry=RETRY, store=path) as podium,
            _open_reader(path) as reader,
        ):
            trial = FaultTrial(podium, reader, overlap=overlap)
            await run_concurrently(
                runs, in_flight, lambda n: trial.perform(planned_run(n, seed, overlap=overlap))
            )
        async with _open_reader(path) as store:
            kept = {summary.id async for summary in every_run(store)}
        trial.lost += len(trial.ids - kept)
    injected = sum((worker.injected for worker in workers.values()), Counter[str]())
    return trial.row(injected, time.perf_counter() - started)


@asynccontextmanager
async def _open_reader(path: Path) -> AsyncIterator[RunStore]:
    store = await open_store(path)
    try:
        yield store
    finally:
        await store.close()


def _faulty_worker(name: str, seed: int) -> FaultyWorker:
    """Return a scripted worker of which every fifth call fails."""
    profile = WorkerProfile(
        name=name, provider="scripted", price=PRICES[name], fallback=FALLBACKS.get(name)
    )

    def script(request: Request) -> str:
        return write_plan(request, seed) if name == "planner" else _reply_to(request)

    scripted = ScriptedWorker(profile, script, chunk=3, keep_requests=0)
    return FaultyWorker(scripted, evenly(SHARE), seed)


def _reply_to(request: Request) -> str:
    """Return a reply whose text and length depend on the question."""
    words = request.text.split()
    return f"As to {words[0]}: " + " ".join(words[-(len(request.text) % 40 + 3) :])


def is_lost(run: Run, kept: Run | None, streamed: str | None = None) -> bool:
    """True if the stored run differs from the run, or the streamed text from its answer."""
    if kept is None or dump(kept) != dump(run):
        return True
    return streamed is not None and run.status == "answered" and streamed != run.answer


def misreports(run: Run, calls: Iterable[Billed]) -> bool:
    """True if the run records other calls, usage or costs than the workers observed."""
    recorded = (
        Billed(call.worker, call.usage, call.cost_usd) for call in run.calls if call.was_sent
    )
    ours, theirs = (
        sorted(side, key=lambda call: (call.worker, repr(call.usage))) for side in (recorded, calls)
    )
    if [call[:2] for call in ours] != [call[:2] for call in theirs]:
        return True
    usage = NO_USAGE
    total: float | None = 0.0
    for call in theirs:
        usage, total = usage + call.usage, add(total, call.cost_usd)
    pairs = [(one.cost_usd, other.cost_usd) for one, other in zip(ours, theirs, strict=True)]
    return run.usage != usage or not all(
        _is_same(*pair) for pair in (*pairs, (run.cost_usd, total))
    )


def _is_same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= EXACT_USD


def overruns(run: Run, calls: int) -> bool:
    """True if the run exceeded its cap on calls, by its own count or the workers'."""
    cap = run.budget.calls
    recorded = sum(call.was_sent for call in run.calls)
    return cap is not None and max(run.spent.calls, recorded, calls) > cap


def has_unplanned_step(run: Run) -> bool:
    """True if a step was executed that its plan lacks and that is not marked as cancelled."""
    for round_ in run.rounds:
        planned = round_.workflow.steps if round_.workflow is not None else ()
        for step in round_.steps:
            if step.index >= len(planned) or planned[step.index].worker != step.worker:
                return True
            if planned[step.index].subtask != step.subtask:
                return True
        if any(step.status != "cancelled" or step.reply for step in round_.cancelled_steps):
            return True
    nested = (inner for step in run.steps for inner in step.nested)
    return any(map(has_unplanned_step, nested))


@dataclass(slots=True)
class FaultTrial:
    """Starts runs, checks each when it has ended, and counts.

    `to_be_answered` runs had a fallback and no cap, `hidden` calls an unknown usage. `early` steps
    began before their plan was written.
    """

    podium: AsyncPodium
    reader: RunStore
    overlap: bool = False
    runs: int = 0
    lost: int = 0
    stuck: int = 0
    to_be_answered: int = 0
    answered: int = 0
    misreported: int = 0
    overran: int = 0
    calls: int = 0
    hidden: int = 0
    early: int = 0
    cancelled_steps: int = 0
    never_begun: int = 0
    unplanned: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    ids: set[str] = field(default_factory=set)

    async def perform(self, planned: PlannedRun) -> None:
        """Ask, wait for the end or cancel, and check the run."""
        events, calls = list[Event](), list[Billed]()
        CALLS.set(calls)
        self.runs += 1
        self.to_be_answered += planned.must_be_answered
        asking = asyncio.create_task(
            self.podium.ask(
                planned.question,
                rounds=planned.rounds,
                budget=planned.budget,
                emit=events.append,
                stream=planned.streams,
            )
        )
        try:
            async with asyncio.timeout(LONGEST_RUN_SECONDS):
                if planned.cancel_after is not None:
                    await asyncio.wait([asking], timeout=planned.cancel_after)
                    asking.cancel()
                await asyncio.wait([asking])
        except TimeoutError:
            asking.cancel()
            self.stuck += 1
            return
        if not asking.cancelled() and (error := asking.exception()) is not None:
            if not isinstance(error, PodiumError):
                raise error
            self.lost += 1
            self.broken[f"a run raised {type(error).__name__}: {error}"] += 1
            return
        ended = [event.run for event in events if isinstance(event, RunDone)]
        roots = [run for run in ended if run.depth == 0]
        if not roots:
            self.never_begun += 1
            self.lost += bool(events or calls) or planned.cancel_after is None
            return
        self.answered += planned.must_be_answered and roots[-1].status == "answered"
        await self._judge(roots[-1], calls, planned, events)

    async def _judge(
        self, run: Run, calls: list[Billed], planned: PlannedRun, events: list[Event]
    ) -> None:
        is_cancelled = planned.cancel_after is not None and run.status == "interrupted"
        streamed = _streamed_text(events, run) if planned.streams else None
        self.statuses[run.status] += 1
        self.calls += len(calls)
        self.hidden += sum(call.cost_usd is None for call in calls)
        self.ids.add(run.id)
        if not has_ended(run) and not is_cancelled:
            self.broken[f"a run ended as {run.status} without a cause"] += 1
        try:
            kept = await self.reader.load(run.id)
        except NotFound:
            kept = None
        self.lost += is_lost(run, kept, streamed)
        self.misreported += misreports(run, calls)
        self.overran += overruns(run, len(calls))
        self.unplanned += has_unplanned_step(run)
        self.cancelled_steps += len(run.cancelled_steps)
        for round_ in run.rounds:
            planned_ms = max((call.finished_ms for call in round_.planning_attempts), default=0.0)
            self.early += sum(step.started_ms < planned_ms for step in round_.steps)

    def row(self, injected: Counter[str], seconds: float) -> ChaosRow:
        if self.unplanned:
            self.broken["a step was executed that its plan lacks, unmarked"] = self.unplanned
        ended = ", ".join(f"{count:,} {status}" for status, count in self.statuses.most_common())
        overlapping: dict[str, int | float | str | None] = {
            "steps_begun_early": self.early,
            "steps_cancelled": self.cancelled_steps,
            "runs_cancelled": self.statuses["interrupted"],
            "runs_cancelled_before_they_began": self.never_begun,
            "unplanned_steps": self.unplanned,
        }
        return ChaosRow(
            name="overlap" if self.overlap else "faults",
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
                **(overlapping if self.overlap else {}),
            },
        )


def _streamed_text(events: list[Event], run: Run) -> str:
    """Return the streamed text of the round that answers the run."""
    finals = [round_.index for round_ in run.rounds if round_.answer_step is not None]
    deltas = [event for event in events if isinstance(event, StepDelta) and not event.thinking]
    return "".join(
        delta.text for delta in deltas if (delta.run_id, delta.round) == (run.id, *finals[-1:])
    )
