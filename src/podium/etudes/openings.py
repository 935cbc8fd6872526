"""Where a conductor begins before it learns from reward: plans in the right form, of every shape,
by no one in particular.

An opening teaches the form and its variety, never who can do what: workers are drawn at random,
and so is the access. In about half of the questions of several steps, the subtasks are the true
clauses; in the others, the whole question goes to one worker, or it is cut up in some other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from podium import plan
from podium.conductor.base import Situation
from podium.etudes.etude import Etude, make_etude
from podium.etudes.pools import ROLES, pool_profiles
from podium.etudes.shapes import EtudeShape
from podium.workflow import Access, Step, Workflow

SHAPES: Final = MappingProxyType(
    {
        EtudeShape.ONE: 0.20,
        EtudeShape.CHAIN_2: 0.12,
        EtudeShape.CHAIN_3: 0.09,
        EtudeShape.CHAIN_4: 0.06,
        EtudeShape.JOIN_2: 0.16,
        EtudeShape.JOIN_3: 0.10,
        EtudeShape.JOIN_STEP: 0.09,
        EtudeShape.CHAIN_JOIN: 0.09,
        EtudeShape.CHAINS_JOIN: 0.09,
    }
)
"""Joins and trees as often as chains."""

TRUE_CLAUSES: Final = 0.5
WHOLE_QUESTION: Final = 0.2
DROP: Final = 0.2

SAME_MODELS: Final = MappingProxyType({role: role for role in ROLES})


class Opening(NamedTuple):
    """A situation, and a plan for it that is well-formed and random."""

    situation: Situation
    plan: str


def openings(
    seed: int,
    models: Mapping[str, str] = SAME_MODELS,
    *,
    shapes: Mapping[EtudeShape, float] = SHAPES,
    true_clauses: float = TRUE_CLAUSES,
    drop: float = DROP,
) -> Iterator[Opening]:
    """Opening after opening, over pools as `pool_profiles` makes them."""
    rng = Random(f"{seed}/openings")  # noqa: S311 - repeatable, not secret
    names, weights = list(shapes), list(shapes.values())
    while True:
        etude = make_etude(rng, "train", rng.choices(names, weights)[0])
        pool = pool_profiles(rng, models, drop=drop)
        subtasks = _subtasks(rng, etude, true_clauses)
        steps = tuple(
            Step(rng.choice(pool.names), subtask, access)
            for subtask, access in zip(subtasks, random_access(rng, len(subtasks)), strict=True)
        )
        yield Opening(
            Situation(question=etude.question, pool=pool), plan.write(Workflow(steps), pool)
        )


def _subtasks(rng: Random, etude: Etude, true_clauses: float) -> Sequence[str]:
    point = rng.random()
    clauses = [step.subtask for step in etude.steps]
    if len(clauses) == 1 or true_clauses < point < true_clauses + WHOLE_QUESTION:
        return [etude.question]
    if point <= true_clauses:
        return clauses
    cut = rng.choice((_pieces, _fewer, _shuffled))
    return cut(rng, etude.question, clauses)


def _pieces(rng: Random, question: str, clauses: list[str]) -> list[str]:
    """The question cut anywhere between its words."""
    words = question.split()
    places = sorted(rng.sample(range(1, len(words)), rng.randint(1, min(4, len(words) - 1))))
    bounds = [0, *places, len(words)]
    return [" ".join(words[start:end]) for start, end in pairwise(bounds)]


def _fewer(rng: Random, question: str, clauses: list[str]) -> list[str]:
    """The question without some of its clauses."""
    kept = sorted(rng.sample(range(len(clauses)), rng.randint(1, len(clauses) - 1)))
    return [clauses[place] for place in kept]


def _shuffled(rng: Random, question: str, clauses: list[str]) -> list[str]:
    """The clauses in any order, the whole question perhaps at the end."""
    mixed = rng.sample(clauses, len(clauses))
    return [*mixed[:4], question] if rng.random() < 0.3 else mixed


def random_access(rng: Random, length: int) -> list[Access]:
    """What each of so many steps may read, in a topology chosen at random: a chain, a join, a
    tree, everything, nothing, or anything."""
    steps = range(length)
    match rng.choice(("chain", "join", "tree", "tree", "all", "nothing", "anything")):
        case "chain":
            return [(index - 1,) if index else () for index in steps]
        case "join":
            return [*((),) * (length - 1), tuple(range(length - 1))]
        case "tree":
            reader = [rng.randint(index + 1, length - 1) for index in range(length - 1)]
            return [tuple(n for n, read_by in enumerate(reader) if read_by == i) for i in steps]
        case "all":
            return ["all" if index else () for index in steps]
        case "nothing":
            return [() for _ in steps]
        case _:
            return [tuple(n for n in range(index) if rng.random() < 0.5) for index in steps]
