"""What was thought of an answer, by whoever asked or by a grader, as data, and what keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

LONGEST_COMMENT: Final = 10_000
LONGEST_ANSWER: Final = 2_000
"""Characters that are kept of a person's words, and of the answer that they say is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A judgement of a run: `score` is from 0 (useless) to 1 (just right). The latest stands, but
    a grader's never in the place of a person's.

    `grader` is the name of the grader whose judgement it is, and empty where it is a person's.
    `task` is a line of a file of tasks: the one that it graded by, or the question with the answer
    that a person says is right; empty where there is none.
    """

    run_id: str
    score: float
    comment: str = ""
    given_at: str
    grader: str = ""
    task: str = ""

    @property
    def answer(self) -> str:
        """The answer that a person says is right; empty where nobody does."""
        return str(json.loads(self.task)["answer"]) if self.task and not self.grader else ""


def corrected(question: str, answer: str) -> str:
    """The task that a person makes who says what is right; empty where they say nothing."""
    if not answer.strip():
        return ""
    task = {"question": question, "answer": answer.strip(), "grader": "contains"}
    return json.dumps(task, ensure_ascii=False)


class FeedbackStore(Protocol):
    """Keeps judgements beside the runs. A run that is deleted takes its own with it."""

    async def give(self, feedback: Feedback) -> None:
        """Write a judgement in place of an earlier one, unless that is a person's and this is a
        grader's; raises `NotFound` without such a run."""
        ...

    async def withdraw(self, run_id: str) -> None:
        """Forget what was thought of that run; raises `NotFound` where nobody said."""
        ...

    async def of(self, run_id: str) -> Feedback | None:
        """What was thought of that run, if anybody said."""
        ...

    async def page(self, after: str = "", *, limit: int = 500) -> Sequence[Feedback]:
        """Judgements in the order of their runs' ids, those after that id; none of a run that is
        only held for a while, as nothing of it is to be kept."""
        ...
