"""The constant router: always the same worker, the one that was right most often in training.

It reads no question. What a router is worth is what it adds to this one, which, unlike
`best-single`, is not chosen on the tasks that it is measured by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.evals.strategies.routers.base import Outcomes
from podium.evals.strategies.routers.encoder import MakeEncoder
from podium.routing.arrays import Array, array_in, packed


@dataclass(frozen=True, slots=True, eq=False)
class ConstantRouter:
    """Prefers workers by the `shares` that they got right in training."""

    workers: tuple[str, ...]
    shares: Array

    @classmethod
    def fitted(cls, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> ConstantRouter:
        """A router that knows who was right how often; encoder and seed change nothing."""
        return cls(outcomes.workers, outcomes.shares.mean(axis=0))

    def scores(self, questions: Sequence[str]) -> Array:
        """The same row for every question."""
        return np.tile(self.shares, (len(questions), 1))

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return {"shares": packed(self.shares)}

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> ConstantRouter:
        """The router that was written down."""
        return cls(workers, array_in(document, "shares", (len(workers),)))
