"""What a conductor is trained on, question by question: a task, and the situation in which a plan
for it is to be written.

Études come with pools of their own; tasks from benchmarks and files share the recipe's pool,
which may be shuffled or cut down for each of them. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from random import Random
from typing import Final, NamedTuple

from podium.conductor.base import Situation
from podium.errors import ConfigError
from podium.etudes import (
    USUAL,
    Etude,
    EtudeShape,
    Split,
    descriptions,
    everyday,
    held_out,
    pool_profiles,
    training_situations,
)
from podium.pool import Pool, WorkerProfile
from podium.task import Task
from podium.tasks import etude_task, everyday_task
from podium.train.ablations import in_every_place, under_one_name
from podium.train.data import problems
from podium.train.recipe import Recipe
from podium.usage import FREE
from podium.workflow import Workflow

MOST_LEFT_OUT: Final = 1000
"""So many exercises in a row that are too long are no accident."""


class Exercise(NamedTuple):
    """A task, and all that its conductor knows when it begins."""

    task: Task
    situation: Situation


Fits = Callable[[Exercise], bool]
"""Whether an exercise is short enough to be trained on."""


def exercises(recipe: Recipe, pool: Pool, fits: Fits | None = None) -> list[Exercise]:
    """One exercise for every question of every step that has new ones, in the order of the recipe's
    curriculum. Those that do not fit are left out, and the next ones take their places."""
    training = recipe.grpo or recipe.evolve
    assert training is not None, "only learning from reward has exercises"
    count = recipe.batches * training.questions
    if recipe.data.kind == "etudes":
        return list(_etudes(recipe, fits))
    rng = Random(f"{recipe.run.seed}/exercises")  # noqa: S311 - repeatable, not secret
    tasks = [record.to_task() for record in problems(recipe).train]
    endless = _endless(recipe, tasks, _stood_in(recipe, pool), rng)
    return list(islice(_fitting(endless, fits), count))


def held_out_exercises(recipe: Recipe, pool: Pool) -> list[Exercise]:
    """What progress is measured by: none of it is trained on."""
    rng = Random(f"{recipe.run.seed}/held out")  # noqa: S311 - repeatable, not secret
    if recipe.data.kind == "etudes":
        return [_tested(recipe, etude, rng) for etude in held_out_etudes(recipe)]
    tasks = [record.to_task() for record in problems(recipe).held_out[: recipe.run.eval_tasks]]
    pool = _stood_in(recipe, pool)
    return [Exercise(task, _situation(recipe, task, pool, rng)) for task in tasks]


def held_out_etudes(recipe: Recipe) -> list[Etude]:
    """The études behind the held-out exercises, in their order."""
    return held_out(recipe.run.eval_tasks, seed=recipe.run.seed)


def everyday_exercises(recipe: Recipe) -> list[Exercise]:
    """The everyday questions that are kept for testing, where études are trained on; no more of
    them than there are held-out exercises."""
    if recipe.data.kind != "etudes":
        return []
    rng = Random(f"{recipe.run.seed}/everyday")  # noqa: S311 - repeatable, not secret
    models = dict.fromkeys(recipe.pool.roles, "")
    return [
        _among_etudes(
            recipe,
            everyday_task(question),
            Situation(question=question, pool=pool_profiles(rng, models, split="test")),
            "test",
        )
        for question in everyday("test")[: recipe.run.eval_tasks]
    ]


def _fitting(drawn: Iterable[Exercise], fits: Fits | None) -> Iterator[Exercise]:
    left_out = 0
    for exercise in drawn:
        if fits is None or fits(exercise):
            left_out = 0
            yield exercise
            continue
        left_out += 1
        if left_out >= MOST_LEFT_OUT:
            raise ConfigError(
                f"{left_out:,} questions in a row have a prompt that is longer than "
                f"grpo.max_prompt_tokens allows; raise it"
            )


# ---- études


def _etudes(recipe: Recipe, fits: Fits | None) -> Iterator[Exercise]:
    """Études stage by stage, until all steps have theirs. The steps of a stage that go over the
    same questions again have none of their own."""
    training = recipe.grpo or recipe.evolve
    assert training is not None
    data, questions = recipe.data.etudes, training.questions
    make = partial(
        training_situations,
        models=dict.fromkeys(recipe.pool.roles, ""),
        everyday_share=data.everyday_share if recipe.grpo is not None else 0.0,  # graded by plans
        later_share=data.later_round_share,
        nested_share=data.nested_share,
        drop=recipe.pool.drop,
        keep_needed=recipe.pool.keep_needed,
        flaky_share=recipe.pool.forgetful,
        flaky_seed=recipe.run.seed,
    )
    stages: Sequence[tuple[int | None, Mapping[EtudeShape, float]]] = [
        (stage.steps, {EtudeShape(name): weight for name, weight in stage.shapes.items()})
        for stage in data.stage
    ] or [(None, USUAL)]
    left = recipe.batches
    for number, (steps, shapes) in enumerate(stages):
        practices = make(recipe.run.seed * 100 + number, shapes)
        drawn = (
            _among_etudes(recipe, _task(asked), situation, "train")
            for asked, situation in practices
        )
        lasting = left if steps is None else min(steps // recipe.steps_a_batch, left)
        yield from islice(_fitting(drawn, fits), lasting * questions)
        left -= lasting


def _task(asked: Etude | str) -> Task:
    if isinstance(asked, Etude):
        return etude_task(asked)
    return everyday_task(asked)


def _tested(recipe: Recipe, etude: Etude, rng: Random) -> Exercise:
    models = dict.fromkeys(recipe.pool.roles, "")
    pool = pool_profiles(rng, models, split="test", keep=etude.families, drop=recipe.pool.drop)
    situation = Situation(question=etude.question, pool=pool)
    return _among_etudes(recipe, etude_task(etude), situation, "test")


def _among_etudes(recipe: Recipe, task: Task, situation: Situation, split: Split) -> Exercise:
    """The exercise, over the pool that its question was made with or, where one worker takes
    every place, over as many of that one."""
    one, pool = recipe.prompt.one_worker, situation.pool
    if one is not None:
        unknown = WorkerProfile(name=one, description=descriptions(one, split)[0], price=FREE)
        pool = in_every_place(pool[one] if one in pool.names else unknown, pool)
        if task.plan_grader is not None:
            task = replace(task, plan_grader=partial(_judged_as, one, task.plan_grader))
    return Exercise(task, _limited(recipe, replace(situation, pool=pool)))


def _judged_as(worker: str, judge: Callable[[Workflow], bool], workflow: Workflow) -> bool:
    """What the judge says of the plan when all of its workers are called by their one name."""
    return judge(under_one_name(workflow, worker))


# ---- tasks over the recipe's own pool


def _endless(recipe: Recipe, tasks: Sequence[Task], pool: Pool, rng: Random) -> Iterator[Exercise]:
    """Every task once, in random order, and then again in another."""
    while True:
        for task in rng.sample(tasks, len(tasks)):
            yield Exercise(task, _situation(recipe, task, pool, rng))


def _stood_in(recipe: Recipe, pool: Pool) -> Pool:
    one = recipe.prompt.one_worker
    return pool if one is None else in_every_place(pool[one], pool)


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
