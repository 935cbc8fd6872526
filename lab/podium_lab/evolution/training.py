"""Learn from reward by evolution: a coordinator of few parameters over a model that stays as it is.

A step asks the search for candidates, has each of them lead the workers through the step's
questions (`trials`), and tells the search which share of the answers was right. There is no
gradient, so nothing needs to know how an answer came about. It takes minutes, and an interrupted
training starts again from the beginning.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import numpy as np
from cmaes import SepCMA
from numpy.typing import NDArray

from podium.conductors.evolved_turns import ROLES, CoordinatorDescription
from podium.core.errors import ConfigError, Unavailable
from podium.core.task import Task
from podium.train.exercises import ExerciseSet, load_exercises
from podium.train.recipe import Recipe
from podium.train.schema import EvolveTable
from podium.train.training_log import TrainingLog, explain_out_of_space
from podium.train.worker_set import WorkerSet, connect_workers
from podium_lab.evolution.coordinator import Coordinator
from podium_lab.evolution.hidden_states import HiddenStateReader
from podium_lab.evolution.trials import (
    CachedReader,
    Trial,
    TrialRunner,
    diagnose_trials,
    mean_reward,
)

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
    """The search space of a coordinator; `directions` are the rows of a matrix, and without them
    every number is free."""

    description: CoordinatorDescription
    directions: Matrix | None = None

    @property
    def size(self) -> int:
        if self.directions is None:
            return self.description.size
        return self.description.rows * len(self.directions)

    def parameters(self, chosen: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.directions is None:
            return chosen
        return (chosen.reshape(self.description.rows, -1) @ self.directions).ravel()


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
