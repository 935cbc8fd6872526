"""Exercises: the tasks that a conductor is trained on, each with its planning context.

Études have pools of their own (`podium_lab.etudes.training`). Other tasks share the recipe's pool,
which may be shuffled or reduced for each of them. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from podium._util.lab import lab_extra
from podium.conductors.prompt import Prompt
from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError
from podium.core.pool import Pool
from podium.core.run import Round
from podium.core.task import Task
from podium.tasks import TaskRecord, build_mix, load_source, read_records
from podium.tasks.suites import PAPER_SHARES, SplitShares, seeded_rank
from podium.train.recipe import Recipe


def recipe_prompt(recipe: Recipe) -> Prompt:
    table = recipe.prompt
    return Prompt(table.style, "lists", few_shot=table.few_shot, access=table.access)


class TaskSplit(NamedTuple):
    """The tasks to train on, and those held out to measure by."""

    train: tuple[TaskRecord, ...]
    held_out: tuple[TaskRecord, ...] = ()


def load_task_split(recipe: Recipe) -> TaskSplit:
    """Load the recipe's tasks; ConfigError names one that cannot be graded."""
    data = recipe.data
    if data.mix is not None:
        path = Path(data.mix.path) if data.mix.path else None
        sources = {name: load_source(name, path) for name in sorted(data.mix.sources)}
        train = data.mix.train_share
        shares = PAPER_SHARES if train is None else SplitShares(train, 1 - train, 0.0)
        mix = build_mix(sources, per_source=data.mix.per_source, seed=data.mix.seed, shares=shares)
        return TaskSplit(_check_graders(mix.train), mix.validation)
    if data.suite is not None:
        path = Path(data.suite.path) if data.suite.path else None
        records = load_source(data.suite.name, path)
        drawn = sorted(records, key=lambda record: seeded_rank(record.id, recipe.run.seed))
        return TaskSplit(_check_graders(drawn[: data.suite.limit]))
    if data.file is not None:
        return TaskSplit(tuple(read_records(Path(data.file.path))[: data.file.limit]))
    raise ConfigError(
        'data.kind = "etudes": études are made as they are needed, and there is no list of them'
    )


def _check_graders(records: list[TaskRecord] | tuple[TaskRecord, ...]) -> tuple[TaskRecord, ...]:
    for record in records:
        try:
            record.to_task()
        except ConfigError as error:
            raise ConfigError(f"task {record.id}: {error}") from error
    return tuple(records)


MAX_SKIPPED_IN_A_ROW: Final = 1000


class Exercise(NamedTuple):
    """A task, the context in which its plan is written, and its number in the curriculum."""

    task: Task
    context: PlanningContext
    number: int = 0


class DrawnTask(NamedTuple):
    """A task, the pool for it, and the rounds that were before."""

    task: Task
    pool: Pool
    rounds: tuple[Round, ...] = ()


ExerciseFilter = Callable[[Exercise], bool]
"""Returns whether an exercise is short enough to be trained on."""


class ExerciseSet(NamedTuple):
    """The exercises to train on, in their order, and those held out to measure by."""

    train: list[Exercise]
    held_out: list[Exercise]


def load_exercises(recipe: Recipe, pool: Pool, fits: ExerciseFilter | None = None) -> ExerciseSet:
    """Return an exercise for every question of every step, and the held-out ones.

    Exercises that do not fit are left out, and the next ones take their places. For plans over
    études, `run.eval_tasks` everyday questions at most follow the held-out études.
    """
    training = recipe.grpo or recipe.evolve
    assert training is not None, "only learning from reward has exercises"
    if recipe.data.kind == "etudes":
        with lab_extra():
            from podium_lab.etudes.training import etude_stages, held_out_tasks
        make = partial(make_exercise, recipe)
        stages: list[tuple[int, Iterator[Exercise]]] = [
            (batches, starmap(make, drawn)) for batches, drawn in etude_stages(recipe)
        ]
        held_out: Iterable[Exercise] = starmap(make, held_out_tasks(recipe))
    else:
        problems = load_task_split(recipe)
        tasks = [record.to_task() for record in problems.train]
        measured = [record.to_task() for record in problems.held_out[: recipe.run.eval_tasks]]
        rng = Random(f"{recipe.run.seed}/exercises")  # noqa: S311 - repeatable, not secret
        stages = [(recipe.batches, draw_exercises(recipe, tasks, pool, rng))]
        rng = Random(f"{recipe.run.seed}/held out")  # noqa: S311
        held_out = map(partial(draw_exercise, recipe, pool, rng), measured)
    drawn = (
        exercise
        for batches, endless in stages
        for exercise in islice(take_fitting(endless, fits), batches * training.questions)
    )
    return ExerciseSet(_number(drawn), _number(held_out))


def _number(exercises: Iterable[Exercise]) -> list[Exercise]:
    return [exercise._replace(number=number) for number, exercise in enumerate(exercises)]


def take_fitting(drawn: Iterable[Exercise], fits: ExerciseFilter | None) -> Iterator[Exercise]:
    """Yield the exercises that fit; ConfigError if too many in a row do not."""
    left_out = 0
    for exercise in drawn:
        if fits is None or fits(exercise):
            left_out = 0
            yield exercise
            continue
        left_out += 1
        if left_out >= MAX_SKIPPED_IN_A_ROW:
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
            yield draw_exercise(recipe, pool, rng, task)


def draw_exercise(recipe: Recipe, pool: Pool, rng: Random, task: Task) -> Exercise:
    """Return the task with a part of the pool, as the recipe has it drawn."""
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
    return make_exercise(recipe, task, replace(pool, workers=chosen))


def make_exercise(
    recipe: Recipe, task: Task, pool: Pool, rounds: tuple[Round, ...] = ()
) -> Exercise:
    """Return the exercise with the recipe's limit on steps and its masking of names."""
    prompt = recipe.prompt
    if pool.mask_names is not prompt.mask_names:
        pool = replace(pool, mask_names=prompt.mask_names)
    context = PlanningContext(
        question=task.question, pool=pool, rounds=rounds, max_steps=prompt.max_steps
    )
    return Exercise(task, context)
