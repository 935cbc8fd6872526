"""Études: generated practice tasks for the built-in small world, each with one right answer.

Seven families of skills, one specialist each; questions that need one of them, or several in a
chain, a join or a tree; and the examples that workers and conductors are trained on.
`podium_lab.etudes.shapes` keeps training and testing apart.
"""

from __future__ import annotations

from podium_lab.etudes.etude import Etude, Etudes, EtudeStep, held_out, make_etude
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.plan_examples import ExampleSettings, PlanExample, make_plan_examples
from podium_lab.etudes.second_rounds import (
    SecondRound,
    TrainingContext,
    make_second_round_examples,
    make_second_rounds,
    make_training_contexts,
)
from podium_lab.etudes.shapes import SPLITS, TEST_ONLY, USUAL, EtudeShape, Split
from podium_lab.etudes.skills import FAMILIES, Family
from podium_lab.etudes.specialist_examples import SpecialistExample, make_specialist_examples
from podium_lab.etudes.tasks import everyday_questions, grade, is_direct_plan
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import (
    GENERALIST,
    MISLEADING,
    ROLES,
    FlakyWorker,
    descriptions,
    pool_profiles,
)

__all__ = [
    "FAMILIES",
    "GENERALIST",
    "MISLEADING",
    "ROLES",
    "SPLITS",
    "TEST_ONLY",
    "UNSURE",
    "USUAL",
    "Etude",
    "EtudeShape",
    "EtudeStep",
    "Etudes",
    "ExampleSettings",
    "Family",
    "FlakyWorker",
    "PlanExample",
    "SecondRound",
    "SpecialistExample",
    "Split",
    "TrainingContext",
    "descriptions",
    "everyday_questions",
    "grade",
    "held_out",
    "is_direct_plan",
    "make_etude",
    "make_plan_examples",
    "make_second_round_examples",
    "make_second_rounds",
    "make_specialist_examples",
    "make_training_contexts",
    "oracle_reply",
    "pool_profiles",
]
