"""Smoothie: who is trusted is found without a label, from how replies differ from each other
(Guha et al., NeurIPS 2024, arXiv:2412.04692).

A worker whose replies are near to everybody else's is taken to be near to the truth. Global is
one trust for all questions; local is one for each question, from its nearest in training.

Where it departs from the original:

- Trust is estimated on the training split, the original's train-time regime, and one worker is
  asked in the end. The Conductor's paper estimates it on the very questions that are answered,
  for which every worker has to be asked every question.
- Local looks at the twenty nearest questions; the original also at the question's own replies
  alone.
- Replies and questions are encoded by this package's own encoder (all-mpnet-base-v2 and others in
  the original), or by another that is named. Replies are compared as they are, with no answer
  taken out of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from podium.conductors.routing.arrays import AGAIN, Array, encode_array, read_array
from podium.conductors.routing.encoders import Encoder, width_of
from podium.core.errors import ConfigError, UsageError
from podium.evals.strategies.routers.base import Outcomes
from podium.evals.strategies.routers.encoder import MakeEncoder, read_encoder

NEAREST: Final = 20
"""How many questions the local form looks at."""

LEAST_WORKERS: Final = 3
"""Two replies differ from each other, and nobody can say whose fault that is."""

SMALLEST: Final = 1e-4
"""Estimates of a distance can come out below zero, and trust is what one divides by it."""


@dataclass(frozen=True, slots=True, eq=False)
class SmoothieGlobal:
    """One trust for each worker, whatever the question."""

    workers: tuple[str, ...]
    trust: Array

    @classmethod
    def fitted(cls, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> SmoothieGlobal:
        """Trust from the replies to all questions; what was right is not looked at."""
        distances = _distances(outcomes, encoder)
        return cls(outcomes.workers, _trust(distances.mean(axis=0)))

    def scores(self, questions: Sequence[str]) -> Array:
        """The same row for every question."""
        return np.tile(self.trust, (len(questions), 1))

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return {"trust": encode_array(self.trust)}

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> SmoothieGlobal:
        """The router that was written down."""
        return cls(workers, read_array(document, "trust", (len(workers),)))


@dataclass(frozen=True, slots=True, eq=False)
class SmoothieLocal:
    """Trust from the replies to the questions most like this one. `distances` has, for each
    question of the training split, how far every reply is from every other."""

    workers: tuple[str, ...]
    encoder: Encoder
    vectors: Array
    distances: Array

    @classmethod
    def fitted(cls, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> SmoothieLocal:
        """The training questions and how far replies to them are apart; what was right is not
        looked at."""
        made = encoder(outcomes.questions)
        vectors = made.encode(outcomes.questions)
        return cls(outcomes.workers, made, vectors, _distances(outcomes, encoder))

    def scores(self, questions: Sequence[str]) -> Array:
        """The trust in each worker near each question."""
        likeness = self.encoder.encode(questions) @ self.vectors.T
        nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :NEAREST]
        return np.stack([_trust(self.distances[places].mean(axis=0)) for places in nearest])

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return {
            "encoder": self.encoder.document(),
            "vectors": encode_array(self.vectors),
            "distances": encode_array(self.distances),
        }

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> SmoothieLocal:
        """The router that was written down."""
        if len(workers) < LEAST_WORKERS:
            raise ConfigError(
                f"expected at least {LEAST_WORKERS} workers whose replies were compared, not "
                f"{len(workers)}; {AGAIN}"
            )
        encoder = read_encoder(document.get("encoder"))
        vectors = read_array(document, "vectors", (None, width_of(encoder)))
        distances = read_array(document, "distances", (len(vectors), len(workers), len(workers)))
        return cls(workers, encoder, vectors, distances)


def _distances(outcomes: Outcomes, encoder: MakeEncoder) -> Array:
    """For each question, the squared distance of every worker's reply from every other's."""
    if outcomes.replies is None or len(outcomes.workers) < LEAST_WORKERS:
        raise UsageError(
            f"Smoothie compares the words of at least {LEAST_WORKERS} workers, and here are "
            f"{'those' if outcomes.replies else 'no words'} of {len(outcomes.workers)}; use "
            f"another strategy, or a larger pool"
        )
    texts = [reply for row in outcomes.replies for reply in row]
    encoded = encoder(texts).encode(texts)
    rows = encoded.reshape(len(outcomes.questions), len(outcomes.workers), -1)
    apart = rows[:, :, None, :] - rows[:, None, :, :]
    found: Array = (apart**2).sum(axis=3)
    return found


def _trust(distances: Array) -> Array:
    """One divided by each worker's distance from the truth, all of them together one.

    Where errors are independent, the distance of i from the truth is half of its distances from
    j and from k less that of j from k; it is averaged over all pairs of others.
    """
    count = len(distances)
    errors = [
        np.mean(
            [
                (distances[one, j] + distances[one, k] - distances[j, k]) / 2
                for j, k in combinations([other for other in range(count) if other != one], 2)
            ]
        )
        for one in range(count)
    ]
    trust = 1 / np.maximum(np.array(errors, dtype=np.float32), SMALLEST)
    found: Array = trust / trust.sum()
    return found
