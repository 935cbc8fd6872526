"""RouterDC: a router trained by dual contrastive learning (Chen et al., NeurIPS 2024,
arXiv:2409.19886).

Written from the paper's description. Departures from the original:

- The encoder is not a language model that is fine-tuned along (mDeBERTa-v3-base, 768 wide), but
  a fixed encoding of the question (or any other named one) and a learned linear
  map. So the rate of learning is larger, 0.003 instead of 0.00005; there are as many steps.
- A fifth of the training split is held back, and the step that routes it best is kept, as the
  Conductor's paper did by the loss; the original takes the best on each test set.
- Clusters are found by k-means over the encodings, as the original's notebook does, as many as
  there are tens of questions, five at the most.
- Of workers that are as often right on a question, the one that is better on the whole comes
  first; the original leaves it to the order of the workers.
- Shares come from as many answers as the evaluation has for a question; the original averages
  ten, the Conductor's paper five.

The rest is the original's: a vector for each worker drawn at a deviation of 0.78, cosine scores,
the three best and three worst workers of each question (who is right more often than not is no
bad example, who is never right no good one), one question of the same cluster against three of
others, both losses weighted alike, temperature 1, AdamW, batches of 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import (
    Array,
    encode_array,
    normalize_rows,
    normalize_seed,
    read_array,
)
from podium.conductors.routing.encoders import Encoder, width_of
from podium.evals.strategies.routers import EncoderFactory, WorkerOutcomes, read_encoder
from podium_lab.routers.adamw import AdamW

WIDTH: Final = 64
"""The length of the vectors of questions and workers."""

STEPS: Final = 1000
BATCH: Final = 16
RATE: Final = 0.003
DEVIATION: Final = 0.78
BEST: Final = 3
WORST: Final = 3
OTHERS: Final = 3
"""Questions of other clusters per question in the contrast."""

RIGHT_ENOUGH: Final = 0.5
"""A worker that is right more often is no negative example."""

HELD_BACK: Final = 0.2
"""The share of the training split that selects the best step."""

EVALUATE_EVERY: Final = 20
MOST_CLUSTERS: Final = 5
SMALL: Final = 1e-8
"""Avoids division by a vector of length zero."""


@dataclass(frozen=True, slots=True, eq=False)
class RouterDC:
    """Prefers the worker whose key is nearest to the question's projection."""

    workers: tuple[str, ...]
    encoder: Encoder
    projection: Array
    keys: Array

    @classmethod
    def fit(cls, outcomes: WorkerOutcomes, encoder: EncoderFactory, seed: int) -> RouterDC:
        """Fit the router; keep the step that routes the held-out questions best."""
        rng = np.random.default_rng(normalize_seed(seed))
        made = encoder(outcomes.questions)
        vectors = made.encode(outcomes.questions)
        order = rng.permutation(len(vectors))
        held = order[: int(len(order) * HELD_BACK)]
        trained = order[len(held) :]
        training = _Training(vectors[trained], outcomes.shares[trained], rng)
        best, kept = -1.0, training.state
        for step in range(STEPS + 1):
            if step % EVALUATE_EVERY == 0:
                accuracy = _routed_accuracy(vectors[held], outcomes.shares[held], *training.state)
                if accuracy >= best:  # of several, the one that was trained longest
                    best, kept = accuracy, training.state
            if step < STEPS:
                training.step()
        return cls(outcomes.workers, made, *kept)

    def scores(self, questions: Sequence[str]) -> Array:
        """Return the cosine of each question with each worker."""
        return _cosines(self.encoder.encode(questions), self.projection, self.keys)

    def document(self) -> dict[str, Any]:
        """Return the router as JSON."""
        return {
            "encoder": self.encoder.document(),
            "projection": encode_array(self.projection),
            "keys": encode_array(self.keys),
        }

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> RouterDC:
        """Read the router from JSON."""
        encoder = read_encoder(document.get("encoder"))
        projection = read_array(document, "projection", (width_of(encoder), None))
        keys = read_array(document, "keys", (len(workers), projection.shape[1]))
        return cls(workers, encoder, projection, keys)


class _Training:
    """The two matrices in training."""

    def __init__(self, vectors: Array, shares: Array, rng: np.random.Generator) -> None:
        self._vectors = vectors
        self._rng = rng
        wide = vectors.shape[1]
        self._projection = rng.normal(0, wide**-0.5, (wide, WIDTH)).astype(np.float32)
        self._keys = rng.normal(0, DEVIATION, (shares.shape[1], WIDTH)).astype(np.float32)
        self._optimiser = AdamW(RATE, decay=0.01)
        overall = shares.mean(axis=0)
        self._contrasts = [_contrasts(row, overall) for row in shares]
        self._clusters = _clusters(vectors, rng)
        numbers = range(int(self._clusters.max()) + 1)
        self._inside = [np.flatnonzero(self._clusters == number) for number in numbers]
        self._outside = [np.flatnonzero(self._clusters != number) for number in numbers]

    @property
    def state(self) -> tuple[Array, Array]:
        return self._projection.copy(), self._keys.copy()

    def step(self) -> None:
        """Update the matrices by one batch."""
        size = min(BATCH, len(self._vectors))
        batch = self._rng.choice(len(self._vectors), size, replace=False)
        gradients = [self._of_workers(batch), self._of_questions(batch)]
        self._optimiser.update(
            [self._projection, self._keys],
            [sum(parts) for parts in zip(*gradients, strict=True)],
        )

    def _of_workers(self, batch: NDArray[np.int64]) -> tuple[Array, Array]:
        """Contrast good workers of a question with bad ones; return both gradients."""
        hidden = self._vectors[batch] @ self._projection
        cosines, pulled = _cosine_matrix(hidden, self._keys)
        slopes = np.zeros_like(cosines)
        for row, position in enumerate(batch):
            good, bad = self._contrasts[position]
            for one in good:
                contrast = [one, *bad]
                slopes[row, contrast] += _softmax(cosines[row, contrast])
                slopes[row, one] -= 1
        to_hidden, to_keys = pulled(slopes / len(batch))
        return self._vectors[batch].T @ to_hidden, to_keys

    def _of_questions(self, batch: NDArray[np.int64]) -> tuple[Array, Array]:
        """Contrast a question of the same cluster with some of others; return both gradients.

        The first of a row is the question, the second is like it, and the rest are not.
        """
        drawn = [row for position in batch if (row := self._companions(int(position))) is not None]
        if not drawn:
            return np.zeros_like(self._projection), np.zeros_like(self._keys)
        vectors = self._vectors[np.array(drawn).ravel()]
        cosines, pulled = _cosine_matrix(*[vectors @ self._projection] * 2)
        slopes = np.zeros_like(cosines)
        size = len(drawn[0])
        for first in range(0, len(vectors), size):
            others = slice(first + 1, first + size)
            slopes[first, others] = _softmax(cosines[first, others])
            slopes[first, first + 1] -= 1
        gradient = vectors.T @ sum(pulled(slopes / len(batch)))
        return gradient, np.zeros_like(self._keys)

    def _companions(self, position: int) -> list[int] | None:
        """Return the question, one of its cluster and three of others; None if there are fewer."""
        same, other = (
            self._inside[self._clusters[position]],
            self._outside[self._clusters[position]],
        )
        if len(same) < 2 or len(other) < OTHERS:
            return None
        alike = position
        while alike == position:
            alike = int(self._rng.choice(same))
        return [position, alike, *map(int, self._rng.choice(other, OTHERS, replace=False))]


def _contrasts(shares: Array, overall: Array) -> tuple[list[int], list[int]]:
    """Return the positive and the negative workers of a question."""
    order = [int(position) for position in np.lexsort((-overall, -shares))]
    good = [position for position in order[:BEST] if shares[position] > 0]
    bad = [position for position in order[-WORST:] if shares[position] <= RIGHT_ENOUGH]
    return good, [position for position in bad if position not in good]


def _cosine_matrix(one: Array, other: Array) -> tuple[Array, Any]:
    """Return the cosines of all rows with all rows, and their backward function."""
    lengths = [np.linalg.norm(rows, axis=1, keepdims=True) + SMALL for rows in (one, other)]
    units = [rows / length for rows, length in zip((one, other), lengths, strict=True)]
    cosines = units[0] @ units[1].T

    def pulled(slopes: Array) -> tuple[Array, Array]:
        along = slopes * cosines
        to_one = (slopes @ units[1] - along.sum(axis=1, keepdims=True) * units[0]) / lengths[0]
        to_other = (slopes.T @ units[0] - along.sum(axis=0)[:, None] * units[1]) / lengths[1]
        return to_one, to_other

    return cosines, pulled


def _cosines(vectors: Array, projection: Array, keys: Array) -> Array:
    found: Array = normalize_rows(vectors @ projection) @ normalize_rows(keys).T
    return found


def _routed_accuracy(vectors: Array, shares: Array, projection: Array, keys: Array) -> float:
    """Return the accuracy of the workers that the questions are routed to."""
    if not len(vectors):
        return 0.0
    choices = _cosines(vectors, projection, keys).argmax(axis=1)
    return float(shares[np.arange(len(shares)), choices].mean())


def _softmax(numbers: Array) -> Array:
    raised = np.exp(numbers - numbers.max(axis=-1, keepdims=True))
    found: Array = raised / raised.sum(axis=-1, keepdims=True)
    return found


def _clusters(vectors: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the k-means cluster of each vector."""
    count = max(1, min(MOST_CLUSTERS, len(vectors) // 10))
    centres = vectors[rng.choice(len(vectors), count, replace=False)]
    found = np.zeros(len(vectors), dtype=np.int64)
    for _ in range(20):
        found = (vectors @ normalize_rows(centres).T).argmax(axis=1)
        centres = np.stack(
            [
                vectors[found == cluster].mean(axis=0) if (found == cluster).any() else centre
                for cluster, centre in enumerate(centres)
            ]
        )
    return found
