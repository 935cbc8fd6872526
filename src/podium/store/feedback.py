"""What was thought of an answer, by whoever asked or by a grader, as data, and what keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A judgement of a run: `score` is from 0 (useless) to 1 (just right). The latest stands, but
    a grader's never in the place of a person's.

    `grader` is the name of the grader whose judgement it is, and empty where it is a person's;
    `task` is the task that it graded by, as JSON, where there was one.
    """

    run_id: str
    score: float
    comment: str = ""
    given_at: str
    grader: str = ""
    task: str = ""


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
