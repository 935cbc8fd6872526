"""What a conductor is trained on, question by question: a task, and the situation in which a plan
for it is to be written.

Études come with pools of their own; tasks from benchmarks and files share the recipe's pool,
which may be shuffled or cut down for each of them. Needs no torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from podium.client.assembly import assemble
from podium.config import Settings, load
from podium.config.problems import nearest
from podium.core.conductor import PlanningContext
from podium.core.errors import ConfigError, PodiumError, Unavailable
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.request import Request, user
from podium.core.task import Task
from podium.core.usage import FREE
from podium.core.worker import Worker
from podium.core.workflow import Workflow
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
from podium.tasks import TaskRecord, etude_task, everyday_task, load_source, paper_mix, read_records
from podium.tasks.mix import rank
from podium.train.ablations import in_every_place, under_one_name
from podium.train.recipe import Recipe
from podium.workers import Http

TINY: Final = Request((user("Reply with the word ok."),), max_tokens=16)
"""What every worker is asked; vendors allow no fewer tokens than these."""

LONGEST_CHECK: Final = 60.0
"""Seconds in which a worker has to answer it."""


def recipe_pool(recipe: Recipe) -> Pool:
    """The workers of the recipe, all of them, as conductors and estimates know them."""
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
    """The settings of the recipe's pool file, which the recipe's other keys must fit."""
    assert recipe.pool.file is not None, "the études' workers have no file"
    settings = load(Path(recipe.pool.file))
    names, one, subset = settings.pool.names, recipe.prompt.one_worker, recipe.pool.subset
    nested = [worker.name for worker in settings.pool if worker.provider == CONDUCTOR_PROVIDER]
    if nested:
        raise ConfigError(
            f"{settings.source}: {nested[0]} is a conductor, and no runs are nested in training; "
            f"take it out of the pool"
        )
    if one is not None and one not in names:
        raise ConfigError(
            f"prompt.one_worker: {one!r} is not in {settings.source}; {nearest(one, names)}"
        )
    if recipe.prompt.fixed_subtasks and not settings.pool.share_question:
        raise ConfigError(
            f"prompt.fixed_subtasks: the workers of {settings.source} are not shown the question "
            f"(share_question is false), so each needs a subtask of its own"
        )
    if subset is not None and subset.largest > len(names):
        raise ConfigError(
            f"pool.subset.largest is {subset.largest}, but {settings.source} has {len(names)} "
            f"workers"
        )
    return settings


def wants_references(recipe: Recipe, pool: Pool) -> bool:
    """Whether the workers are measured alone before training: as the recipe says, else where
    that costs nothing."""
    if recipe.run.references is not None:
        return recipe.run.references
    return all(worker.price is not None and worker.price.is_free for worker in pool)


async def check_pool(settings: Settings, environment: Mapping[str, str]) -> None:
    """Reach every worker once; `Unavailable` names those that do not answer."""
    async with AsyncExitStack() as stack:
        http = Http()
        stack.push_async_callback(http.close)
        assembly = assemble(settings, environment, http)
        stack.push_async_callback(assembly.close)
        problems = await asyncio.gather(*(_problem(worker) for worker in assembly.workers))
    told = [problem for problem in problems if problem is not None]
    if told:
        raise Unavailable(f"{settings.source}: no answer from {'; '.join(told)}")


async def _problem(worker: Worker) -> str | None:
    """What keeps the worker from answering, if anything does."""
    try:
        async with asyncio.timeout(LONGEST_CHECK):
            await worker.reply(TINY)
    except TimeoutError:
        return f"{worker.profile.name}: nothing within {LONGEST_CHECK:g} s"
    except PodiumError as error:
        return f"{worker.profile.name}: {error}"
    return None


class Problems(NamedTuple):
    """What is trained on, and what was kept apart to measure by, where anything was."""

    train: tuple[TaskRecord, ...]
    held_out: tuple[TaskRecord, ...] = ()


def problems(recipe: Recipe) -> Problems:
    """The tasks of the recipe, each of which is known to have an answer that can be graded."""
    data = recipe.data
    if data.mix is not None:
        path = Path(data.mix.path) if data.mix.path else None
        sources = sorted(data.mix.sources)
        mix = paper_mix(sources, data=path, each=data.mix.each, seed=data.mix.seed)
        return Problems(_graded(mix.train), mix.validation)
    if data.suite is not None:
        path = Path(data.suite.path) if data.suite.path else None
        records = load_source(data.suite.name, path)
        drawn = sorted(records, key=lambda record: rank(record.id, recipe.run.seed))
        return Problems(_graded(drawn[: data.suite.limit]))
    if data.file is not None:
        return Problems(tuple(read_records(Path(data.file.path))[: data.file.limit]))
    raise ConfigError(
        'data.kind = "etudes": études are made as they are needed, and there is no list of them; '
        "python -m podium.etudes --sample 5 shows some"
    )


def _graded(records: list[TaskRecord] | tuple[TaskRecord, ...]) -> tuple[TaskRecord, ...]:
    """The records, once each was made a task; an error names the one that cannot be."""
    for record in records:
        try:
            record.to_task()
        except ConfigError as error:
            raise ConfigError(f"task {record.id}: {error}") from error
    return tuple(records)


MOST_LEFT_OUT: Final = 1000
"""So many exercises in a row that are too long are no accident."""


class Exercise(NamedTuple):
    """A task, and all that its conductor knows when it begins."""

    task: Task
    context: PlanningContext


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
            PlanningContext(question=question, pool=pool_profiles(rng, models, split="test")),
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
            _among_etudes(recipe, _task(asked), context, "train") for asked, context in practices
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
    return Exercise(task, _limited(recipe, replace(context, pool=pool)))


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


def _situation(recipe: Recipe, task: Task, pool: Pool, rng: Random) -> PlanningContext:
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
    return _limited(
        recipe, PlanningContext(question=task.question, pool=replace(pool, workers=chosen))
    )


def _limited(recipe: Recipe, context: PlanningContext) -> PlanningContext:
    return replace(
        context,
        max_steps=recipe.prompt.max_steps,
        pool=replace(context.pool, mask_names=recipe.prompt.mask_names),
    )
