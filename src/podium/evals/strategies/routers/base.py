"""What routers learn from, and what they are: one worker chosen for each question.

    outcomes = Outcomes(questions, workers, shares)      # who was how often right on what
    router = RouterDC.fitted(outcomes, encoder, seed=0)
    router.scores(["What is six times seven?"])          # a row, a column for each worker

Who is asked what, and whether it was right, is found out in `podium.evals.strategies.fit`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from podium.errors import UsageError
from podium.routing.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """How often each worker was right on each question: a row for each question, a column for
    each worker, shares from 0 to 1. `replies` are what each worker said to each question, where
    a router reads that; `costs` what each question cost with each worker, where that is known of
    all of them."""

    questions: tuple[str, ...]
    workers: tuple[str, ...]
    shares: Array
    replies: tuple[tuple[str, ...], ...] | None = None
    costs: Array | None = None

    def __post_init__(self) -> None:
        if not self.questions or not self.workers:
            raise UsageError("a router learns from at least one question and one worker")
        expected = (len(self.questions), len(self.workers))
        if self.shares.shape != expected:
            raise ValueError(f"expected shares of the shape {expected}, not {self.shares.shape}")

    def of(self, rows: Sequence[int]) -> Outcomes:
        """The same for some of the questions, by their places."""
        return Outcomes(
            tuple(self.questions[row] for row in rows),
            self.workers,
            self.shares[list(rows)],
            None if self.replies is None else tuple(self.replies[row] for row in rows),
            None if self.costs is None else self.costs[list(rows)],
        )

    @property
    def best(self) -> int:
        """The place of the worker that is right most often; of several, the first."""
        return int(np.argmax(self.shares.mean(axis=0)))


class Router(Protocol):
    """Says for each question how much each worker is to be preferred."""

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it knows, in the order of its scores."""
        ...

    def scores(self, questions: Sequence[str]) -> Array:
        """A row for each question, a number for each worker; the largest is its choice."""
        ...

    def document(self) -> dict[str, Any]:
        """What it has learned, as JSON."""
        ...


def chosen(router: Router, question: str, present: Collection[str]) -> str:
    """The worker that the router prefers among those who are there."""
    (row,) = router.scores([question])
    known = known_places(router, present)
    return router.workers[max(known, key=lambda place: float(row[place]))]


def known_places(router: Router, present: Collection[str]) -> list[int]:
    """The places of the workers that the router knows and that are there."""
    known = [place for place, worker in enumerate(router.workers) if worker in present]
    if not known:
        raise UsageError(
            f"the router was fitted to {', '.join(router.workers)}, and the pool has "
            f"{', '.join(present)}: none of them; fit it again on this pool"
        )
    return known
