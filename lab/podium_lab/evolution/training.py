"""Learn from reward by evolution: a coordinator of few parameters over a frozen model.

A step asks the search for candidates, has each of them lead the workers through the step's
questions, and tells the search which share of the answers was right. There is no gradient, so
nothing needs to know how an answer came about. It takes minutes, and an interrupted training starts
again from the beginning.

All candidates get the same questions, and all runs are in progress at once. Choices are drawn by
each candidate's preferences from random numbers that are the same for all of them, so candidates
differ in reward by preference and not by luck.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import numpy as np
from cmaes import SepCMA
from numpy.typing import NDArray

from podium._util.distribution import entropy_bits, shares
from podium.conductors.evolved_turns import ROLES, CoordinatorDescription, ends_accepted
from podium.core.errors import ConfigError, PlanError, Unavailable, UsageError
from podium.core.pool import Pool
from podium.core.run import Run
from podium.core.task import Task
from podium.core.worker import Worker
from podium.engine import CallPolicy
from podium.engine.runner import Options, Runner
from podium.train.diagnostics import RolloutSample
from podium.train.exercises import ExerciseSet, load_exercises
from podium.train.recipe import Recipe
from podium.train.schema import EvolveTable
from podium.train.score import worker_fault
from podium.train.training_log import TrainingLog, explain_out_of_space
from podium.train.worker_set import WorkerSet, connect_workers
from podium_lab.evolution.coordinator import Coordinator, EvolvedConductor, Scales, StateReader
from podium_lab.evolution.coordinator import Vector as HiddenState
from podium_lab.evolution.hidden_states import HiddenStateReader

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
    """A reader that reads each transcript once with the same scales."""

    def __init__(self, reader: StateReader) -> None:
        self._reader = reader
        self._read: dict[tuple[str, Scales], asyncio.Task[HiddenState]] = {}

    async def read(self, transcript: str, scales: Scales = ()) -> HiddenState:
        key = (transcript, scales)
        if key not in self._read:
            self._read[key] = asyncio.ensure_future(self._reader.read(transcript, scales))
        return await self._read[key]

    async def states(self) -> list[HiddenState]:
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


Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def default_population(parameters: int) -> int:
    return math.ceil(4 + 3 * math.log(parameters))


class SeparableCma:
    """Separable CMA-ES that maximizes; the result is the mean of the distribution.

    The same seed and rewards give the same candidates on every machine.
    """

    def __init__(self, start: Vector, sigma: float, population: int, seed: int) -> None:
        self._optimiser = SepCMA(
            mean=start.copy(), sigma=sigma, population_size=population, seed=seed
        )
        self._candidates: list[Vector] = []
        self.sigma = sigma

    @property
    def mean(self) -> Vector:
        mean: Vector = self._optimiser.mean.copy()
        return mean

    def ask(self) -> list[Vector]:
        self._candidates = [self._optimiser.ask() for _ in range(self._optimiser.population_size)]
        self.sigma = _spread(self._candidates, self._optimiser.mean)
        return self._candidates

    def tell(self, rewards: Sequence[float]) -> None:
        losses = [-reward for reward in rewards]  # SepCMA minimizes
        self._optimiser.tell(list(zip(self._candidates, losses, strict=True)))


def _spread(candidates: Sequence[Vector], middle: Vector) -> float:
    return float(np.sqrt(np.mean((np.array(candidates) - middle) ** 2)))


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """The search space of a coordinator; `directions` are those of the head's rows, and without
    them every number is free."""

    description: CoordinatorDescription
    directions: Matrix | None = None

    @property
    def size(self) -> int:
        if self.directions is None:
            return self.description.size
        return sum(self.description.ranks) + self.description.rows * len(self.directions)

    def parameters(self, chosen: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.directions is None:
            return chosen
        scales, head = np.split(chosen, [sum(self.description.ranks)])
        rows = head.reshape(self.description.rows, -1) @ self.directions
        return np.concatenate([scales, rows.ravel()])


def principal_directions(states: Sequence[NDArray[np.floating[Any]]], count: int) -> Matrix:
    """Return the principal directions of these states, scaled so that the mean square of the states
    along each of them is 1."""
    seen = np.array(states, np.float64)
    if not np.isfinite(seen).all():
        raise ConfigError(
            f"of the {len(states)} hidden states that were looked at some have numbers that are "
            f"infinite or none at all, so no directions can be found; have another model.base read"
        )
    lengths, directions = np.linalg.svd(seen / np.sqrt(len(states)), full_matrices=False)[1:]
    found = int(np.count_nonzero(lengths > lengths[0] * 1e-6))
    if found < count:
        raise ConfigError(
            f"evolve.principal_directions = {count}, and the {len(states)} hidden states that were "
            f"looked at differ along {found}; lower it, or have more questions"
        )
    lengths, directions = lengths[:count], directions[:count]
    strongest = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(count), strongest])  # the same on every machine
    scaled: Matrix = (signs / lengths)[:, None] * directions
    return scaled


COORDINATOR: Final = "coordinator"
DIRECTION_QUESTIONS: Final = 256


def train(recipe: Recipe) -> None:
    with (
        explain_out_of_space(recipe.output, memory_keys="evolve.questions or evolve.population"),
        TrainingLog(recipe) as training_log,
    ):
        asyncio.run(_train(recipe, training_log))


async def _train(recipe: Recipe, training_log: TrainingLog) -> None:
    """Evolve, with everything on one event loop, where the workers live."""
    workers = connect_workers(recipe)
    try:
        evolve = recipe.evolve
        assert evolve is not None, "checked as it was read"
        reader = HiddenStateReader(recipe.model.base, token=evolve.hidden_state_token)
        try:
            description = await _describe(recipe, evolve, workers, reader)
            runner = TrialRunner(workers.flaky_workers, workers.pool, turns=evolve.turns)
            exercises = load_exercises(recipe, workers.pool)
            tasks = [exercise.task for exercise in exercises.train]
            space = await _space(evolve, description, runner, reader, tasks)
            found = await _search(recipe, runner, reader, space, exercises, training_log)
            found.save(recipe.output / COORDINATOR)
            cache = workers.cache
            hits = {"cache_hits": cache.hits, "cache_misses": cache.misses} if cache else {}
            training_log.finish({"parameters": space.size, **hits})
        finally:
            await reader.close()
    finally:
        await workers.close()


async def _describe(
    recipe: Recipe, evolve: EvolveTable, workers: WorkerSet, reader: HiddenStateReader
) -> CoordinatorDescription:
    names = tuple(worker.profile.name for worker in workers.workers)
    return CoordinatorDescription(
        workers=names,
        models=tuple(workers.pool[name].model for name in names),
        base=recipe.model.base,
        width=await reader.width(),
        roles=ROLES if evolve.roles else (),
        hidden_state_token=evolve.hidden_state_token,
        matrices=evolve.matrices,
        ranks=await reader.ranks(evolve.matrices),
        turns=evolve.turns,
    )


async def _space(
    evolve: EvolveTable,
    description: CoordinatorDescription,
    runner: TrialRunner,
    reader: HiddenStateReader,
    tasks: Sequence[Task],
) -> SearchSpace:
    """Return what is searched. Directions are those of the hidden states that a coordinator without
    preferences meets."""
    if evolve.principal_directions is None:
        return SearchSpace(description)
    readings = CachedReader(reader)
    await runner.run_trials(
        [Coordinator.blank(description)], readings, tasks[:DIRECTION_QUESTIONS], seed=(0,)
    )
    return SearchSpace(
        description, principal_directions(await readings.states(), evolve.principal_directions)
    )


async def _search(
    recipe: Recipe,
    runner: TrialRunner,
    reader: HiddenStateReader,
    space: SearchSpace,
    exercises: ExerciseSet,
    training_log: TrainingLog,
) -> Coordinator:
    """Take every step: try candidates on its questions and tell the search their rewards."""
    evolve = recipe.evolve
    assert evolve is not None, "checked as it was read"
    tasks = [exercise.task for exercise in exercises.train]
    held_out = [exercise.task for exercise in exercises.held_out]
    population = evolve.population or default_population(space.size)
    seed, every = recipe.run.seed, recipe.run.eval_every
    search = SeparableCma(np.zeros(space.size), evolve.sigma, population, seed)
    blank = Coordinator.blank(space.description)
    for step in range(1, evolve.steps + 1):
        candidates = [blank.with_parameters(space.parameters(chosen)) for chosen in search.ask()]
        questions = tasks[(step - 1) * evolve.questions : step * evolve.questions]
        trials = await runner.run_trials(
            candidates, CachedReader(reader), questions, seed=(seed, step)
        )
        rewards = rewards_of(trials)
        every_trial = [trial for own in trials for trial in own]
        seen = diagnose_trials(every_trial, best=max(rewards), sigma=search.sigma)
        training_log.log_candidates(seen)
        search.tell(rewards)
        training_log.end_step(step)
        if every and step % every == 0:
            mean = blank.with_parameters(space.parameters(search.mean))
            (measured,) = await runner.run_trials([mean], CachedReader(reader), held_out)
            training_log.log_measurement(step, diagnose_trials(measured))
    return blank.with_parameters(space.parameters(search.mean))


def rewards_of(trials: Sequence[Sequence[Trial]]) -> list[float]:
    """Return the reward of each candidate. One whose every run failed by a worker's fault counts as
    much as the others do on average."""
    found = [mean_reward(own) for own in trials]
    known = [reward for reward in found if reward is not None]
    if not known:
        why = next((trial.fault for own in trials for trial in own), "there are no runs")
        raise Unavailable(
            f"every run of this step failed by a worker's fault: {why}; fix that, then start again"
        )
    return [fmean(known) if reward is None else reward for reward in found]
