"""Nearest neighbours: the worker that was right most often on the questions most like this one.

The plainest router that reads the question, and a hard one to beat: in published comparisons
(RouterBench, Hu et al. 2024; LLMRouterBench) few learned routers do so by much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from podium.errors import ConfigError
from podium.evals.routers.arrays import Array, packed, unpacked
from podium.evals.routers.base import Outcomes
from podium.evals.routers.encoder import Encoder, MakeEncoder, read_encoder

CANDIDATES: Final = (5, 10, 20, 40, 80)
"""How many neighbours may be looked at; the number that does best in training is taken."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourRouter:
    """Averages what workers got right on the `count` nearest questions of the training split,
    by the cosine of their encodings. Departures from RouterBench's: the number of neighbours is
    chosen by leaving each training question out in turn, money is not weighed, and the encoder
    is this package's own unless another is named."""

    workers: tuple[str, ...]
    encoder: Encoder
    vectors: Array
    shares: Array
    count: int

    @classmethod
    def fitted(cls, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> NeighbourRouter:
        """The training questions themselves, and the best number of neighbours; the seed
        changes nothing."""
        made = encoder(outcomes.questions)
        vectors = made.encode(outcomes.questions)
        likeness = vectors @ vectors.T
        np.fill_diagonal(likeness, -np.inf)  # nobody may look at its own outcome
        others = max(1, len(outcomes.questions) - 1)
        counts = sorted({min(count, others) for count in CANDIDATES})
        count = max(counts, key=lambda count: _reached(likeness, outcomes.shares, count))
        return cls(outcomes.workers, made, vectors, outcomes.shares, count)

    def scores(self, questions: Sequence[str]) -> Array:
        """What workers got right among the neighbours of each question."""
        likeness = self.encoder.encode(questions) @ self.vectors.T
        return _averages(likeness, self.shares, self.count)

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return {
            "encoder": self.encoder.document(),
            "vectors": packed(self.vectors),
            "shares": packed(self.shares),
            "count": self.count,
        }

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> NeighbourRouter:
        """The router that was written down."""
        count = document.get("count")
        if not isinstance(count, int) or count < 1:
            raise ConfigError(f"expected a count of neighbours, not {count!r}; fit it again")
        return cls(
            workers,
            read_encoder(document.get("encoder")),
            unpacked(document.get("vectors")),
            unpacked(document.get("shares")),
            count,
        )


def _averages(likeness: Array, shares: Array, count: int) -> Array:
    """The mean shares of the `count` most alike; of equals, the first. What everyone gets right
    on average settles ties, so that a question without any right neighbour goes to the best."""
    nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :count]
    found: Array = shares[nearest].mean(axis=1) + 1e-3 * shares.mean(axis=0)
    return found


def _reached(likeness: Array, shares: Array, count: int) -> float:
    """How often the worker is right that each question's neighbours suggest."""
    choices = _averages(likeness, shares, count).argmax(axis=1)
    return float(shares[np.arange(len(shares)), choices].mean())
