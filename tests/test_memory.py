"""Ten thousand runs, and no more memory, tasks or files than after the first thousand.

The runs are made in a process of their own (this file, run as a program), because only there is
resident memory theirs alone. Writing a run down takes twenty times as long as the run itself, so
one in ten is kept in a real store and the others are not.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from podium.client.client import AsyncPodium
from podium.conductors import FixedConductor
from podium.core.errors import RequestRefused, Unavailable
from podium.core.events import RunDone, StepDelta
from podium.core.request import Request
from podium.core.run import Run
from podium.core.workflow import Step, Workflow
from podium.engine import RetryPolicy
from podium.workers.scripted import ScriptedWorker

RUNS: Final = 10_000
WARM_UP: Final = 1_000
KEPT_ONE_IN: Final = 10
MAX_GROWTH_BYTES: Final = 20_000_000
REPLY_WORDS: Final = 200
"""So long that a run holds some 11 kB: one run in five kept by mistake would be too much."""

STATM: Final = Path("/proc/self/statm")
OPEN_FILES: Final = Path("/dev/fd")

WORKFLOW: Final = Workflow(
    (
        Step("steady", "look at one side"),
        Step("unsteady", "look at the other side"),
        Step("writer", "bring both together", access=(0, 1)),
    )
)


@dataclass(frozen=True)
class Holdings:
    """What the process holds at one moment."""

    resident_bytes: int
    tasks: int
    files: int


def resident_bytes() -> int | None:
    """What is resident now; where the system does not say, the most that ever was."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "win32":
        return None
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def holdings() -> Holdings:
    gc.collect()
    files = len(os.listdir(OPEN_FILES)) if OPEN_FILES.exists() else 0
    return Holdings(resident_bytes() or 0, len(asyncio.all_tasks()), files)


def workers() -> list[ScriptedWorker]:
    """One that answers, one that often fails at first and sometimes for good, one that ends."""
    numbers, tries = count(), count()

    def fresh(request: Request) -> str:
        return " ".join(f"{next(numbers)}" for _ in range(REPLY_WORDS))

    def unsteady(request: Request) -> str | Unavailable | RequestRefused:
        number = next(tries)
        if number % 7 == 0:
            return Unavailable("busy")
        return RequestRefused("no") if number % 11 == 0 else fresh(request)

    return [
        ScriptedWorker("steady", fresh, keep_requests=100),
        ScriptedWorker("unsteady", unsteady, keep_requests=100),
        ScriptedWorker("writer", fresh, keep_requests=100),
    ]


async def one_run(podium: AsyncPodium, number: int) -> Run | None:
    """Most are asked, every third is streamed, and some of those are left before the end."""
    question = f"question {number}"
    if number % 3:
        return await podium.ask(question)
    run = None
    async with aclosing(podium.stream(question)) as events:
        async for event in events:
            if number % 4 == 0 and isinstance(event, StepDelta):
                break
            if isinstance(event, RunDone):
                run = event.run
    return run


def sorts_of(run: Run | None) -> Iterator[str]:
    """What was special about a run; None is one that was left."""
    if run is None:
        yield "left"
        return
    if any(len(step.attempts) > 1 for step in run.steps):
        yield "retried"
    if any(step.status == "failed" for step in run.steps):
        yield "failed in a step"


async def many_runs(runs: int, kept_one_in: int) -> dict[str, Any]:
    """What the process holds after the first runs and after all, and what sorts they were."""
    at_once = RetryPolicy(initial_wait_seconds=0.0)
    conductor = FixedConductor(WORKFLOW)
    sorts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "runs.db"
        async with (
            AsyncPodium(workers(), conductor, retry=at_once, store=file) as kept,
            AsyncPodium(workers(), conductor, retry=at_once) as forgotten,
        ):
            for number in range(runs):
                if number == WARM_UP:
                    early = holdings()
                podium = forgotten if number % kept_one_in else kept
                sorts.update(sorts_of(await one_run(podium, number)))
            late = holdings()
            sorts["kept"] = len(await (await kept.open()).store.list(limit=runs))
    return {"early": asdict(early), "late": asdict(late), "sorts": sorts}


def test_ten_thousand_runs_leave_no_memory_no_task_and_no_file_behind() -> None:
    if resident_bytes() is None:
        pytest.skip("this system does not say how much memory is resident")
    finished = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode == 0, finished.stderr
    outcome = json.loads(finished.stdout)
    early, late, sorts = Holdings(**outcome["early"]), Holdings(**outcome["late"]), outcome["sorts"]
    for sort in ("left", "retried", "failed in a step"):
        assert sorts[sort] > RUNS // 50, f"too few runs {sort}: {sorts}"
    assert sorts["kept"] == RUNS // KEPT_ONE_IN
    assert late.resident_bytes - early.resident_bytes < MAX_GROWTH_BYTES
    assert (late.tasks, late.files) == (early.tasks, early.files)


if __name__ == "__main__":
    json.dump(asyncio.run(many_runs(RUNS, KEPT_ONE_IN)), sys.stdout)
