"""Runs whose steps begin while the plan is written: faults, invalid plans and cancelled runs.

The planner streams random plans, some with an invalid tail, over workers whose every call may fail.
One worker is asked beside the planner, as speculation. Some runs are cancelled while they go on.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import Billed, is_lost, misreports, overruns
from benchmarks.chaos.faults import (
    CALLS,
    IN_FLIGHT,
    LONE,
    LONGEST_RUN_SECONDS,
    PRICES,
    RETRY,
    CallRecorder,
    FaultTrial,
    PlannedRun,
    faulty_worker,
    opened,
    planned_run,
)
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.workload import connected, every_run, in_turns, repeatable
from podium.client.client import AsyncPodium
from podium.conductors import ModelConductor
from podium.conductors.plan import write
from podium.core.events import Event, RunDone
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Delta, Reply, Request
from podium.core.run import Run
from podium.core.worker import Worker
from podium.engine.runner import ConductorWorker

SHARE_INVALID: Final = 0.25
SHARE_CANCELLED: Final = 0.1
LATEST_CANCEL_SECONDS: Final = 0.1
TAILS: Final = ('"worker": 99', '"access": [7]', "", '"worker": "nobody"')
_MARK: Final = re.compile(r"chaos-\d+")
_WORKER: Final = re.compile(r'"worker": \d+')
_POOL: Final = Pool(
    tuple(WorkerProfile(name=name) for name in (*PRICES, "deeper") if name != "planner")
)


class PacedWorker(Worker):
    """Lets other tasks work between the pieces of a stream."""

    def __init__(self, worker: Worker) -> None:
        self.profile = worker.profile
        self._worker = worker

    async def reply(self, request: Request) -> Reply:
        """Return the worker's reply."""
        return await self._worker.reply(request)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        """Stream the worker's reply, with pauses."""
        async for piece in self._worker.stream(request):
            yield piece
            await asyncio.sleep(0.001)


def write_plan(request: Request, seed: int) -> str:
    """Return a random plan for the question, whose last step is sometimes invalid."""
    mark = _MARK.search(request.text)
    chance = repeatable(seed, mark and mark[0], len(request.text), len(request.messages))
    names = [name for name in _POOL.names if name not in (LONE, "deeper")]
    workers = [chance.choice(names) for _ in range(chance.randint(1, 5))]
    if len(workers) > 1 and chance.random() < 0.1:
        workers[0] = "deeper"
    shape = chance.choice(("chain", "join", "all", "some"))
    question = f"{mark[0] if mark else 'chaos'} part"
    text = write(connected(workers, question, shape, chance), _POOL, order="step-by-step")
    if chance.random() < SHARE_INVALID:
        last = list(_WORKER.finditer(text))[-1]
        text = text[: last.start()] + chance.choice(TAILS) + text[last.end() :]
    return text


def has_unplanned_step(run: Run) -> bool:
    """True if a step was executed that its plan lacks and that is not marked as cancelled."""
    for round_ in run.rounds:
        planned = round_.workflow.steps if round_.workflow is not None else ()
        for step in round_.steps:
            if step.index >= len(planned) or planned[step.index].worker != step.worker:
                return True
            if planned[step.index].subtask != step.subtask:
                return True
        if any(step.status != "cancelled" or step.reply for step in round_.cancelled):
            return True
    nested = (inner for step in run.steps for inner in step.nested)
    return any(map(has_unplanned_step, nested))


@dataclass(slots=True)
class OverlapTrial(FaultTrial):
    """Also counts steps that began early, and cancels runs."""

    seed: int = 1
    early: int = 0
    cancelled_steps: int = 0
    cancelled_runs: int = 0
    never_begun: int = 0
    unplanned: int = 0

    async def perform_number(self, number: int) -> None:
        """Perform the run with that number, and sometimes cancel it."""
        planned, chance = planned_run(number, self.seed), repeatable(self.seed, number, "cancel")
        if chance.random() < SHARE_CANCELLED:
            await self._cancel(planned, chance.random() * LATEST_CANCEL_SECONDS)
        else:
            await self.perform(planned)

    async def _cancel(self, planned: PlannedRun, seconds: float) -> None:
        events, calls = list[Event](), list[Billed]()
        CALLS.set(calls)
        self.runs += 1
        asking = self.podium.ask(planned.question, budget=planned.budget, emit=events.append)
        task = asyncio.create_task(asking)
        await asyncio.sleep(seconds)
        task.cancel()
        try:
            async with asyncio.timeout(LONGEST_RUN_SECONDS):
                with suppress(asyncio.CancelledError):
                    await task
        except TimeoutError:
            self.stuck += 1
            return
        ended = [event.run for event in events if isinstance(event, RunDone)]
        roots = [run for run in ended if run.depth == 0]
        if not roots:
            self.never_begun += 1
            self.lost += bool(events or calls)
            return
        run = roots[-1]
        self.statuses[run.status] += 1
        self.cancelled_runs += run.status == "interrupted"
        self.lost += is_lost(run, await self.reader.load(run.id))
        self.misreported += misreports(run, calls)
        self.overran += overruns(run, len(calls))
        self._count(run)

    async def _judge(self, run: Run, calls: list[Billed], streamed: str | None) -> None:
        await FaultTrial._judge(self, run, calls, streamed)
        self._count(run)

    def _count(self, run: Run) -> None:
        self.unplanned += has_unplanned_step(run)
        self.cancelled_steps += len(run.cancelled_steps)
        for round_ in run.rounds:
            ends = [attempt.finished_ms for attempt in round_.planning]
            self.early += sum(step.started_ms < max(ends, default=0.0) for step in round_.steps)


async def measure_overlap(runs: int, seed: int, in_flight: int = IN_FLIGHT) -> ChaosRow:
    """Run `runs` questions, `in_flight` at a time, with faults drawn from that seed."""
    planner = faulty_worker("planner", seed, lambda request: write_plan(request, seed))
    workers = {name: faulty_worker(name, seed) for name in PRICES if name != "planner"}
    paced = [CallRecorder(PacedWorker(worker)) for worker in workers.values()]
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as directory:
        path = Path(directory) / "runs.db"
        conductor = ModelConductor(
            CallRecorder(PacedWorker(planner)), structured="json", speculate=True, fallback="anna"
        )
        deeper = ConductorWorker(WorkerProfile(name="deeper", fallback="anna"))
        async with (
            AsyncPodium([*paced, deeper], conductor, retry=RETRY, store=path) as podium,
            opened(path) as reader,
        ):
            trial = OverlapTrial(podium, reader, "overlap", seed=seed)
            await in_turns(runs, in_flight, trial.perform_number)
        async with opened(path) as store:
            kept = {summary.id async for summary in every_run(store)}
        trial.lost += len(trial.ids - kept)
    if trial.unplanned:
        trial.broken["a step was executed that its plan lacks, unmarked"] = trial.unplanned
    every = (planner, *workers.values())
    row = trial.row(
        sum((worker.injected for worker in every), Counter[str]()), time.perf_counter() - started
    )
    figures = {
        "steps_begun_early": trial.early,
        "steps_cancelled": trial.cancelled_steps,
        "runs_cancelled": trial.cancelled_runs,
        "runs_cancelled_before_they_began": trial.never_begun,
        "unplanned_steps": trial.unplanned,
    }
    return replace(row, figures={**row.figures, **figures})
