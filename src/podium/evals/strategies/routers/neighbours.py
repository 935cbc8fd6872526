"""Nearest neighbours: the worker that was right most often on the questions most like this one.

The plainest router that reads the question, and a hard one to beat: in published comparisons
(RouterBench, Hu et al. 2024; LLMRouterBench) few learned routers do so by much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.errors import ConfigError
from podium.evals.strategies.routers.base import Outcomes
from podium.evals.strategies.routers.encoder import MakeEncoder, read_encoder
from podium.routing.arrays import AGAIN, Array, array_in, packed
from podium.routing.encoders import Encoder, width_of

CANDIDATES: Final = (5, 10, 20, 40, 80)
"""How many neighbours may be looked at; the number that does best in training is taken."""

BLOCK: Final = 512
"""How many questions are held against all others at a time."""


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
        others = max(1, len(outcomes.questions) - 1)
        counts = sorted({min(count, others) for count in CANDIDATES})
        nearest = _nearest(vectors, vectors, counts[-1], own=False)
        count = max(counts, key=lambda count: _reached(nearest[:, :count], outcomes.shares))
        return cls(outcomes.workers, made, vectors, outcomes.shares, count)

    def scores(self, questions: Sequence[str]) -> Array:
        """What workers got right among the neighbours of each question."""
        encoded = self.encoder.encode(questions)
        return _averages(_nearest(encoded, self.vectors, self.count, own=True), self.shares)

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
        encoder = read_encoder(document.get("encoder"))
        vectors = array_in(document, "vectors", (None, width_of(encoder)))
        shares = array_in(document, "shares", (len(vectors), len(workers)))
        count = document.get("count")
        if not isinstance(count, int) or not 1 <= count <= len(vectors):
            raise ConfigError(
                f"expected a count of neighbours from 1 to {len(vectors)}, not {count!r:.40}; "
                f"{AGAIN}"
            )
        return cls(workers, encoder, vectors, shares, count)


def _nearest(vectors: Array, others: Array, count: int, *, own: bool) -> NDArray[np.int64]:
    """The places of the `count` others that each vector is most like, the most alike first. With
    `own` left out, nobody is its own neighbour. In blocks, for the table of all likenesses is as
    large as their number squared."""
    found = []
    for start in range(0, len(vectors), BLOCK):
        likeness = vectors[start : start + BLOCK] @ others.T
        rows = np.arange(len(likeness))
        if not own and len(others) > 1:
            likeness[rows, start + rows] = -np.inf
        places = np.argpartition(-likeness, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(likeness, places, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(places, order, axis=1))
    return np.concatenate(found)


def _averages(nearest: NDArray[np.int64], shares: Array) -> Array:
    """The mean shares of each one's nearest. What everyone gets right on average settles ties, so
    that a question without any right neighbour goes to the best."""
    found: Array = shares[nearest].mean(axis=1) + 1e-3 * shares.mean(axis=0)
    return found


def _reached(nearest: NDArray[np.int64], shares: Array) -> float:
    """How often the worker is right that each question's neighbours suggest."""
    choices = _averages(nearest, shares).argmax(axis=1)
    return float(shares[np.arange(len(shares)), choices].mean())
