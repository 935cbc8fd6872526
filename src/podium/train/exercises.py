"""Exercises: the tasks that a conductor is trained on, each with its planning context.

Études have pools of their own (`podium_lab.etudes.training`). Other tasks share the recipe's pool,
which may be shuffled or reduced for each of them. Needs no torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from podium._util.lab import lab_extra
from podium.client.assembly import assemble
from podium.conductors.prompt import Prompt
from podium.config import Settings, load
from podium.config.problems import suggest
from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError, PodiumError, Unavailable
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.request import FREE, Request, user
from podium.core.task import Task
from podium.core.worker import Worker
from podium.tasks import TaskRecord, load_source, paper_mix, read_records
from podium.tasks.suites import PAPER_SHARES, SplitShares, seeded_rank
from podium.train.recipe import Recipe
from podium.workers import Http

TINY: Final = Request((user("Reply with the word ok."),), max_tokens=16)
"""The request of the check; vendors allow no fewer tokens."""

LONGEST_CHECK: Final = 180.0
"""The timeout of the check in seconds."""


def recipe_prompt(recipe: Recipe) -> Prompt:
    table = recipe.prompt
    return Prompt(table.length, "lists", few_shot=table.few_shot, access=table.access)


def recipe_pool(recipe: Recipe) -> Pool:
    if recipe.pool.file is not None:
        return pool_settings(recipe).pool
    return Pool(
        tuple(
            WorkerProfile(name=role, provider="transformers", model=recipe.worker_base, price=FREE)
            for role in recipe.pool.roles
        ),
        share_question=False,
        mask_names=recipe.prompt.mask_names,
    )


def pool_settings(recipe: Recipe) -> Settings:
    """Load the recipe's pool file and check that the recipe's other keys fit it."""
    assert recipe.pool.file is not None, "the études' workers have no file"
    settings = load(Path(recipe.pool.file))
    names, subset = settings.pool.names, recipe.pool.subset
    nested = [worker.name for worker in settings.pool if worker.provider == CONDUCTOR_PROVIDER]
    if nested:
        raise ConfigError(
            f"{settings.source}: {nested[0]} is a conductor, and no runs are nested in training; "
            f"take it out of the pool"
        )
    if recipe.prompt.fixed_subtasks and not settings.pool.share_question:
        raise ConfigError(
            f"prompt.fixed_subtasks: the workers of {settings.source} are not shown the question "
            f"(share_question is false), so each needs a subtask of its own"
        )
    for described in recipe.pool.descriptions:
        if described not in names:
            raise ConfigError(
                f"pool.descriptions: {described!r} is not in {settings.source}; "
                f"{suggest(described, names)}"
            )
    if subset is not None and subset.largest > len(names):
        raise ConfigError(
            f"pool.subset.largest is {subset.largest}, but {settings.source} has {len(names)} "
            f"workers"
        )
    return settings


async def check_pool(settings: Settings, environment: Mapping[str, str]) -> None:
    """Call every worker once; Unavailable names those that do not answer."""
    async with AsyncExitStack() as stack:
        http = Http()
        stack.push_async_callback(http.close)
        assembly = assemble(settings, environment, http)
        stack.push_async_callback(assembly.close)
        problems = await asyncio.gather(*(_problem(worker) for worker in assembly.workers))
    failed = [problem for problem in problems if problem is not None]
    if failed:
        raise Unavailable(f"{settings.source}: no answer from {'; '.join(failed)}")


async def _problem(worker: Worker) -> str | None:
    try:
        async with asyncio.timeout(LONGEST_CHECK):
            await worker.reply(TINY)
    except TimeoutError:
        return f"{worker.profile.name}: nothing within {LONGEST_CHECK:g} s"
    except PodiumError as error:
        return f"{worker.profile.name}: {error}"
    return None


class Problems(NamedTuple):
    """The tasks to train on, and those held out to measure by."""

    train: tuple[TaskRecord, ...]
    held_out: tuple[TaskRecord, ...] = ()


def load_problems(recipe: Recipe) -> Problems:
    """Load the recipe's tasks; ConfigError names one that cannot be graded."""
    data = recipe.data
    if data.mix is not None:
        path = Path(data.mix.path) if data.mix.path else None
        sources, train = sorted(data.mix.sources), data.mix.train_share
        shares = PAPER_SHARES if train is None else SplitShares(train, 1 - train, 0.0)
        mix = paper_mix(
            sources, data=path, per_source=data.mix.per_source, seed=data.mix.seed, shares=shares
        )
        return Problems(_check_graders(mix.train), mix.validation)
    if data.suite is not None:
        path = Path(data.suite.path) if data.suite.path else None
        records = load_source(data.suite.name, path)
        drawn = sorted(records, key=lambda record: seeded_rank(record.id, recipe.run.seed))
        return Problems(_check_graders(drawn[: data.suite.limit]))
    if data.file is not None:
        return Problems(tuple(read_records(Path(data.file.path))[: data.file.limit]))
    raise ConfigError(
        'data.kind = "etudes": études are made as they are needed, and there is no list of them; '
        "python -m podium_lab.etudes --sample 5 shows some"
    )


def _check_graders(records: list[TaskRecord] | tuple[TaskRecord, ...]) -> tuple[TaskRecord, ...]:
    for record in records:
        try:
            record.to_task()
        except ConfigError as error:
            raise ConfigError(f"task {record.id}: {error}") from error
    return tuple(records)


MAX_LEFT_OUT: Final = 1000
"""Stop after so many exercises in a row that do not fit."""


class Exercise(NamedTuple):
    """A task, the context in which its plan is written, and its number in the curriculum."""

    task: Task
    context: PlanningContext
    number: int = 0


Fits = Callable[[Exercise], bool]
"""Returns whether an exercise is short enough to be trained on."""


def exercises(recipe: Recipe, pool: Pool, fits: Fits | None = None) -> list[Exercise]:
    """Return an exercise for every question of every step, in the order of the curriculum.

    Exercises that do not fit are left out, and the next ones take their places.
    """
    training = recipe.grpo or recipe.evolve
    assert training is not None, "only learning from reward has exercises"
    if recipe.data.kind == "etudes":
        with lab_extra():
            from podium_lab.etudes.training import etude_exercises
        drawn = etude_exercises(recipe, fits)
    else:
        rng = Random(f"{recipe.run.seed}/exercises")  # noqa: S311 - repeatable, not secret
        tasks = [record.to_task() for record in load_problems(recipe).train]
        endless = draw_exercises(recipe, tasks, pool, rng)
        drawn = islice(take_fitting(endless, fits), recipe.batches * training.questions)
    return [exercise._replace(number=number) for number, exercise in enumerate(drawn)]


def held_out_exercises(recipe: Recipe, pool: Pool) -> list[Exercise]:
    """Return the exercises that progress is measured by; none is trained on.

    For plans over études, `run.eval_tasks` everyday questions at most follow the études.
    """
    if recipe.data.kind == "etudes":
        with lab_extra():
            from podium_lab.etudes.training import held_out_etude_exercises
        return held_out_etude_exercises(recipe)
    rng = Random(f"{recipe.run.seed}/held out")  # noqa: S311 - repeatable, not secret
    tasks = [record.to_task() for record in load_problems(recipe).held_out[: recipe.run.eval_tasks]]
    return [Exercise(task, _context(recipe, task, pool, rng)) for task in tasks]


def take_fitting(drawn: Iterable[Exercise], fits: Fits | None) -> Iterator[Exercise]:
    """Yield the exercises that fit; ConfigError if too many in a row do not."""
    left_out = 0
    for exercise in drawn:
        if fits is None or fits(exercise):
            left_out = 0
            yield exercise
            continue
        left_out += 1
        if left_out >= MAX_LEFT_OUT:
            raise ConfigError(
                f"{left_out:,} questions in a row have a prompt that is longer than "
                f"grpo.max_prompt_tokens allows; raise it"
            )


def draw_exercises(
    recipe: Recipe, tasks: Sequence[Task], pool: Pool, rng: Random
) -> Iterator[Exercise]:
    """Yield the tasks in random order again and again, each with a pool of its own."""
    while True:
        for task in rng.sample(tasks, len(tasks)):
            yield Exercise(task, _context(recipe, task, pool, rng))


def _context(recipe: Recipe, task: Task, pool: Pool, rng: Random) -> PlanningContext:
    workers = list(pool.workers)
    if recipe.pool.subset is not None:
        size = rng.randint(recipe.pool.subset.smallest, recipe.pool.subset.largest)
        kept = set(rng.sample(range(len(workers)), size))
        workers = [worker for position, worker in enumerate(workers) if position in kept]
    if recipe.pool.shuffle:
        rng.shuffle(workers)
    names = {worker.name for worker in workers}
    words = recipe.pool.descriptions
    chosen = tuple(
        replace(
            worker,
            fallback=worker.fallback if worker.fallback in names else None,
            description=rng.choice((worker.description, *words[worker.name]))
            if worker.name in words
            else worker.description,
        )
        for worker in workers
    )
    return limit_context(
        recipe, PlanningContext(question=task.question, pool=replace(pool, workers=chosen))
    )


def limit_context(recipe: Recipe, context: PlanningContext) -> PlanningContext:
    """Apply the recipe's limit on steps and its masking of names."""
    return replace(
        context,
        max_steps=recipe.prompt.max_steps,
        pool=replace(context.pool, mask_names=recipe.prompt.mask_names),
    )
