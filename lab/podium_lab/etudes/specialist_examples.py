"""Specialist examples: messages exactly as the engine sends them, and the bare answer.

They have every form in which work may reach a specialist: literal arguments, with or without
irrelevant steps beside them; one earlier result, or several, shown alone or among others; the
steps of a round before; subtasks cut out of a question in any way. To a small share the reply is
that it does not know, so that no specialist is good at another's skill by accident: another
family's subtask, a whole question of several steps, a subtask whose input is not shown, and one
whose input was not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from podium.core.errors import UsageError
from podium.engine.requests import PriorResult, compose_prompt
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
    ask,
    capitalise,
    connectives,
    make_etude,
    nest,
    order,
)
from podium_lab.etudes.oracle import ROUND_BEFORE
from podium_lab.etudes.skills import FAMILIES, SKILLS, Skill
from podium_lab.etudes.values import UNSURE

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
    """Return a message that this family's specialist cannot answer."""
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
    """Return the skill's possible positions in a question, the beginning first."""
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
    """Return the earlier operations as the last one may see them."""
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
    """True if the text says how many results it means."""
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
