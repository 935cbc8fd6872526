"""Études as the examples and exercises of a recipe."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import chain, islice, starmap
from multiprocessing import get_context
from random import Random
from typing import Final

from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.core.conductor import PlanningContext
from podium.train.examples import CONDUCTOR, TextExample
from podium.train.exercises import Exercise
from podium.train.recipe import Recipe
from podium_lab.etudes.composition import DEFAULT_SHAPES, EtudeShape, Split
from podium_lab.etudes.etude import Etude, held_out
from podium_lab.etudes.plan_examples import (
    FLAKY,
    SHAPES,
    ExampleSettings,
    PlanExample,
    SecondRound,
    make_plan_examples,
    make_second_round_examples,
    make_second_rounds,
    make_training_contexts,
)
from podium_lab.etudes.specialist_examples import make_specialist_examples
from podium_lab.etudes.tasks import etude_task, everyday_questions, everyday_task
from podium_lab.etudes.workers import ROLES, pool_profiles

SEED_PARTS: Final = 16
"""Examples are made in so many parts, each by its own seed, whatever the number of processors:
the same recipe gives the same examples on every machine."""

MIN_PARALLEL_EXAMPLES: Final = 5_000
"""Fewer examples than this are not worth starting processes for."""

_ID: Final = re.compile(r'(?<="worker": )\d+')
_FIRST_KEY: Final = '"subtask":'

Maker = Callable[[int, int], list[TextExample]]
"""Makes examples by a seed and a count; it is sent to other processes."""


def etude_examples(
    recipe: Recipe, dataset: str, split: Split, count: int
) -> dict[str, list[TextExample]]:
    """Make `count` examples for every adapter of the recipe, by its name."""
    assert recipe.sft is not None
    makers: dict[str, Maker]
    if dataset == "specialists":
        names = sorted(recipe.sft.adapters)
        makers = {name: partial(_specialist_examples, recipe, split, name) for name in names}
    else:
        make = _plan_examples if dataset == "plans" else _decisions
        makers = {CONDUCTOR: partial(make, recipe, split)}
    return _in_parts(makers, recipe.run.seed, count)


def _specialist_examples(
    recipe: Recipe, split: Split, family: str, seed: int, count: int
) -> list[TextExample]:
    unsure = recipe.data.etudes.unsure_share
    examples = make_specialist_examples(family, seed, split, unsure_share=unsure)
    return [
        TextExample([{"role": "user", "content": example.prompt}], example.reply)
        for example in islice(examples, count)
    ]


def _plan_examples(recipe: Recipe, split: Split, seed: int, count: int) -> list[TextExample]:
    """Make plan examples, now and then one of a second round.

    Most have random workers. Those to be tested on have not: the question names the workers, and
    access follows from it.
    """
    prompt = _prompt(recipe)
    settings = replace(_settings(recipe, _last_shapes(recipe, SHAPES)), order=prompt.order)
    if split == "test":
        assigned = ExampleSettings(
            shapes=settings.shapes,
            assigned_share=1.0,
            everyday_share=0.0,
            correct_access_share=1.0,
            order=prompt.order,
        )
        drawn = list(islice(make_plan_examples(seed + 500, assigned), count))
    else:
        later = round(count * settings.later_share)
        drawn = [
            *islice(make_plan_examples(seed, settings), count - later),
            *islice(make_second_round_examples(seed, settings), later),
        ]
    return [_as_conversation(prompt, example) for example in drawn]


def _decisions(recipe: Recipe, split: Split, seed: int, count: int) -> list[TextExample]:
    """Make decisions after a first round: its right answer is accepted, or a plan is begun."""
    prompt = _prompt(recipe)
    rng = Random(f"{seed}/decisions")  # noqa: S311 - repeatable, not secret
    settings = replace(_settings(recipe, _last_shapes(recipe, DEFAULT_SHAPES)), order=prompt.order)
    drawn = make_second_rounds(rng, split, settings)
    return [_as_decision(prompt, later) for later in islice(drawn, count)]


def _prompt(recipe: Recipe) -> Prompt:
    return Prompt(length=recipe.prompt.length, form="lists", few_shot=recipe.prompt.few_shot)


def _settings(
    recipe: Recipe, shapes: Mapping[EtudeShape, float], roles: Sequence[str] = ROLES
) -> ExampleSettings:
    """Return the recipe's settings, for études of these shapes."""
    data, pool = recipe.data.etudes, recipe.pool
    return ExampleSettings(
        roles=tuple(roles),
        shapes=shapes,
        nested_share=data.nested_share,
        everyday_share=0.0 if recipe.evolve else data.everyday_share,  # they are graded by plans
        later_share=data.later_round_share,
        assigned_share=data.assigned_share,
        accepted_share=data.accepted_share,
        correct_split_share=data.correct_split_share,
        correct_access_share=data.correct_access_share,
        drop=pool.worker_dropout,
        keep_needed=pool.keep_needed,
        flaky_share=pool.flaky_rate or FLAKY,
        flaky_seed=recipe.run.seed,
    )


def _last_shapes(recipe: Recipe, usual: Mapping[EtudeShape, float]) -> Mapping[EtudeShape, float]:
    stages = recipe.data.etudes.stage
    return _shapes(stages[-1].shapes) if stages else usual


def _shapes(weights: Mapping[str, float]) -> dict[EtudeShape, float]:
    return {EtudeShape(name): weight for name, weight in weights.items()}


def _as_conversation(prompt: Prompt, example: PlanExample) -> TextExample:
    """Return the conversation that asks for the plan, and the plan.

    Random ids are given, not learned; how many there are of them still is.
    """
    spans = () if example.is_assigned else (found.span() for found in _ID.finditer(example.plan))
    return TextExample(prompt.chat(example.context), example.plan, tuple(spans))


def _as_decision(prompt: Prompt, later: SecondRound) -> TextExample:
    messages = prompt.chat(later.context)
    if later.is_right:
        return TextExample(messages, plan.write_acceptance(prompt.order))
    (first,) = later.context.rounds
    begun, key, _ = first.plan_text.partition(_FIRST_KEY)
    assert key, f"a plan in this form has {_FIRST_KEY} in it"
    return TextExample(messages, begun + key, is_whole=False)


def _in_parts(makers: Mapping[str, Maker], seed: int, count: int) -> dict[str, list[TextExample]]:
    """Return `count` examples of every maker, made by all processors."""
    share = -(-count // SEED_PARTS)
    jobs = [(maker, seed * 1_000 + part) for maker in makers.values() for part in range(SEED_PARTS)]
    if count * len(makers) < MIN_PARALLEL_EXAMPLES:
        made = [maker(part, share) for maker, part in jobs]
    else:
        with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as processes:
            waiting = [processes.submit(maker, part, share) for maker, part in jobs]
            made = [future.result() for future in waiting]
    return {
        name: list(chain(*made[start : start + SEED_PARTS]))[:count]
        for name, start in zip(makers, range(0, len(jobs), SEED_PARTS), strict=True)
    }


def etude_stages(recipe: Recipe) -> list[tuple[int, Iterator[Exercise]]]:
    """Return the stages of the curriculum: how many batches each lasts, and its exercises without
    end. The steps that go over the same questions again have none of their own."""
    written = [(stage.steps, _shapes(stage.shapes)) for stage in recipe.data.etudes.stage]
    stages, left = list[tuple[int, Iterator[Exercise]]](), recipe.batches
    for number, (steps, shapes) in enumerate(written or [(None, DEFAULT_SHAPES)]):
        seed = recipe.run.seed * 100 + number
        contexts = make_training_contexts(seed, _settings(recipe, shapes, recipe.pool.roles))
        batches = left if steps is None else min(steps // recipe.steps_per_batch, left)
        stages.append((batches, starmap(_exercise, contexts)))
        left -= batches
    return stages


def _exercise(asked: Etude | str, context: PlanningContext) -> Exercise:
    task = etude_task(asked) if isinstance(asked, Etude) else everyday_task(asked)
    return Exercise(task, context)


def held_out_etudes(recipe: Recipe) -> list[Etude]:
    """Return the études behind the held-out exercises, in their order."""
    return held_out(recipe.run.eval_tasks, seed=recipe.run.seed)


def held_out_etude_exercises(recipe: Recipe) -> list[Exercise]:
    """Return the études that progress is measured by and, for plans, everyday questions; no more
    of these than there are études."""
    rng = Random(f"{recipe.run.seed}/held out")  # noqa: S311 - repeatable, not secret
    drop = recipe.pool.worker_dropout
    etudes = [
        _held_out_exercise(recipe, etude, etude.question, rng, etude.families, drop)
        for etude in held_out_etudes(recipe)
    ]
    if recipe.grpo is None:
        return etudes  # everyday questions are graded by plans
    rng = Random(f"{recipe.run.seed}/everyday")  # noqa: S311 - repeatable, not secret
    questions = everyday_questions("test")[: recipe.run.eval_tasks]
    return etudes + [_held_out_exercise(recipe, question, question, rng) for question in questions]


def _held_out_exercise(
    recipe: Recipe,
    asked: Etude | str,
    question: str,
    rng: Random,
    keep: tuple[str, ...] = (),
    drop: float = 0.0,
) -> Exercise:
    models = dict.fromkeys(recipe.pool.roles, "")
    pool = pool_profiles(rng, models, split="test", keep=keep, drop=drop)
    return _exercise(asked, PlanningContext(question=question, pool=pool))
