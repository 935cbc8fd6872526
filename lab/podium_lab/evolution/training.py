"""Learn from reward by evolution: a coordinator of few parameters over a model that stays as it is.

A step asks the search for candidates, has each of them lead the workers through the step's
questions (`trials`), and tells the search which share of the answers was right. There is no
gradient, so nothing needs to know how an answer came about.

Every step leaves a checkpoint: the coordinator so far, and the rewards of each candidate of every
step, which bring the search back to where it was. A training that was killed continues from there
and comes to the same end.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import fields
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podium._util.files import read_json, replace_directory, write_atomically
from podium.conductors.evolved_turns import ROLES, CoordinatorDescription
from podium.conductors.routing.arrays import normalize_seed
from podium.core.errors import ConfigError, Unavailable
from podium.core.task import Task
from podium.train.exercises import exercises, held_out_exercises
from podium.train.recipe import Recipe
from podium.train.schema import EvolveTable
from podium.train.training_log import (
    CHECKPOINTS,
    RESTART_HINT,
    STATE_FILE,
    Checkpoint,
    TrainingLog,
    explain_out_of_space,
    last_checkpoint,
)
from podium.train.worker_set import WorkerSet, connect_workers
from podium.workers import Http
from podium_lab.evolution.coordinator import Coordinator
from podium_lab.evolution.hidden_states import HiddenStateReader
from podium_lab.evolution.search import (
    SearchSpace,
    default_population,
    principal_directions,
    read_space,
    start_search,
)
from podium_lab.evolution.trials import (
    CachedReader,
    Trial,
    TrialRunner,
    diagnose_trials,
    mean_reward,
)

COORDINATOR: Final = "coordinator"
"""The directory in which the coordinator lies: below the output, and in every checkpoint."""


LOOKED_AT: Final = 256
"""The questions by whose hidden states directions are found."""


def train(recipe: Recipe, *, resume: bool = False) -> None:
    """Evolve the recipe's coordinator, from the beginning or from its last checkpoint."""
    begun = last_checkpoint(recipe.output) if resume else None
    with (
        explain_out_of_space(recipe.output, memory_keys="evolve.questions or evolve.population"),
        TrainingLog(recipe, after=begun.step if begun else 0) as training_log,
    ):
        asyncio.run(_train(recipe, training_log, begun))


async def _train(recipe: Recipe, training_log: TrainingLog, begun: Checkpoint | None) -> None:
    """Evolve, with everything on one event loop, where the workers live."""
    workers = connect_workers(recipe, Http())
    try:
        evolve = recipe.evolve
        assert evolve is not None, "checked as it was read"
        reader = HiddenStateReader(recipe.model.base, token=evolve.token)
        try:
            described = await _describe(recipe, evolve, workers, reader)
            tasks = [exercise.task for exercise in exercises(recipe, workers.pool)]
            runner = TrialRunner(workers.flaky_workers, workers.pool, turns=evolve.turns)
            space = await _space(evolve, described, runner, reader, tasks, begun)
            evolution = _Evolution(recipe, evolve, runner, reader, space, training_log)
            if recipe.run.eval_every:
                held_out = held_out_exercises(recipe, workers.pool)
                evolution.held_out = [exercise.task for exercise in held_out]
            if begun is not None:
                evolution.resume(begun)
            if await evolution.run(tasks):
                evolution.coordinator.save(recipe.output / COORDINATOR)
                cache = workers.cache
                hits = {"cache_hits": cache.hits, "cache_misses": cache.misses} if cache else {}
                training_log.finish({"parameters": space.size, **hits})
            else:
                training_log.log_stop(evolution.step)
        finally:
            await reader.close()
    finally:
        await workers.close()


async def _describe(
    recipe: Recipe, evolve: EvolveTable, workers: WorkerSet, reader: HiddenStateReader
) -> CoordinatorDescription:
    """Return the coordinator's description, without its numbers."""
    shape = await reader.shape(evolve.matrices)
    names = tuple(worker.profile.name for worker in workers.workers)
    return CoordinatorDescription(
        workers=names,
        models=tuple(workers.pool[name].model for name in names),
        base=recipe.model.base,
        width=shape.width,
        roles=ROLES if evolve.roles else (),
        token=evolve.token,
        matrices=evolve.matrices,
        ranks=shape.ranks,
        turns=evolve.turns,
    )


async def _space(
    evolve: EvolveTable,
    described: CoordinatorDescription,
    runner: TrialRunner,
    reader: HiddenStateReader,
    tasks: Sequence[Task],
    begun: Checkpoint | None,
) -> SearchSpace:
    """Return what is searched. Directions are those of the hidden states that a coordinator without
    preferences meets; a training that is resumed has kept them."""
    if evolve.directions is None:
        return SearchSpace(described)
    if begun is not None:
        return read_space(described, evolve.directions, begun.path)
    readings = CachedReader(reader)
    await runner.run_trials(
        [(Coordinator.blank(described), readings)], tasks[:LOOKED_AT], seed=(0,)
    )
    return SearchSpace(described, principal_directions(await readings.states(), evolve.directions))


class _Evolution:
    """The search and how far it has come."""

    def __init__(
        self,
        recipe: Recipe,
        evolve: EvolveTable,
        runner: TrialRunner,
        reader: HiddenStateReader,
        space: SearchSpace,
        training_log: TrainingLog,
    ) -> None:
        self._recipe = recipe
        self._evolve = evolve
        self._runner = runner
        self._reader = reader
        self._space = space
        self._training_log = training_log
        self._blank = Coordinator.blank(space.described)
        self._seed = normalize_seed(recipe.run.seed)
        self._population = evolve.population or default_population(space.size)
        self._search = start_search(
            evolve.method,
            np.zeros(space.size),
            sigma=evolve.sigma,
            population=self._population,
            seed=self._seed,
        )
        self._rewards: list[list[float]] = []
        self.held_out: Sequence[Task] = ()

    @property
    def step(self) -> int:
        return len(self._rewards)

    @property
    def coordinator(self) -> Coordinator:
        return self._make_coordinator(self._search.found)

    def _make_coordinator(self, chosen: NDArray[np.float64]) -> Coordinator:
        return self._blank.with_parameters(self._space.parameters(chosen))

    def resume(self, begun: Checkpoint) -> None:
        """Restore the search by replaying the checkpoint's rewards."""
        was = Coordinator.load(begun.path / COORDINATOR)
        before, now = was.described, self._blank.described
        names = [item.name for item in fields(before)]
        if changed := [name for name in names if getattr(before, name) != getattr(now, name)]:
            raise ConfigError(
                f"{begun.path}: its coordinator has other {' and '.join(changed)} than the recipe "
                f"comes to now; put back what was changed, or {RESTART_HINT}"
            )
        for rewards in kept_rewards(begun, self._population):
            self._search.ask()
            self._tell(rewards)
        if not np.allclose(was.parameters, self.coordinator.parameters, rtol=1e-3, atol=1e-6):
            raise ConfigError(
                f"{begun.path}: the search comes to other parameters now than it had come to then; "
                f"install the versions of cmaes and numpy that it began with, or {RESTART_HINT}"
            )

    async def run(self, tasks: Sequence[Task]) -> bool:
        """Continue to the last step; return False if the recipe's minutes were over before."""
        minutes, size = self._recipe.run.minutes, self._evolve.questions
        while self.step < self._evolve.steps:
            await self._one_step(tasks[self.step * size : (self.step + 1) * size])
            is_over = minutes is not None and self._training_log.seconds > minutes * 60
            if is_over and self.step < self._evolve.steps:
                return False
        return True

    async def _one_step(self, tasks: Sequence[Task]) -> None:
        candidates = [self._make_coordinator(chosen) for chosen in self._search.ask()]
        trials = await self._run_trials(candidates, tasks, seed=(self._seed, self.step + 1))
        rewards = rewards_of(trials)
        every_trial = [trial for own in trials for trial in own]
        seen = diagnose_trials(every_trial, best=max(rewards), sigma=self._search.sigma)
        self._training_log.log_candidates(seen)
        self._tell(rewards)
        self._training_log.end_step(self.step)
        every = self._recipe.run.eval_every
        if every and self.step % every == 0:
            (measured,) = await self._run_trials([self.coordinator], self.held_out)
            self._training_log.log_measurement(self.step, diagnose_trials(measured))
        self._keep()

    async def _run_trials(
        self,
        coordinators: Sequence[Coordinator],
        tasks: Sequence[Task],
        seed: Sequence[int] | None = None,
    ) -> list[list[Trial]]:
        """Run each coordinator; without scaled matrices, all share the hidden states."""
        shared, matrices = CachedReader(self._reader), self._evolve.matrices
        candidates = [
            (one, CachedReader(self._reader.with_scales(matrices, one.scales)))
            if matrices
            else (one, shared)
            for one in coordinators
        ]
        return await self._runner.run_trials(candidates, tasks, seed=seed)

    def _tell(self, rewards: Sequence[float]) -> None:
        self._search.tell(rewards)
        self._rewards.append(list(rewards))

    def _keep(self) -> None:
        """Write the checkpoint of the step, and delete the oldest."""
        checkpoints = self._recipe.output / CHECKPOINTS
        with replace_directory(checkpoints / f"checkpoint-{self.step}") as draft:
            self.coordinator.save(draft / COORDINATOR)
            self._space.save(draft)
            state = {"step": self.step, "rewards": self._rewards}
            write_atomically(draft / STATE_FILE, json.dumps(state) + "\n")
        too_old = self.step - self._recipe.run.max_checkpoints
        shutil.rmtree(checkpoints / f"checkpoint-{too_old}", ignore_errors=True)


def kept_rewards(begun: Checkpoint, population: int) -> list[list[float]]:
    """Read the rewards of every candidate of every step; an error says what is damaged."""
    path = begun.path / STATE_FILE
    remedy = f"remove {begun.path} to resume from the checkpoint before it, or {RESTART_HINT}"
    state = read_json(path, remedy)
    try:
        found = np.array(state["rewards"], np.float64)
    except (KeyError, TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if found.shape != (begun.step, population) or not np.isfinite(found).all():
        raise ConfigError(
            f"{path}: expected in 'rewards' a number for each of {population} candidates in each "
            f"of {begun.step} steps, and it is damaged; {remedy}"
        )
    rewards: list[list[float]] = found.tolist()
    return rewards


def rewards_of(trials: Sequence[Sequence[Trial]]) -> list[float]:
    """Return the reward of each candidate. One whose every run failed by a worker's fault counts as
    much as the others do on average."""
    found = [mean_reward(own) for own in trials]
    known = [reward for reward in found if reward is not None]
    if not known:
        why = next((trial.fault for own in trials for trial in own), "there are no runs")
        raise Unavailable(
            f"every run of this step failed by a worker's fault: {why}; fix that, then continue "
            f"with --resume"
        )
    return [fmean(known) if reward is None else reward for reward in found]
