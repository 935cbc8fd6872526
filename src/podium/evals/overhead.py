"""The CPU time that an evaluation adds to each call of a worker.

    overhead = await measure_overhead(questions=2000, workers=5)
    overhead.added_ms

Scripted workers reply at once, so the time is spent in the engine, graders, cached replies and
samples on disk. The time of the same calls without an evaluation is subtracted.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from podium.conductors import RulesConductor
from podium.core.pool import Pool
from podium.core.request import Request, user
from podium.core.task import Task
from podium.core.worker import Worker
from podium.evals.context import CountedWorker, RepeatCachedWorker
from podium.evals.evaluation import Evaluation
from podium.evals.log import REPLIES, EvalLogWriter
from podium.evals.sample import Case
from podium.evals.setup import EvalSetup
from podium.evals.statistics import round_figure
from podium.workers.cached import ReplyCache
from podium.workers.scripted import ScriptedWorker

MOST_ADDED_MS: Final = 1.5
CONCURRENCY: Final = 32
CACHE_BYTES: Final = 1_000_000_000
RIGHT: Final = "42"


@dataclass(frozen=True, slots=True)
class Overhead:
    """CPU seconds of the calls, in an evaluation and without."""

    calls: int
    evaluation_seconds: float
    bare_seconds: float

    @property
    def added_ms(self) -> float:
        """The CPU time added per call, in milliseconds."""
        return (self.evaluation_seconds - self.bare_seconds) / self.calls * 1000

    @property
    def is_met(self) -> bool:
        """True if the overhead is within its limit."""
        return self.added_ms < MOST_ADDED_MS

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return {
            "calls": self.calls,
            "evaluation_seconds": round_figure(self.evaluation_seconds),
            "bare_seconds": round_figure(self.bare_seconds),
            "added_ms": round_figure(self.added_ms),
            "most_added_ms": MOST_ADDED_MS,
            "met": self.is_met,
        }


async def measure_overhead(questions: int, workers: int) -> Overhead:
    """Send every worker every question, in an evaluation and without."""
    scripted = [
        ScriptedWorker(f"worker-{number}", RIGHT, keep_requests=0) for number in range(workers)
    ]
    pool = Pool(tuple(worker.profile for worker in scripted))
    cases = [Case(_task(number), pool) for number in range(questions)]
    with tempfile.TemporaryDirectory() as directory:
        evaluation_seconds = await _evaluated(scripted, cases, Path(directory))
    made = sum(worker.calls for worker in scripted)
    began = time.process_time()
    for worker in scripted:
        for case in cases:
            await worker.reply(Request((user(case.task.question),)))
    bare_seconds = time.process_time() - began
    assert made == questions * workers, "every question was sent once"
    return Overhead(made, evaluation_seconds, bare_seconds)


async def _evaluated(scripted: list[ScriptedWorker], cases: list[Case], directory: Path) -> float:
    """Return the CPU seconds of the evaluation, its files included."""
    began = time.process_time()
    with (
        ReplyCache(directory / REPLIES, CACHE_BYTES) as cache,
        EvalLogWriter(directory / "samples") as files,
    ):
        workers: dict[str, Worker] = {
            worker.profile.name: RepeatCachedWorker(CountedWorker(worker, Counter()), cache)
            for worker in scripted
        }
        setup = EvalSetup(workers=workers, pool=cases[0].pool, conductor=RulesConductor())
        files.resume({"suite": "overhead"})
        evaluation = Evaluation(
            setup,
            cases,
            seed=0,
            concurrency=CONCURRENCY,
            on_sample=files.write_sample,
            known=files.known,
        )
        await evaluation.row("best-single")
    return time.process_time() - began


def _task(number: int) -> Task:
    async def grader(answer: str) -> bool:
        return answer == RIGHT

    question = f"Question {number}: what do you get if you multiply six by nine?"
    return Task(id=f"question-{number}", question=question, grader=grader)
