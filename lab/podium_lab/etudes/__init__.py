"""Études: generated practice tasks for the built-in small world, each with one right answer.

Seven families of skills, one specialist each; questions that need one of them, or several in a
chain, a join or a tree; and everything that is taught from them.

    Etudes, held_out   questions with their answers and ideal plans
    grade              whether a reply is the answer
    lessons            what a specialist is taught
    openings           what a conductor is taught before it learns from reward
    later_openings     the same for second rounds
    training_situations  what it then learns from reward on; later_situations are second rounds
    pool_profiles      the workers, described in words
    everyday, sensible questions that are no études, and what a plan for them should be
    oracle_reply       what a perfect specialist would say

`podium_lab.etudes.shapes` says what is kept apart between training and testing.
"""

from __future__ import annotations

from podium_lab.etudes.etude import Etude, Etudes, EtudeStep, held_out, make_etude
from podium_lab.etudes.oracle import oracle_reply
from podium_lab.etudes.plan_examples import PlanExample, make_plan_examples
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
