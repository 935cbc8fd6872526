"""Smoothie: trust in workers without labels, from how their replies differ (Guha et al., NeurIPS
2024, arXiv:2412.04692).

A worker whose replies are near to the others' is taken to be near to the truth. Global is one
trust for all questions; local is one per question, from its nearest training questions.

Departures from the original:

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
from podium.evals.strategies.routers import EncoderFactory, WorkerOutcomes, read_encoder

NEAREST: Final = 20
"""Neighbours that the local form uses."""

LEAST_WORKERS: Final = 3
"""With two replies, it is unknown which one is off."""

SMALLEST: Final = 1e-4
"""Estimated distances can be negative, and trust divides by them."""


@dataclass(frozen=True, slots=True, eq=False)
class SmoothieGlobal:
    """One trust per worker for all questions."""

    workers: tuple[str, ...]
    trust: Array

    @classmethod
    def fit(cls, outcomes: WorkerOutcomes, encoder: EncoderFactory, seed: int) -> SmoothieGlobal:
        """Estimate trust from the replies to all questions, without labels."""
        distances = _distances(outcomes, encoder)
        return cls(outcomes.workers, _trust(distances.mean(axis=0)))

    def scores(self, questions: Sequence[str]) -> Array:
        """Return the same row for every question."""
        return np.tile(self.trust, (len(questions), 1))

    def document(self) -> dict[str, Any]:
        """Return the router as JSON."""
        return {"trust": encode_array(self.trust)}

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> SmoothieGlobal:
        """Read the router from JSON."""
        return cls(workers, read_array(document, "trust", (len(workers),)))


@dataclass(frozen=True, slots=True, eq=False)
class SmoothieLocal:
    """Trust from the replies to the most similar training questions."""

    workers: tuple[str, ...]
    encoder: Encoder
    vectors: Array
    distances: Array

    @classmethod
    def fit(cls, outcomes: WorkerOutcomes, encoder: EncoderFactory, seed: int) -> SmoothieLocal:
        """Keep the training questions and the distances of replies to them, without labels."""
        made = encoder(outcomes.questions)
        vectors = made.encode(outcomes.questions)
        return cls(outcomes.workers, made, vectors, _distances(outcomes, encoder))

    def scores(self, questions: Sequence[str]) -> Array:
        """Return the trust in each worker near each question."""
        likeness = self.encoder.encode(questions) @ self.vectors.T
        nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :NEAREST]
        return np.stack([_trust(self.distances[rows].mean(axis=0)) for rows in nearest])

    def document(self) -> dict[str, Any]:
        """Return the router as JSON."""
        return {
            "encoder": self.encoder.document(),
            "vectors": encode_array(self.vectors),
            "distances": encode_array(self.distances),
        }

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> SmoothieLocal:
        """Read the router from JSON."""
        if len(workers) < LEAST_WORKERS:
            raise ConfigError(
                f"expected at least {LEAST_WORKERS} workers whose replies were compared, not "
                f"{len(workers)}; {AGAIN}"
            )
        encoder = read_encoder(document.get("encoder"))
        vectors = read_array(document, "vectors", (None, width_of(encoder)))
        distances = read_array(document, "distances", (len(vectors), len(workers), len(workers)))
        return cls(workers, encoder, vectors, distances)


def _distances(outcomes: WorkerOutcomes, encoder: EncoderFactory) -> Array:
    """Return the squared distances between workers' replies, for each question."""
    if outcomes.replies is None or len(outcomes.workers) < LEAST_WORKERS:
        raise UsageError(
            f"Smoothie compares the replies of at least {LEAST_WORKERS} workers, and there are "
            f"{'replies' if outcomes.replies else 'no replies'} of {len(outcomes.workers)}; use "
            f"another strategy, or a larger pool"
        )
    texts = [reply for row in outcomes.replies for reply in row]
    encoded = encoder(texts).encode(texts)
    rows = encoded.reshape(len(outcomes.questions), len(outcomes.workers), -1)
    apart = rows[:, :, None, :] - rows[:, None, :, :]
    found: Array = (apart**2).sum(axis=3)
    return found


def _trust(distances: Array) -> Array:
    """Return the inverse of each worker's distance from the truth, normalised.

    If errors are independent, the distance of i from the truth is half of d(i,j) + d(i,k) -
    d(j,k), averaged over all pairs of others.
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
