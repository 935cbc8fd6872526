"""Try candidates out: coordinators lead the workers through questions, and every run is graded.

All candidates get the same questions, and all runs are in progress at once. Choices are drawn by
each candidate's preferences from random numbers that are the same for all of them, so candidates
differ in reward by preference and not by luck.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np

from podium._util.distribution import entropy_bits, shares
from podium.conductors.evolved_turns import ends_accepted
from podium.core.errors import PlanError, UsageError
from podium.core.pool import Pool
from podium.core.run import Run
from podium.core.task import Task
from podium.core.worker import Worker
from podium.engine import CallPolicy
from podium.engine.runner import Options, Runner
from podium.train.diagnostics import RolloutSample
from podium.train.score import worker_fault
from podium_lab.evolution.coordinator import Coordinator, EvolvedConductor, StateReader, Vector

SAMPLES: Final = 2
"""So many right runs and so many wrong ones are kept to look at."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a coordinator for one task; `fault` is the worker's error that makes it void."""

    task: Task
    run: Run
    right: bool
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDiagnostics:
    """Statistics of some runs; an unknown number is None.

    Shares are from 0 to 1. A run that failed by a worker's fault counts neither as right nor as
    wrong. `best` is the reward of the best candidate and `sigma` how far they lie apart, where
    there were several. `accepted` is the share of runs that end with a verifier's acceptance.
    `workers` and `roles` are shares of the turns; `tokens` is what the workers of a run wrote on
    average.
    """

    rollouts: int
    accuracy: float | None
    accuracy_by_kind: Mapping[str, float]
    best: float | None
    sigma: float | None
    dropped_share: float
    main_drop_reason: str
    turns: float
    accepted: float
    workers: Mapping[str, float]
    roles: Mapping[str, float]
    tokens: float | None
    samples: tuple[RolloutSample, ...] = ()

    def as_metrics(self) -> dict[str, float]:
        known = {
            "rollouts": self.rollouts,
            "reward": self.accuracy,
            "accuracy": self.accuracy,
            "best_candidate": self.best,
            "sigma": self.sigma,
            "dropped_share": self.dropped_share,
            "mean_turns": self.turns,
            "accepted": self.accepted,
            "worker_tokens": self.tokens,
            "entropy_bits": entropy_bits(self.workers) if self.workers else None,
        }
        metrics = {name: float(value) for name, value in known.items() if value is not None}
        tables = {"accuracy": self.accuracy_by_kind, "worker": self.workers, "role": self.roles}
        for table, values in tables.items():
            metrics |= {f"{table}/{name}": value for name, value in sorted(values.items()) if name}
        return metrics

    def __str__(self) -> str:
        roles = " ".join(f"{role} {share:.0%}" for role, share in self.roles.items())
        most = next((f"{name} {share:.0%}" for name, share in self.workers.items()), "none")
        best = "" if self.best is None else f"best {self.best:.3f}  "
        sigma = "" if self.sigma is None else f"  sigma {self.sigma:.4f}"
        return (
            f"accuracy {self.accuracy or 0.0:.3f}  {best}turns {self.turns:.2f}  {roles}  "
            f"entropy {entropy_bits(self.workers):.2f} bits (most: {most}){sigma}"
        )


def diagnose_trials(
    trials: Sequence[Trial], *, best: float | None = None, sigma: float | None = None
) -> TurnDiagnostics:
    if not trials:
        raise UsageError("there are no runs to look at; give at least one")
    graded = [trial for trial in trials if not trial.fault]
    faults = Counter(trial.fault for trial in trials if trial.fault)
    by_kind: dict[str, list[bool]] = {}
    for trial in graded:
        by_kind.setdefault(trial.task.kind, []).append(trial.right)
    written = [trial.run.usage.output_tokens for trial in trials]
    known = [tokens for tokens in written if tokens is not None]
    return TurnDiagnostics(
        rollouts=len(trials),
        accuracy=mean_reward(trials),
        accuracy_by_kind={kind: fmean(right) for kind, right in by_kind.items()},
        best=best,
        sigma=sigma,
        dropped_share=faults.total() / len(trials),
        main_drop_reason=faults.most_common(1)[0][0] if faults else "",
        turns=fmean(len(trial.run.steps) for trial in trials),
        accepted=fmean(ends_accepted(trial.run.rounds) for trial in trials),
        workers=shares(Counter(step.worker for trial in trials for step in trial.run.steps)),
        roles=shares(Counter(role for trial in trials for role in _roles(trial))),
        tokens=fmean(known) if len(known) == len(written) else None,
        samples=tuple(
            _sample(trial)
            for right in (True, False)
            for trial in [one for one in graded if one.right is right][:SAMPLES]
        ),
    )


def _roles(trial: Trial) -> list[str]:
    return [round_.role or "worker" for round_ in trial.run.rounds if round_.steps]


def _sample(trial: Trial) -> RolloutSample:
    turns = zip(_roles(trial), trial.run.steps, strict=True)
    return RolloutSample(
        question=trial.task.question,
        text="\n".join(f"{step.worker} as {role}: {step.reply}" for role, step in turns),
        answer=trial.run.answer or "",
        reward=float(trial.right),
        right=trial.right,
        kind=trial.task.kind,
        problem=trial.run.error or "",
    )


class CachedReader:
    """A reader that reads each transcript once."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self._read: dict[str, asyncio.Task[Vector]] = {}

    async def read(self, transcript: str) -> Vector:
        if transcript not in self._read:
            self._read[transcript] = asyncio.ensure_future(self._reader.read(transcript))
        return await self._read[transcript]

    async def states(self) -> list[Vector]:
        return await asyncio.gather(*self._read.values())


class TrialRunner:
    """Tries coordinators out over one pool of workers."""

    def __init__(self, workers: Sequence[Worker], pool: Pool, *, turns: int) -> None:
        self._workers = workers
        self._pool = pool
        self._options = Options(rounds=turns, max_steps=1)
        self._call_policy = CallPolicy()

    async def run_trials(
        self,
        candidates: Sequence[Coordinator],
        reader: StateReader,
        tasks: Sequence[Task],
        *,
        seed: Sequence[int] | None = None,
    ) -> list[list[Trial]]:
        """Return the runs of each candidate, one for each task. Without a seed nothing is drawn,
        and each takes what it prefers most."""
        runs = [
            self._try_task(
                EvolvedConductor(
                    coordinator,
                    reader,
                    generator=None if seed is None else np.random.default_rng([*seed, position]),
                ),
                task,
            )
            for coordinator in candidates
            for position, task in enumerate(tasks)
        ]
        trials = await asyncio.gather(*runs)
        return [trials[at : at + len(tasks)] for at in range(0, len(trials), len(tasks))]

    async def _try_task(self, conductor: EvolvedConductor, task: Task) -> Trial:
        runner = Runner(conductor, self._workers, pool=self._pool, call_policy=self._call_policy)
        run = await runner.run(task.question, options=self._options)
        if not run.steps:
            raise PlanError(f"a run ended before its first turn: {run.error}")
        faults = (worker_fault(round_) for round_ in run.rounds)
        fault = next((found for found in faults if found), "")
        right = not fault and run.answer is not None and await task.grader(run.answer)
        return Trial(task, run, right, fault)


def mean_reward(trials: Sequence[Trial]) -> float | None:
    """Return the share of right answers among runs without a fault; None where there is none."""
    graded = [trial.right for trial in trials if not trial.fault]
    return fmean(graded) if graded else None
