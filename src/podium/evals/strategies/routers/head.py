"""The learned router of `podium.routing`, as a strategy among the others.

It is taught by what every worker earned, as the others are. Where nobody knows what workers cost,
of two the one that is right more often is taken to cost one and the other nothing, as RouteLLM
counts calls; of more, all cost the same, and only being right counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.evals.strategies.routers.base import Outcomes, known_places
from podium.evals.strategies.routers.encoder import MakeEncoder, read_encoder
from podium.routing import Known, LearnedRouter
from podium.routing.arrays import Array
from podium.routing.evidence import Evidence
from podium.routing.learning import Teaching, taught


@dataclass(frozen=True, slots=True, eq=False)
class HeadRouter:
    """Prefers the worker of which the head expects most."""

    router: LearnedRouter

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it knows."""
        return tuple(known.name for known in self.router.workers)

    @classmethod
    def fitted(cls, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> HeadRouter:
        """The router that comes of both stages."""
        # Outcomes do not say of which model a worker is, so it is known by its name alone.
        workers = tuple(
            Known(name, "", cost)
            for name, cost in zip(outcomes.workers, costs_of(outcomes), strict=True)
        )
        evidence = Evidence(outcomes.questions, workers, outcomes.shares)
        return cls(taught(evidence, encoder(outcomes.questions), Teaching(seed=seed)).router)

    def scores(self, questions: Sequence[str]) -> Array:
        """What reward is expected of each worker."""
        return self.router.expected(self.router.encoder.encode(questions))

    def chosen_at(self, dial: float, question: str, present: Collection[str]) -> str:
        """The worker at that position of the dial, of those who are there."""
        (row,) = self.scores([question])
        places = known_places(self, present)
        return self.workers[self.router.dial.choose(row, self.router.costs, dial, places)]

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return self.router.document()

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> HeadRouter:
        """The router that was written down."""
        return cls(LearnedRouter.read(document, read_encoder))


def costs_of(outcomes: Outcomes) -> tuple[float, ...]:
    """What a question costs with each worker on the average, or what stands for that."""
    if outcomes.costs is not None:
        return tuple(map(float, outcomes.costs.mean(axis=0)))
    if len(outcomes.workers) != 2:
        return (0.0,) * len(outcomes.workers)
    return tuple(float(place == outcomes.best) for place in range(2))
