"""What whoever asked thought of an answer, as data, and what keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A judgement of a run: `score` is from 0 (useless) to 1 (just right). The latest stands."""

    run_id: str
    score: float
    comment: str = ""
    given_at: str


class FeedbackStore(Protocol):
    """Keeps judgements beside the runs. A run that is deleted takes its own with it."""

    async def give(self, feedback: Feedback) -> None:
        """Write a judgement in place of an earlier one; raises `NotFound` without such a run."""
        ...

    async def of(self, run_id: str) -> Feedback | None:
        """What was thought of that run, if anybody said."""
        ...
