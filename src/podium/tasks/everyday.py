"""Everyday questions as tasks: nobody can grade their answers, so their plans are graded."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import Final

from podium.core.errors import ConfigError
from podium.core.task import Task
from podium.core.workflow import Workflow
from podium.etudes import SPLITS, everyday, sensible

EVERYDAY: Final = "everyday"
"""The kind of an everyday question, and the suite of them."""


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
