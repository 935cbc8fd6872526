"""Candidates on trial: coordinators lead the workers through questions, and every run is graded.

    candidates = Candidates(cast.workers, cast.pool, turns=5)
    trials = await candidates.try_out([(coordinator, reader), …], tasks, seed=(42, 7))

All candidates get the same questions and all runs are under way at once, by the same engine as
everybody's. Choices are drawn as each candidate prefers, from numbers that are the same for all of
them: two candidates differ in what they earn by what they prefer and not by luck. Where no matrix
of the model is scaled, what it makes of a transcript is the same for all candidates, and it is read
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from podium.conductors.evolved.conductor import EvolvedConductor
from podium.conductors.evolved.coordinator import Coordinator, Reader, Vector
from podium.core.errors import PlanError
from podium.core.pool import Pool
from podium.core.run import Run
from podium.core.task import Task
from podium.core.worker import Worker
from podium.engine import CallPolicy
from podium.engine.runner import Options, Runner
from podium.train.score import fault
from podium.train.turns import Trial


class Readings:
    """What one reader makes of transcripts, each of which is read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._read: dict[str, asyncio.Task[Vector]] = {}

    async def read(self, transcript: str) -> Vector:
        """The hidden state, kept or read now."""
        reading = self._read.get(transcript)
        if reading is None:
            reading = asyncio.ensure_future(self._reader.read(transcript))
            self._read[transcript] = reading
        return await reading

    async def states(self) -> list[Vector]:
        """Everything that was read, in the order in which it was asked for first."""
        return await asyncio.gather(*self._read.values())


class Candidates:
    """Tries coordinators out over one pool of workers."""

    def __init__(self, workers: Sequence[Worker], pool: Pool, *, turns: int) -> None:
        self._workers = workers
        self._pool = pool
        self._options = Options(rounds=turns, max_steps=1)
        self._call_policy = CallPolicy()

    async def try_out(
        self,
        candidates: Sequence[tuple[Coordinator, Reader]],
        tasks: Sequence[Task],
        *,
        seed: Sequence[int] | None = None,
    ) -> list[list[Trial]]:
        """A run of each candidate for each task, candidate by candidate. Without a seed nothing is
        drawn, and each takes what it prefers most."""
        runs = [
            self._tried(
                EvolvedConductor(
                    coordinator,
                    reader,
                    generator=None if seed is None else np.random.default_rng([*seed, place]),
                ),
                task,
            )
            for coordinator, reader in candidates
            for place, task in enumerate(tasks)
        ]
        trials = await asyncio.gather(*runs)
        return [trials[at : at + len(tasks)] for at in range(0, len(trials), len(tasks))]

    async def _tried(self, conductor: EvolvedConductor, task: Task) -> Trial:
        runner = Runner(conductor, self._workers, pool=self._pool, call_policy=self._call_policy)
        run = await runner.run(task.question, options=self._options)
        if not run.steps:
            raise PlanError(f"a run ended before its first turn: {run.error}")
        failed = _fault(run)
        right = not failed and run.answer is not None and await task.grader(run.answer)
        return Trial(task, run, right, failed)


def _fault(run: Run) -> str:
    """What a worker must mend before the run says anything about who led it, or nothing."""
    return next((found for round_ in run.rounds if (found := fault(round_))), "")


def earned(trials: Sequence[Trial]) -> float | None:
    """The share of right answers, of those that say something; None where none does."""
    told = [trial.right for trial in trials if not trial.fault]
    return sum(told) / len(told) if told else None
