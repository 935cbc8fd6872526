"""Measure the engine beside a bare `asyncio.TaskGroup` and LangGraph."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from benchmarks.environment import LANGGRAPH, OnProgress, prepare
from benchmarks.report import AT_LEAST, AT_MOST, Figures, machine
from benchmarks.timing import Chain, Timing, time_interleaved
from podium.conductors import FixedConductor
from podium.core.budget import DEFAULT_BUDGET, Ledger
from podium.core.errors import ConfigError
from podium.core.events import Event
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Reply, Request, Usage, user
from podium.core.run import Round, Run
from podium.core.worker import Worker
from podium.core.workflow import Step, Workflow
from podium.engine import CallPolicy, Execution, RunContext
from podium.engine.runner import Runner
from podium.workers.scripted import ScriptedWorker

TRACING_PREFIXES: Final = ("LANGSMITH_", "LANGCHAIN_")
"""Variables that would make LangGraph send traces."""

BRANCH_SECONDS: Final = 0.3
END_SECONDS: Final = 0.1
MIN_SECONDS: Final = BRANCH_SECONDS + END_SECONDS
TIMES: Final = 3

WORKFLOW: Final = Workflow(
    (
        Step("branch", "look at one side"),
        Step("branch", "look at the other side"),
        Step("end", "bring both together", access=(0, 1)),
    )
)


async def join_makespan() -> float:
    """Return the seconds from question to answer, the median of three runs."""
    runner = Runner(
        FixedConductor(WORKFLOW),
        [
            ScriptedWorker("branch", "a view", delay_seconds=BRANCH_SECONDS),
            ScriptedWorker("end", "the answer", delay_seconds=END_SECONDS),
        ],
    )
    makespans = []
    for _ in range(TIMES):
        started = perf_counter()
        await runner.run("What do both sides say?")
        makespans.append(perf_counter() - started)
    return median(makespans)


THRESHOLDS: Final = {
    "taskgroup_ratio": (AT_MOST, 2.2),
    "langgraph_ratio": (AT_LEAST, 10.0),
    "join_makespan_ratio": (AT_MOST, 1.05),
}


def engine_figures(timings: Mapping[str, Timing], join_seconds: float, repeat: int) -> Figures:
    """Compare the fastest blocks: ours with the bare TaskGroup's, LangGraph's with ours."""
    engine, peer = timings["engine"].best, timings.get("langgraph")
    document = {
        "taskgroup_ratio": round(engine / timings["taskgroup"].best, 3),
        "langgraph_ratio": None if peer is None else round(peer.best / engine, 2),
        "join_makespan_ratio": round(join_seconds / MIN_SECONDS, 4),
        "microseconds": {
            name: {key: round(value, 2) for key, value in asdict(timing).items()}
            for name, timing in timings.items()
        },
        "join_milliseconds": round(join_seconds * 1000, 2),
        "repeat": repeat,
        "langgraph": LANGGRAPH.version,
        **machine(),
    }
    return Figures(document, THRESHOLDS)


LENGTH: Final = 5
QUESTION: Final = "What does orchestration cost?"


class IdleWorker(Worker):
    """A worker that replies at once."""

    profile = WorkerProfile(name="idle", description="does nothing")
    _reply = Reply("done", Usage(1, 1, 0, 0, 0))

    async def reply(self, request: Request) -> Reply:
        return self._reply


def chain_workflow(worker: str) -> Workflow:
    return Workflow(
        tuple(
            Step(worker, f"subtask {index}", access=(index - 1,) if index else ())
            for index in range(LENGTH)
        )
    )


def bare_taskgroup() -> Chain:
    """Five tasks, each of which awaits the one before and then the worker."""
    worker = IdleWorker()
    request = Request((user(QUESTION),))

    async def link(before: asyncio.Task[Reply] | None) -> Reply:
        if before is not None:
            await before
        return await worker.reply(request)

    async def chain() -> None:
        async with asyncio.TaskGroup() as group:
            last: asyncio.Task[Reply] | None = None
            for _ in range(LENGTH):
                last = group.create_task(link(last))

    return chain


def engine(*, watched: bool) -> Chain:
    """The engine as the runner uses it, with new objects for every run."""
    worker = IdleWorker()
    workers: Mapping[str, Worker] = {worker.profile.name: worker}
    pool = Pool((worker.profile,))
    workflow = chain_workflow(worker.profile.name)
    conductor = FixedConductor(workflow)
    call_policy = CallPolicy()
    call_policy.bind()
    latest: deque[Event] = deque(maxlen=1)
    emit = latest.append if watched else None

    async def chain() -> None:
        run = Run(
            id="run_bench",
            question=QUESTION,
            status="running",
            pool=pool,
            conductor=conductor.name,
            created_at="2026-01-02T00:00:00+00:00",
        )
        context = RunContext(
            nested_conductor=conductor,
            workers=workers,
            call_policy=call_policy,
            ledger=Ledger(DEFAULT_BUDGET),
            started=call_policy.clock(),
            emit=emit,
        )
        await Execution(
            context, run, Round(0, workflow), emit=emit, run_nested=_no_nesting
        ).execute()

    return chain


def runner() -> Chain:
    """A whole run: id, plan by a fixed conductor, record."""
    worker = IdleWorker()
    conductor = FixedConductor(chain_workflow(worker.profile.name))
    return partial(Runner(conductor, [worker]).run, QUESTION)


async def _no_nesting(*_: object, **__: object) -> None:
    raise AssertionError("there is no conductor in this pool")


def contestants() -> dict[str, Chain]:
    return {
        "taskgroup": bare_taskgroup(),
        "engine": engine(watched=False),
        "engine_watched": engine(watched=True),
        "runner": runner(),
    }


def run_langgraph(python: Path, order: Mapping[str, Any]) -> list[float]:
    """Have LangGraph carry out an order, as `peers/langgraph_peer.py` has it."""
    ended = subprocess.run(  # noqa: S603 - a peer's Python
        [str(python), "-I", str(Path(__file__).with_name("peers") / "langgraph_peer.py")],
        input=json.dumps(order),
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith(TRACING_PREFIXES)},
    )
    if ended.returncode != 0:
        raise ConfigError(
            "langgraph gave no figures (its output is above); delete its environment to have it "
            "made again, or leave the peers out with --no-peers"
        )
    found: list[float] = json.loads(ended.stdout)
    return found


async def measure_engine(repeat: int, *, peers: bool, on_progress: OnProgress) -> Figures:
    """Measure `repeat` blocks of each contestant; without `peers`, Podium alone."""
    python = await prepare(LANGGRAPH, on_progress) if peers else None
    on_progress(f"measuring {repeat} blocks of each, in turns …")
    timings = await time_interleaved(contestants(), repeat)
    if python is not None:
        blocks = await asyncio.to_thread(run_langgraph, python, {"repeat": repeat})
        timings["langgraph"] = Timing(min(blocks), median(blocks))
    return engine_figures(timings, await join_makespan(), repeat)
