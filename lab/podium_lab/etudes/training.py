"""Études as the exercises of a recipe that learns from reward."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from random import Random
from typing import Final

from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.core.conductor import PlanningContext
from podium.core.pool import WorkerProfile
from podium.core.task import Task
from podium.core.usage import FREE
from podium.core.workflow import Workflow
from podium.train.examples import CONDUCTOR, TextExample
from podium.train.exercises import Exercise, Fits, in_every_place, limit_context, take_fitting
from podium.train.recipe import Recipe
from podium_lab.etudes.etude import Etude, held_out
from podium_lab.etudes.plan_examples import SHAPES, PlanExample, make_plan_examples
from podium_lab.etudes.second_rounds import (
    SecondRound,
    make_second_round_examples,
    make_second_rounds,
    make_training_contexts,
)
from podium_lab.etudes.shapes import USUAL, EtudeShape, Split
from podium_lab.etudes.specialist_examples import make_specialist_examples
from podium_lab.etudes.tasks import etude_task, everyday_questions, everyday_task
from podium_lab.etudes.workers import ROLES, descriptions, pool_profiles

PARTS: Final = 16
"""Examples are made in so many parts, each by its own seed, whatever the number of processors:
the same recipe gives the same examples on every machine."""


_ID: Final = re.compile(r'(?<="worker": )\d+')
_FIRST_KEY: Final = '"subtask":'

FEW: Final = 5_000
"""Fewer examples than this are not worth starting processes for."""


def etude_examples(
    recipe: Recipe, dataset: str, split: Split, count: int
) -> dict[str, list[TextExample]]:
    """Make `count` examples for every adapter that the recipe trains, by its name."""
    assert recipe.sft is not None
    makers: Mapping[str, Callable[[int, int], list[TextExample]]]
    if dataset == "specialists":
        unsure = recipe.data.etudes.unsure_share
        makers = {name: _Lessons(name, split, unsure) for name in sorted(recipe.sft.adapters)}
    elif dataset == "plans":
        makers = {CONDUCTOR: _Openings(recipe, split)}
    else:
        makers = {CONDUCTOR: _Decisions(recipe, split)}
    return _in_parts(makers, recipe.run.seed, count)


@dataclass(frozen=True, slots=True)
class _Lessons:
    """Makes lessons for the specialist of one family."""

    family: str
    split: Split
    unsure_share: float

    def __call__(self, seed: int, count: int) -> list[TextExample]:
        stream = make_specialist_examples(
            self.family, seed, self.split, unsure_share=self.unsure_share
        )
        return [
            TextExample([{"role": "user", "content": lesson.prompt}], lesson.reply)
            for lesson in islice(stream, count)
        ]


@dataclass(frozen=True, slots=True)
class _Openings:
    """Makes openings for a conductor, as its prompt words them; now and then one of a later
    round. Most openings are random; those to be tested on are the ones that are not: the
    question says who is to do what, and who may read whom follows from it."""

    recipe: Recipe
    split: Split

    def __call__(self, seed: int, count: int) -> list[TextExample]:
        data, asked = self.recipe.data.etudes, self.recipe.prompt
        prompt = Prompt(length=asked.length, form="lists", few_shot=asked.few_shot)
        models = dict.fromkeys(ROLES, "")
        shapes = _shapes(self.recipe, SHAPES)
        if self.split == "test":
            told = make_plan_examples(
                seed + 500,
                models,
                shapes=shapes,
                assigned_share=1.0,
                everyday_share=0.0,
                true_access=1.0,
                order=prompt.order,
            )
            return [_as_conversation(prompt, opening) for opening in islice(told, count)]
        later = round(count * data.later_round_share)
        first = make_plan_examples(
            seed,
            models,
            shapes=shapes,
            nested_share=data.nested_share,
            assigned_share=data.assigned_share,
            everyday_share=data.everyday_share,
            true_clauses=data.true_clauses,
            true_access=data.true_access,
            drop=self.recipe.pool.drop,
            order=prompt.order,
        )
        second = make_second_round_examples(
            seed,
            models,
            shapes=shapes,
            nested_share=data.nested_share,
            accepted_share=data.accepted_share,
            drop=self.recipe.pool.drop,
            order=prompt.order,
        )
        drawn = chain(islice(first, count - later), islice(second, later))
        return [_as_conversation(prompt, opening) for opening in drawn]


@dataclass(frozen=True, slots=True)
class _Decisions:
    """Makes decisions for a conductor: after a first round its answer is accepted where it is
    right, and where it is wrong another plan is begun. How that goes on is not taught here."""

    recipe: Recipe
    split: Split

    def __call__(self, seed: int, count: int) -> list[TextExample]:
        asked, pool = self.recipe.prompt, self.recipe.pool
        prompt = Prompt(length=asked.length, form="lists", few_shot=asked.few_shot)
        drawn = make_second_rounds(
            Random(f"{seed}/decisions"),  # noqa: S311 - repeatable, not secret
            self.split,
            dict.fromkeys(ROLES, ""),
            shapes=_shapes(self.recipe, USUAL),
            nested_share=self.recipe.data.etudes.nested_share,
            flaky_share=pool.flaky_workers,
            flaky_seed=self.recipe.run.seed,
            drop=pool.drop,
            order=prompt.order,
        )
        return [_as_decision(prompt, later) for later in islice(drawn, count)]


def _shapes(recipe: Recipe, usual: Mapping[EtudeShape, float]) -> Mapping[EtudeShape, float]:
    """How often the recipe draws each shape, or the usual ones where it does not say."""
    stages = recipe.data.etudes.stage
    if not stages:
        return usual
    return {EtudeShape(name): weight for name, weight in stages[-1].shapes.items()}


def _as_conversation(prompt: Prompt, opening: PlanExample) -> TextExample:
    """An opening as the conversation that asks for it, and its plan. Where nobody said who is to
    do what, the plan's ids are given, not learned; how many there are of them still is."""
    messages = prompt.messages(opening.context)
    unlearned = () if opening.is_assigned else tuple(_places_of_ids(opening.plan))
    return TextExample(
        [{"role": m.role, "content": m.text} for m in messages], opening.plan, unlearned
    )


def _as_decision(prompt: Prompt, later: SecondRound) -> TextExample:
    """What follows a first round: the acceptance of its answer, or how another plan begins, as
    far as every plan begins alike."""
    messages = [{"role": m.role, "content": m.text} for m in prompt.messages(later.context)]
    if later.is_right:
        return TextExample(messages, plan.write_acceptance(prompt.order))
    (first,) = later.context.rounds
    begun, key, _ = first.plan_text.partition(_FIRST_KEY)
    assert key, f"a plan in this form has {_FIRST_KEY} in it"
    return TextExample(messages, begun + key, is_whole=False)


def _places_of_ids(text: str) -> Iterator[tuple[int, int]]:
    return (number.span() for number in _ID.finditer(text))


def _in_parts(
    makers: Mapping[str, Callable[[int, int], list[TextExample]]], seed: int, count: int
) -> dict[str, list[TextExample]]:
    """So many examples of every maker, made by all processors."""
    share = -(-count // PARTS)
    seeds = [seed * 1_000 + part for part in range(PARTS)]
    jobs = [(name, maker, part) for name, maker in makers.items() for part in seeds]
    if count * len(makers) < FEW:
        made = [maker(part, share) for _, maker, part in jobs]
    else:
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as processes:
            waiting = [processes.submit(maker, part, share) for _, maker, part in jobs]
            made = [future.result() for future in waiting]
    examples: dict[str, list[TextExample]] = {name: [] for name in makers}
    for (name, _, _), part in zip(jobs, made, strict=True):
        examples[name] += part
    return {name: group[:count] for name, group in examples.items()}


def etude_exercises(recipe: Recipe, fits: Fits | None) -> Iterator[Exercise]:
    """Études stage by stage, until all steps have theirs. The steps of a stage that go over the
    same questions again have none of their own."""
    training = recipe.grpo or recipe.evolve
    assert training is not None
    data, questions = recipe.data.etudes, training.questions
    make = partial(
        make_training_contexts,
        models=dict.fromkeys(recipe.pool.roles, ""),
        everyday_share=data.everyday_share if recipe.grpo is not None else 0.0,  # graded by plans
        later_share=data.later_round_share,
        nested_share=data.nested_share,
        drop=recipe.pool.drop,
        keep_needed=recipe.pool.keep_needed,
        flaky_share=recipe.pool.flaky_workers,
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
    return judge(Workflow(tuple(replace(step, worker=worker) for step in workflow.steps)))


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
        for question in everyday_questions("test")[: recipe.run.eval_tasks]
    ]
