"""Études as the exercises of a recipe that learns from reward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from random import Random

from podium.core.conductor import PlanningContext
from podium.core.pool import WorkerProfile
from podium.core.task import Task
from podium.core.usage import FREE
from podium.core.workflow import Workflow
from podium.train.ablations import in_every_place, under_one_name
from podium.train.exercises import Exercise, Fits, limit_context, take_fitting
from podium.train.recipe import Recipe
from podium_lab.etudes.etude import Etude, held_out
from podium_lab.etudes.everyday import everyday
from podium_lab.etudes.pools import descriptions, pool_profiles
from podium_lab.etudes.shapes import USUAL, EtudeShape
from podium_lab.etudes.situations import training_situations
from podium_lab.etudes.splits import Split
from podium_lab.etudes.tasks import etude_task, everyday_task


def etude_exercises(recipe: Recipe, fits: Fits | None) -> Iterator[Exercise]:
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
            _among_etudes(recipe, _task(asked), context, "train") for asked, context in practices
        )
        lasting = left if steps is None else min(steps // recipe.steps_a_batch, left)
        yield from islice(take_fitting(drawn, fits), lasting * questions)
        left -= lasting


def _task(asked: Etude | str) -> Task:
    if isinstance(asked, Etude):
        return etude_task(asked)
    return everyday_task(asked)


def _tested(recipe: Recipe, etude: Etude, rng: Random) -> Exercise:
    models = dict.fromkeys(recipe.pool.roles, "")
    pool = pool_profiles(rng, models, split="test", keep=etude.families, drop=recipe.pool.drop)
    context = PlanningContext(question=etude.question, pool=pool)
    return _among_etudes(recipe, etude_task(etude), context, "test")


def _among_etudes(recipe: Recipe, task: Task, context: PlanningContext, split: Split) -> Exercise:
    """The exercise, over the pool that its question was made with or, where one worker takes
    every place, over as many of that one."""
    one, pool = recipe.prompt.one_worker, context.pool
    if one is not None:
        unknown = WorkerProfile(name=one, description=descriptions(one, split)[0], price=FREE)
        pool = in_every_place(pool[one] if one in pool.names else unknown, pool)
        if task.plan_grader is not None:
            task = replace(task, plan_grader=partial(_judged_as, one, task.plan_grader))
    return Exercise(task, limit_context(recipe, replace(context, pool=pool)))


def _judged_as(worker: str, judge: Callable[[Workflow], bool], workflow: Workflow) -> bool:
    """What the judge says of the plan when all of its workers are called by their one name."""
    return judge(under_one_name(workflow, worker))


def held_out_etude_exercises(recipe: Recipe) -> list[Exercise]:
    """Return the études that progress is measured by."""
    rng = Random(f"{recipe.run.seed}/held out")  # noqa: S311 - repeatable, not secret
    return [_tested(recipe, etude, rng) for etude in held_out_etudes(recipe)]


def held_out_etudes(recipe: Recipe) -> list[Etude]:
    """The études behind the held-out exercises, in their order."""
    return held_out(recipe.run.eval_tasks, seed=recipe.run.seed)


def held_out_everyday_exercises(recipe: Recipe) -> list[Exercise]:
    """The everyday questions that are kept for testing, where études are trained on; no more of
    them than there are held-out exercises."""
    rng = Random(f"{recipe.run.seed}/everyday")  # noqa: S311 - repeatable, not secret
    models = dict.fromkeys(recipe.pool.roles, "")
    return [
        _among_etudes(
            recipe,
            everyday_task(question),
            PlanningContext(question=question, pool=pool_profiles(rng, models, split="test")),
            "test",
        )
        for question in everyday("test")[: recipe.run.eval_tasks]
    ]
