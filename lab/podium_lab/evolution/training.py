"""Learning from reward by evolution: a coordinator of few parameters over a model that stays as it
is.

A step asks the search (`podium.train.evolution`) for candidates, has each of them lead the workers
through the step's questions (`podium.train.candidates`), and tells it which share of the answers
was right. Which numbers are searched is `podium.train.space`. There is no gradient, so nothing
needs to know how an answer came about.

Every step leaves a checkpoint: the coordinator so far, and what each candidate of every step has
earned, from which the search is brought to where it was. A training that was killed goes on so, and
comes to the same end.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import fields
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium._util.files import read_json, replace_directory, write_atomically
from podium.conductors.evolved.coordinator import Coordinator, Vector
from podium.conductors.evolved.description import ROLES, Description
from podium.conductors.routing.arrays import normalize_seed
from podium.conductors.routing.learning import default_population
from podium.core.errors import ConfigError, Unavailable
from podium.core.pool import Pool
from podium.core.task import Task
from podium.train.exercises import exercises, held_out_exercises
from podium.train.recipe import Recipe
from podium.train.runtime import (
    ANEW,
    DIRECTORY,
    STATE_FILE,
    Checkpoint,
    explain_out_of_space,
    last_checkpoint,
)
from podium.train.schema import EvolveTable
from podium.train.training_log import TrainingLog
from podium.train.worker_set import WorkerSet, connect_workers
from podium.workers import Http
from podium.workers.local.hidden_states import HiddenReader
from podium_lab.evolution.results import COORDINATOR
from podium_lab.evolution.search import SearchSpace, principal_directions, read_space, start_search
from podium_lab.evolution.trials import (
    CachedReader,
    Trial,
    TrialRunner,
    diagnose_trials,
    mean_reward,
)

LOOKED_AT: Final = 256
"""The questions by whose hidden states directions are found."""


def train(recipe: Recipe, *, resume: bool = False) -> None:
    """Evolve the recipe's coordinator, from the beginning or from its last checkpoint."""
    begun = last_checkpoint(recipe.output) if resume else None
    with (
        explain_out_of_space(recipe.output, fewer="evolve.questions or evolve.population"),
        TrainingLog(recipe, after=begun.step if begun else 0) as training_log,
    ):
        asyncio.run(_train(recipe, training_log, begun))


async def _train(recipe: Recipe, training_log: TrainingLog, begun: Checkpoint | None) -> None:
    """Evolve, with everything on one event loop, where the workers live."""
    cast = connect_workers(recipe, Http())
    try:
        evolve = recipe.evolve
        assert evolve is not None, "checked as it was read"
        reader = HiddenReader(recipe.model.base, token=evolve.token)
        try:
            described = await _described(recipe, evolve, cast, reader)
            tryouts = _Tryouts(evolve, cast, reader)
            questions = _questions(recipe, cast.pool)
            space = await _space(evolve, described, tryouts, questions.training, begun)
            evolution = _Evolution(recipe, evolve, tryouts, questions, space, training_log)
            if begun is not None:
                evolution.go_on_from(begun)
            if await evolution.all_steps():
                evolution.coordinator.save(recipe.output / COORDINATOR)
                training_log.finish({"parameters": space.size, **_kept(cast)})
            else:
                training_log.log_stop(evolution.step)
        finally:
            await reader.close()
    finally:
        await cast.close()


class _Questions(NamedTuple):
    """What is trained on, in the order of the steps, and what progress is measured by."""

    training: Sequence[Task]
    held_out: Sequence[Task]


def _questions(recipe: Recipe, pool: Pool) -> _Questions:
    held_out = held_out_exercises(recipe, pool) if recipe.run.eval_every else ()
    return _Questions(
        [exercise.task for exercise in exercises(recipe, pool)],
        [exercise.task for exercise in held_out],
    )


async def _described(
    recipe: Recipe, evolve: EvolveTable, cast: WorkerSet, reader: HiddenReader
) -> Description:
    """What the coordinator is to be, all but its numbers."""
    shape = await reader.shape(evolve.matrices)
    return Description(
        workers=tuple(worker.profile.name for worker in cast.workers),
        models=tuple(cast.pool[worker.profile.name].model for worker in cast.workers),
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
    described: Description,
    tryouts: _Tryouts,
    tasks: Sequence[Task],
    begun: Checkpoint | None,
) -> SearchSpace:
    """What is to be searched. Directions are those of the hidden states that a coordinator meets
    which prefers nobody; a training that goes on has kept them."""
    if evolve.directions is None:
        return SearchSpace(described)
    if begun is not None:
        return read_space(described, evolve.directions, begun.path)
    states = await tryouts.states_met(Coordinator.blank(described), tasks[:LOOKED_AT])
    return SearchSpace(described, principal_directions(states, evolve.directions))


def _kept(cast: WorkerSet) -> dict[str, float]:
    if cast.cache is None:
        return {}
    return {"cache_hits": cast.cache.hits, "cache_misses": cast.cache.misses}


class _Tryouts:
    """Tries coordinators out over the recipe's workers, and reads what they read."""

    def __init__(self, evolve: EvolveTable, cast: WorkerSet, reader: HiddenReader) -> None:
        self._matrices = evolve.matrices
        self._reader = reader
        self._candidates = TrialRunner(cast.flaky_workers, cast.pool, turns=evolve.turns)

    async def try_out(
        self,
        coordinators: Sequence[Coordinator],
        tasks: Sequence[Task],
        seed: Sequence[int] | None = None,
    ) -> list[list[Trial]]:
        """The runs of each. Where no matrix is scaled, all share what was read."""
        readings = CachedReader(self._reader)
        readers = [
            CachedReader(self._reader.with_scales(self._matrices, coordinator.scales))
            if self._matrices
            else readings
            for coordinator in coordinators
        ]
        tried = list(zip(coordinators, readers, strict=True))
        return await self._candidates.try_out(tried, tasks, seed=seed)

    async def states_met(self, coordinator: Coordinator, tasks: Sequence[Task]) -> list[Vector]:
        """The hidden states that a coordinator meets which draws its choices, each of them once."""
        readings = CachedReader(self._reader)
        await self._candidates.try_out([(coordinator, readings)], tasks, seed=(0,))
        return await readings.states()


class _Evolution:
    """The search, the questions, and how far it has come."""

    def __init__(
        self,
        recipe: Recipe,
        evolve: EvolveTable,
        tryouts: _Tryouts,
        questions: _Questions,
        space: SearchSpace,
        training_log: TrainingLog,
    ) -> None:
        self._recipe = recipe
        self._evolve = evolve
        self._training_log = training_log
        self._tryouts = tryouts
        self._questions = questions
        self._space = space
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

    @property
    def step(self) -> int:
        """How many steps are behind it."""
        return len(self._rewards)

    @property
    def coordinator(self) -> Coordinator:
        """The best that is known by now."""
        return self._made(self._search.found)

    def _made(self, chosen: NDArray[np.float64]) -> Coordinator:
        return self._blank.with_parameters(self._space.parameters(chosen))

    def go_on_from(self, begun: Checkpoint) -> None:
        """Restore the search by giving it all rewards of the checkpoint again."""
        was = Coordinator.load(begun.path / COORDINATOR)
        if changed := _changed(was.described, self._blank.described):
            raise ConfigError(
                f"{begun.path}: its coordinator has other {' and '.join(changed)} than the recipe "
                f"comes to now; put back what was changed, or {ANEW}"
            )
        for rewards in kept_rewards(begun, self._population):
            self._search.ask()
            self._tell(rewards)
        if not np.allclose(was.parameters, self.coordinator.parameters, rtol=1e-3, atol=1e-6):
            raise ConfigError(
                f"{begun.path}: the search comes to other parameters now than it had come to then; "
                f"install the versions of cmaes and numpy that it began with, or {ANEW}"
            )

    async def all_steps(self) -> bool:
        """Go on to the last step; False where the recipe's minutes were over before."""
        minutes = self._recipe.run.minutes
        while self.step < self._evolve.steps:
            await self._one_step()
            is_over = minutes is not None and self._training_log.seconds > minutes * 60
            if is_over and self.step < self._evolve.steps:
                return False
        return True

    async def _one_step(self) -> None:
        number, questions = self.step + 1, self._evolve.questions
        tasks = self._questions.training[self.step * questions : number * questions]
        candidates = [self._made(chosen) for chosen in self._search.ask()]
        trials = await self._tryouts.try_out(candidates, tasks, seed=(self._seed, number))
        rewards = rewards_of(trials)
        self._training_log.log_candidates(
            diagnose_trials(
                [trial for own in trials for trial in own],
                best=max(rewards),
                sigma=self._search.sigma,
            )
        )
        self._tell(rewards)
        self._training_log.end_step(self.step)
        every = self._recipe.run.eval_every
        if every and self.step % every == 0:
            (measured,) = await self._tryouts.try_out([self.coordinator], self._questions.held_out)
            self._training_log.log_measurement(self.step, diagnose_trials(measured))
        self._keep()

    def _tell(self, rewards: Sequence[float]) -> None:
        self._search.tell(rewards)
        self._rewards.append(list(rewards))

    def _keep(self) -> None:
        """Write the checkpoint of the step that is over, and drop the oldest one too many."""
        checkpoints = self._recipe.output / DIRECTORY
        with replace_directory(checkpoints / f"checkpoint-{self.step}") as draft:
            self.coordinator.save(draft / COORDINATOR)
            self._space.save(draft)
            state = {"step": self.step, "rewards": self._rewards}
            write_atomically(draft / STATE_FILE, json.dumps(state) + "\n")
        too_old = self.step - self._recipe.run.keep
        shutil.rmtree(checkpoints / f"checkpoint-{too_old}", ignore_errors=True)


def _changed(was: Description, now: Description) -> list[str]:
    """In what the two differ, by the names of their fields."""
    return [item.name for item in fields(was) if getattr(was, item.name) != getattr(now, item.name)]


def kept_rewards(begun: Checkpoint, population: int) -> list[list[float]]:
    """What each candidate of every step has earned; an error says what is wrong with the file."""
    path = begun.path / STATE_FILE
    remedy = f"remove {begun.path} to go on from the checkpoint before it, or {ANEW}"
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
    """What each candidate earned. One whose every run failed by a worker's fault says nothing, and
    counts as much as the others do on average."""
    found = [mean_reward(own) for own in trials]
    known = [reward for reward in found if reward is not None]
    if not known:
        why = next((trial.fault for own in trials for trial in own), "there are no runs")
        raise Unavailable(
            f"no run of this step says anything, for workers failed in all of them: {why}; mend "
            f"that, then go on by --resume"
        )
    return [fmean(known) if reward is None else reward for reward in found]
