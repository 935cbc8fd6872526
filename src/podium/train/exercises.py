"""What a conductor is trained on, question by question: a task, and the situation in which a plan
for it is to be written.

Études come with pools of their own; tasks from benchmarks and files share the recipe's pool,
which may be shuffled or cut down for each of them. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from random import Random
from typing import NamedTuple

from podium.conductor.base import Situation
from podium.etudes import (
    USUAL,
    Etude,
    EtudeShape,
    everyday,
    held_out,
    pool_profiles,
    sensible,
    training_situations,
)
from podium.pool import Pool
from podium.task import Task
from podium.tasks import etude_task
from podium.train.data import problems
from podium.train.recipe import Recipe

EVERYDAY: str = "everyday"
"""The kind of an everyday question."""


class Exercise(NamedTuple):
    """A task, and all that its conductor knows when it begins."""

    task: Task
    situation: Situation


def exercises(recipe: Recipe, pool: Pool) -> list[Exercise]:
    """One exercise for every question of every step, in the order of the recipe's curriculum."""
    assert recipe.grpo is not None, "only learning from reward has exercises"
    count = recipe.grpo.steps * recipe.grpo.questions
    if recipe.data.kind == "etudes":
        return list(islice(_etudes(recipe), count))
    rng = Random(f"{recipe.run.seed}/exercises")  # noqa: S311 - repeatable, not secret
    tasks = [record.to_task() for record in problems(recipe).train]
    return list(islice(_endless(recipe, tasks, pool, rng), count))


def held_out_exercises(recipe: Recipe, pool: Pool) -> list[Exercise]:
    """What progress is measured by: none of it is trained on."""
    rng = Random(f"{recipe.run.seed}/held out")  # noqa: S311 - repeatable, not secret
    count = recipe.run.eval_tasks
    if recipe.data.kind == "etudes":
        return [_tested(recipe, etude, rng) for etude in held_out(count, seed=recipe.run.seed)]
    tasks = [record.to_task() for record in problems(recipe).held_out[:count]]
    return [Exercise(task, _situation(recipe, task, pool, rng)) for task in tasks]


def _etudes(recipe: Recipe) -> Iterator[Exercise]:
    """Études stage by stage; the last stage has no end."""
    assert recipe.grpo is not None
    data = recipe.data.etudes
    make = partial(
        training_situations,
        models=dict.fromkeys(recipe.pool.roles, ""),
        everyday_share=data.everyday_share,
        later_share=data.later_round_share,
        drop=recipe.pool.drop,
        keep_needed=recipe.pool.keep_needed,
        flaky_share=recipe.pool.flaky or 0.15,
        flaky_seed=recipe.run.seed,
    )
    stages: Sequence[tuple[int | None, Mapping[EtudeShape, float]]] = [
        (stage.steps, {EtudeShape(name): weight for name, weight in stage.shapes.items()})
        for stage in data.stage
    ] or [(None, USUAL)]
    for number, (steps, shapes) in enumerate(stages):
        practices = make(recipe.run.seed * 100 + number, shapes)
        size = None if steps is None else steps * recipe.grpo.questions
        for asked, situation in islice(practices, size):
            yield Exercise(_task(asked), _limited(recipe, situation))


def _task(asked: Etude | str) -> Task:
    if isinstance(asked, Etude):
        return etude_task(asked)
    return everyday_task(asked)


def everyday_task(question: str) -> Task:
    """An everyday question, whose answer nobody can grade: what is graded is that the plan
    leaves it alone."""
    return Task(
        id=f"everyday/{abs(hash(question))}",
        question=question,
        grader=_never_graded,
        kind=EVERYDAY,
        plan_grader=partial(_leaves_alone, question),
    )


async def _never_graded(answer: str) -> bool:
    return False


def _leaves_alone(question: str, workflow: object) -> bool:
    return sensible(workflow, question)  # type: ignore[arg-type]


def _tested(recipe: Recipe, etude: Etude, rng: Random) -> Exercise:
    models = dict.fromkeys(recipe.pool.roles, "")
    pool = pool_profiles(rng, models, split="test", keep=etude.families, drop=recipe.pool.drop)
    return Exercise(
        etude_task(etude), _limited(recipe, Situation(question=etude.question, pool=pool))
    )


def everyday_exercises(recipe: Recipe) -> list[Exercise]:
    """The everyday questions that are kept for testing."""
    rng = Random(f"{recipe.run.seed}/everyday")  # noqa: S311 - repeatable, not secret
    models = dict.fromkeys(recipe.pool.roles, "")
    return [
        Exercise(
            everyday_task(question),
            _limited(
                recipe,
                Situation(question=question, pool=pool_profiles(rng, models, split="test")),
            ),
        )
        for question in everyday("test")
    ]


def _endless(recipe: Recipe, tasks: Sequence[Task], pool: Pool, rng: Random) -> Iterator[Exercise]:
    """Every task once, in random order, and then again in another."""
    while True:
        for task in rng.sample(tasks, len(tasks)):
            yield Exercise(task, _situation(recipe, task, pool, rng))


def _situation(recipe: Recipe, task: Task, pool: Pool, rng: Random) -> Situation:
    workers = list(pool.workers)
    if recipe.pool.subset is not None:
        size = rng.randint(recipe.pool.subset.smallest, recipe.pool.subset.largest)
        kept = set(rng.sample(range(len(workers)), size))
        workers = [worker for place, worker in enumerate(workers) if place in kept]
    if recipe.pool.shuffle:
        rng.shuffle(workers)
    names = {worker.name for worker in workers}
    chosen = tuple(
        worker if worker.fallback in names else replace(worker, fallback=None) for worker in workers
    )
    return _limited(recipe, Situation(question=task.question, pool=replace(pool, workers=chosen)))


def _limited(recipe: Recipe, situation: Situation) -> Situation:
    return replace(
        situation,
        max_steps=recipe.prompt.max_steps,
        pool=replace(situation.pool, mask_names=recipe.prompt.mask_names),
    )
