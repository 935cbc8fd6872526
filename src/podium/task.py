"""A task: a question that can be graded, and what it takes to grade it.

Tasks are what conductors are trained on and what strategies are measured by; a suite is a list
of them. Where tasks come from is `podium.tasks`; what is made of them is `podium.train` and
`podium.evals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from podium.workflow import Workflow


class Grader(Protocol):
    """Tells whether a final answer is right."""

    async def __call__(self, answer: str) -> bool:
        """Grade the answer. A wrong, empty or endless answer is False, never an error: what is
        raised says that nobody could grade, as when a judge is out of reach, and then the
        answer is neither right nor wrong."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question and its grader.

    `kind` is what tables group by: a subject, a shape. `difficulty` is what the data itself says
    of how hard the task is, None where it says nothing. `answer` is the reference in words, where
    there is one. `judge` names the worker that decides where the grade is a model's opinion:
    what is reported of such a task must say so. `milestones` grade the results that a good run
    comes by on its way, where they are known: training may give some credit for these. With
    `plan_grader` the plan itself is graded and need not be carried out: for questions whose
    answers cannot be checked, where it still is clear what a sensible plan looks like.
    """

    id: str
    question: str
    grader: Grader
    kind: str = ""
    difficulty: str | None = None
    answer: str = ""
    judge: str | None = None
    milestones: tuple[Grader, ...] = ()
    plan_grader: Callable[[Workflow], bool] | None = None


Suite = Sequence[Task]
"""Tasks in order."""
