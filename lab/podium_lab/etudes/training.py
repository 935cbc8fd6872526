"""Études as the examples and exercises of a recipe.

A specialist's examples have every form in which the engine sends it work: literals alone, earlier
results, irrelevant steps, an earlier round. To a small share it replies that it does not know.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice, starmap
from multiprocessing import get_context
from random import Random
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from podium.conductors import plan
from podium.conductors.prompt import Prompt
from podium.core.errors import UsageError
from podium.core.pool import Pool
from podium.core.run import Round
from podium.engine.requests import PriorResult, compose_prompt
from podium.train.examples import CONDUCTOR, TextExample
from podium.train.exercises import DrawnTask
from podium.train.recipe import Recipe
from podium_lab.etudes.composition import (
    DEFAULT_SHAPES,
    EtudeShape,
    Operation,
    Split,
    compose_operations,
    try_operations,
)
from podium_lab.etudes.etude import (
    NUMBER_WORDS,
    Etude,
    ask,
    capitalise,
    connectives,
    held_out,
    make_etude,
    nest,
    order,
)
from podium_lab.etudes.oracle import ROUND_BEFORE
from podium_lab.etudes.plan_examples import (
    FLAKY,
    SHAPES,
    ExampleSettings,
    PlanExample,
    SecondRound,
    draw_second_round,
    make_plan_examples,
    make_second_round_examples,
    make_training_contexts,
)
from podium_lab.etudes.skills import FAMILIES, SKILLS, Skill
from podium_lab.etudes.tasks import etude_task, everyday_questions, everyday_task
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import ROLES, pool_profiles

UNSURE_SHARE: Final = 0.10
NESTED_SHARE: Final = 0.2
WHOLE_QUESTION_SHARE: Final = 0.4
"""How often a subtask with literal arguments alone is a whole question of one skill."""

SECOND_ROUND_SHARE: Final = 0.065
"""How often the work is part of a second round that reads all of the first."""

EVERY_STEP_SHARE: Final = 0.2
AMONG_OTHERS_SHARE: Final = 0.2
"""How often more is shown than what is needed, where the meaning is still clear."""

UNKNOWN_BESIDE_SHARE: Final = 0.2
"""How often a result that does not matter was not known."""

MAX_TRIES: Final = 12
"""As many tries at a shape that is hard for the skill to end; then the simplest one will do."""

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        **dict.fromkeys(("day_after", "day_before", "month_after", "month_before"), 3.0),
        **dict.fromkeys(("ascending", "largest", "smallest"), 2.0),
    }
)
"""How much more often than others the skills are taught that are hard to learn."""

Role = Literal["leaf", "step", "join-2", "join-3"]

_SHAPES: Final[dict[Role, tuple[EtudeShape, ...]]] = {
    "leaf": (EtudeShape.ONE,),
    "step": (
        EtudeShape.CHAIN_2,
        EtudeShape.CHAIN_2,
        EtudeShape.CHAIN_3,
        EtudeShape.CHAIN_4,
        EtudeShape.JOIN_STEP,
    ),
    "join-2": (EtudeShape.JOIN_2, EtudeShape.CHAIN_JOIN, EtudeShape.CHAINS_JOIN),
    "join-3": (EtudeShape.JOIN_3,),
}
"""The shapes that end in a skill of that role, the simplest first; not every skill can end the
others."""


class SpecialistExample(NamedTuple):
    """A message to a specialist, and what it should reply."""

    prompt: str
    reply: str


def make_specialist_examples(
    family: str, seed: int, split: Split = "train", *, unsure_share: float = UNSURE_SHARE
) -> Iterator[SpecialistExample]:
    """Yield examples; the hard ones among the skills of the family more often."""
    if family not in FAMILIES:
        raise UsageError(f"no family is called {family!r}; there is {', '.join(FAMILIES)}")
    rng = Random(f"{seed}/lessons/{family}/{split}")  # noqa: S311 - repeatable, not secret
    while True:
        if rng.random() < unsure_share:
            yield SpecialistExample(_declined_example(rng, family, split), UNSURE)
        else:
            yield _skill_example(rng, family, split)


def _skill_example(rng: Random, family: str, split: Split) -> SpecialistExample:
    skills = _skills(family)
    (skill,) = rng.choices(skills, [WEIGHTS.get(skill.name, 1.0) for skill in skills])
    operations = _operations(rng, split, skill, rng.choice(_roles(skill)))
    subtasks, subtask = _subtasks(rng, split, operations)
    shown = _pairs(operations, subtasks)
    if rng.random() < SECOND_ROUND_SHARE and _all_differ(*subtasks, subtask):
        pairs = _after_a_round(rng, split, shown, subtask)
    else:
        pairs = _in_one_round(rng, split, operations, shown, subtask)
    prompt = compose_prompt(subtask, question=None, prior=pairs, is_final=False)
    return SpecialistExample(prompt, operations[-1].answer.text)


def _declined_example(rng: Random, family: str, split: Split) -> str:
    point = rng.random()
    if point < 0.5:
        other = rng.choice([other for other in FAMILIES if other != family])
        return _skill_example(rng, other, split).prompt
    if point < 0.65:
        shape = rng.choice([shape for shape in DEFAULT_SHAPES if shape is not EtudeShape.ONE])
        return make_etude(rng, split, shape).question
    skill = rng.choice([skill for skill in _skills(family) if len(_roles(skill)) > 1])
    operations = _operations(rng, split, skill, rng.choice(_roles(skill)[1:]))
    last = operations[-1]
    if point < 0.8:
        return _surface(rng, split, order(rng, split, last))
    subtasks, subtask = _subtasks(rng, split, operations)
    shown = _pairs(operations, subtasks)
    unknown = rng.choice(last.reads)
    shown[unknown] = shown[unknown]._replace(reply=UNSURE)
    if rng.random() >= 0.3 or not _says_how_many(subtask, last):
        shown = [shown[read] for read in last.reads]
    return compose_prompt(subtask, question=None, prior=shown, is_final=False)


@cache
def _skills(family: str) -> tuple[Skill, ...]:
    return tuple(skill for skill in SKILLS.values() if skill.family == family)


@cache
def _roles(skill: Skill) -> tuple[Role, ...]:
    can_play: dict[Role, bool] = {
        "leaf": skill.leaf,
        "step": bool(skill.refers),
        "join-2": 2 in skill.joins,
        "join-3": 3 in skill.joins,
    }
    return tuple(role for role, can in can_play.items() if can)


def _operations(rng: Random, split: Split, skill: Skill, role: Role) -> tuple[Operation, ...]:
    shapes = _SHAPES[role]
    found = try_operations(rng, split, rng.choice(shapes), last=skill, tries=MAX_TRIES)
    return found or compose_operations(rng, split, shapes[0], last=skill)


def _pairs(operations: Sequence[Operation], subtasks: Sequence[str]) -> list[PriorResult]:
    return [
        PriorResult(str(index), subtask, operation.answer.text)
        for index, (operation, subtask) in enumerate(zip(operations, subtasks, strict=False))
    ]


def _in_one_round(
    rng: Random,
    split: Split,
    operations: Sequence[Operation],
    shown: list[PriorResult],
    subtask: str,
) -> list[PriorResult]:
    """Return every earlier step, or the needed ones alone, or among others."""
    needed = [shown[read] for read in operations[-1].reads]
    point = rng.random()
    if not _says_how_many(subtask, operations[-1]):
        return needed
    if point < EVERY_STEP_SHARE:
        return shown
    if point < EVERY_STEP_SHARE + AMONG_OTHERS_SHARE and _stand_by_themselves(operations):
        return _among_others(rng, split, operations[-1], needed)
    return needed


def _after_a_round(
    rng: Random, split: Split, shown: Sequence[PriorResult], subtask: str
) -> list[PriorResult]:
    """Return a first round that failed from some step on, and those steps done again, all labelled
    as the engine would."""
    kept = rng.randint(0, len(shown))
    failed = [*shown[kept:], PriorResult(str(len(shown)), subtask, "")]
    first = [*shown[:kept], *(pair._replace(reply=_wrong(rng, split)) for pair in failed)]
    return [
        *(pair._replace(step=f"{pair.step}{ROUND_BEFORE}") for pair in first),
        *(pair._replace(step=str(index)) for index, pair in enumerate(shown[kept:])),
    ]


def _all_differ(*texts: str) -> bool:
    return len({text.casefold() for text in texts}) == len(texts)


def _wrong(rng: Random, split: Split) -> str:
    """Return a wrong worker's reply: most often that it does not know."""
    if rng.random() < 0.7:
        return UNSURE
    (other,) = compose_operations(rng, split, EtudeShape.ONE)
    return other.answer.text


def _subtasks(rng: Random, split: Split, operations: Sequence[Operation]) -> tuple[list[str], str]:
    """Return the subtasks of the earlier operations, and that of the last one."""
    last = operations[-1]
    if not last.reads and rng.random() < WHOLE_QUESTION_SHARE:
        return [], ask(rng, split, last)
    nested = nest(rng, split, operations) if last.reads and rng.random() < NESTED_SHARE else None
    if nested is not None:
        *subtasks, subtask = nested.subtasks
        two_deep = len(last.reads) == len(operations) - 1
        if two_deep and rng.random() < 0.5:
            return subtasks, nested.question
        return subtasks, _surface(rng, split, subtask)
    *texts, text = [order(rng, split, operation) for operation in operations]
    return [_cut(rng, earlier) for earlier in texts], _surface(rng, split, text)


def _cut(rng: Random, text: str) -> str:
    return capitalise(text) if rng.random() < 0.4 else text


def _surface(rng: Random, split: Split, text: str) -> str:
    """Return the clause as a plan may cut it out of a question: with or without its capital, full
    stop and connecting words."""
    point = rng.random()
    if point < 0.15:
        return f"{capitalise(text)}."
    if point < 0.25:
        return f"{text}."
    if point < 0.40:
        words = rng.choice(connectives(split))
        return rng.choice(words[:-1]).lstrip(",.; \n").replace("{n}", "2") + text
    return _cut(rng, text)


def _says_how_many(subtask: str, operation: Operation) -> bool:
    size = len(operation.reads)
    return size < 2 or any(f"{word} " in subtask for word in NUMBER_WORDS[size])


def _stand_by_themselves(operations: Sequence[Operation]) -> bool:
    """True if no other result can be mistaken for the needed ones: of several, the last are meant,
    unless one of them used another."""
    needed = operations[-1].reads
    return len(needed) < 2 or not any(operations[read].reads for read in needed)


def _among_others(
    rng: Random, split: Split, operation: Operation, needed: Sequence[PriorResult]
) -> list[PriorResult]:
    """Return the needed steps with one or two irrelevant ones before them, or after them where
    their kind could not be meant."""
    shown = list(needed)
    positions = [
        position for position, source in enumerate(operation.sources) if source is not None
    ]
    for _ in range(rng.randint(1, 2)):
        (other,) = compose_operations(rng, split, EtudeShape.ONE)
        fits = any(other.answer.kind in operation.skill.kinds(position) for position in positions)
        behind = len(positions) == 1 and not fits and rng.random() < 0.5
        unknown = not behind and rng.random() < UNKNOWN_BESIDE_SHARE
        reply = UNSURE if unknown else other.answer.text
        pair = PriorResult("", _cut(rng, order(rng, split, other)), reply)
        shown.insert(len(shown) if behind else 0, pair)
    return [pair._replace(step=str(index)) for index, pair in enumerate(shown)]


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
    settings = replace(_settings(recipe, _last_shapes(recipe, SHAPES)), layout=prompt.layout)
    if split == "test":
        assigned = ExampleSettings(
            shapes=settings.shapes,
            assigned_share=1.0,
            everyday_share=0.0,
            correct_access_share=1.0,
            layout=prompt.layout,
        )
        drawn = list(islice(make_plan_examples(seed + 500, assigned), count))
    else:
        later = round(count * settings.later_round_share)
        drawn = [
            *islice(make_plan_examples(seed, settings), count - later),
            *islice(make_second_round_examples(seed, settings), later),
        ]
    return [_as_conversation(prompt, example) for example in drawn]


def _decisions(recipe: Recipe, split: Split, seed: int, count: int) -> list[TextExample]:
    """Make decisions after a first round: its right answer is accepted, or a plan is begun."""
    prompt = _prompt(recipe)
    rng = Random(f"{seed}/decisions")  # noqa: S311 - repeatable, not secret
    settings = _settings(recipe, _last_shapes(recipe, DEFAULT_SHAPES))
    settings = replace(settings, layout=prompt.layout)
    drawn = (draw_second_round(rng, split, settings) for _ in range(count))
    return [_as_decision(prompt, later) for later in drawn]


def _prompt(recipe: Recipe) -> Prompt:
    return Prompt(style=recipe.prompt.style, plan_format="lists", few_shot=recipe.prompt.few_shot)


def _settings(
    recipe: Recipe, shapes: Mapping[EtudeShape, float], roles: Sequence[str] = ROLES
) -> ExampleSettings:
    """Return the recipe's settings, for études of these shapes."""
    data, pool = recipe.data.etudes, recipe.pool
    return ExampleSettings(
        roles=tuple(roles),
        shapes=shapes,
        nested_phrase_share=data.nested_phrase_share,
        everyday_share=0.0 if recipe.evolve else data.everyday_share,  # they are graded by plans
        later_round_share=data.later_round_share,
        assigned_share=data.assigned_share,
        accepted_share=data.accepted_share,
        correct_split_share=data.correct_split_share,
        correct_access_share=data.correct_access_share,
        drop=pool.worker_dropout,
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
        return TextExample(messages, plan.write_acceptance(prompt.layout))
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


def etude_stages(recipe: Recipe) -> list[tuple[int, Iterator[DrawnTask]]]:
    """Return the stages of the curriculum: how many batches each lasts, and its tasks without end.

    The steps that go over the same questions again have none of their own.
    """
    written = [(stage.steps, _shapes(stage.shapes)) for stage in recipe.data.etudes.stage]
    stages, left = list[tuple[int, Iterator[DrawnTask]]](), recipe.batches
    for number, (steps, shapes) in enumerate(written or [(None, DEFAULT_SHAPES)]):
        seed = recipe.run.seed * 100 + number
        contexts = make_training_contexts(seed, _settings(recipe, shapes, recipe.pool.roles))
        batches = left if steps is None else min(steps // recipe.steps_per_batch, left)
        stages.append((batches, starmap(_draw_task, contexts)))
        left -= batches
    return stages


def _draw_task(asked: Etude | str, pool: Pool, rounds: tuple[Round, ...] = ()) -> DrawnTask:
    task = etude_task(asked) if isinstance(asked, Etude) else everyday_task(asked)
    return DrawnTask(task, pool, rounds)


def held_out_etudes(recipe: Recipe) -> list[Etude]:
    """Return the études behind the held-out exercises, in their order."""
    return held_out(recipe.run.eval_tasks, seed=recipe.run.seed)


def held_out_tasks(recipe: Recipe) -> Iterator[DrawnTask]:
    """Yield the études that progress is measured by and, for plans, everyday questions; no more
    of these than there are études."""
    models, drop = dict.fromkeys(recipe.pool.roles, ""), recipe.pool.worker_dropout
    rng = Random(f"{recipe.run.seed}/held out")  # noqa: S311 - repeatable, not secret
    for etude in held_out_etudes(recipe):
        pool = pool_profiles(rng, models, split="test", keep=etude.families, drop=drop)
        yield _draw_task(etude, pool)
    if recipe.grpo is None:
        return  # everyday questions are graded by plans
    rng = Random(f"{recipe.run.seed}/everyday")  # noqa: S311 - repeatable, not secret
    for question in everyday_questions("test")[: recipe.run.eval_tasks]:
        yield _draw_task(question, pool_profiles(rng, models, split="test"))
