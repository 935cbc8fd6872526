"""Études as tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from podium._util.lab import EVERYDAY
from podium.core.errors import ConfigError
from podium.core.task import Task
from podium.core.workflow import Workflow
from podium_lab.etudes import (
    SPLITS,
    TEST_ONLY,
    USUAL,
    Etude,
    Etudes,
    EtudeShape,
    EtudeStep,
    everyday,
    grade,
    held_out,
    sensible,
)
from podium_lab.etudes.grader import is_answer


def everyday_task(question: str) -> Task:
    """An everyday question. A plan is right when it leaves the question alone: one step, for a
    worker who can take it."""
    return Task(
        id=f"{EVERYDAY}/{blake2b(question.encode(), digest_size=8).hexdigest()}",
        question=question,
        grader=_never_graded,
        kind=EVERYDAY,
        plan_grader=partial(_leaves_alone, question),
    )


def everyday_suite(split: str = "test") -> list[Task]:
    """The everyday questions that are kept for testing (`test`), or those that are trained on
    (`train`)."""
    for known in SPLITS:
        if split == known:
            return [everyday_task(question) for question in everyday(known)]
    raise ConfigError(f"everyday questions have no split {split!r}; they have {', '.join(SPLITS)}")


async def _never_graded(answer: str) -> bool:
    return False


def _leaves_alone(question: str, workflow: Workflow) -> bool:
    return sensible(workflow, question)


LONGER: Final[Mapping[EtudeShape, float]] = MappingProxyType(dict.fromkeys(sorted(TEST_ONLY), 1.0))
"""The shapes that are longer than any in training."""

ETUDE_SPLITS: Final = ("test", "longer", "train")


@dataclass(frozen=True, slots=True)
class EtudeGrader:
    """Whether a reply gives the étude's one right answer."""

    etude: Etude

    async def __call__(self, answer: str) -> bool:
        """Grade the reply as études are graded."""
        return grade(answer, self.etude)


@dataclass(frozen=True, slots=True)
class StepGrader:
    """Whether a reply gives the result of one step of an étude."""

    step: EtudeStep

    async def __call__(self, answer: str) -> bool:
        """Grade the reply as études are graded."""
        return is_answer(answer, self.step.answer, self.step.kind)


def etude_task(etude: Etude) -> Task:
    """The étude as a task, grouped by its shape and as difficult as it has steps; what its other
    steps come to are milestones."""
    return Task(
        id=etude.id,
        question=etude.question,
        grader=EtudeGrader(etude),
        kind=etude.shape.value,
        difficulty=str(len(etude.steps)),
        answer=etude.answer,
        milestones=tuple(StepGrader(step) for step in etude.steps[:-1]),
    )


def etude_suite(n: int, seed: int = 0, split: str = "test") -> list[Task]:
    """Études to be tested on (`test`, or the `longer` ones), or to be trained on (`train`)."""
    if split == "train":
        etudes = Etudes(seed, "train").sample(n)
    elif split in ETUDE_SPLITS:
        etudes = held_out(n, seed, LONGER if split == "longer" else USUAL)
    else:
        raise ConfigError(f"études have no split {split!r}; they have {', '.join(ETUDE_SPLITS)}")
    return [etude_task(etude) for etude in etudes]
