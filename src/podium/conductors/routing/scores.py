"""Expected rewards of a question, by its neighbours and by its words.

    near = NeighbourScores.fit(vectors, rewards)
    near.score(vectors)                                        # a number for each worker
    words = WordScores.fit(TokenCounts.of(questions), rewards)
    words.score(TokenCounts.of(["What is six times seven?"]))

`NeighbourScores` is a ridge regression over softmax nearness to k-means centres and over the
vector, averaged over several sets of centres. `WordScores` is a ridge regression over TF-IDF of
words and word pairs, solved by conjugate gradients over the questions.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import log1p
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import (
    Array,
    decode_array,
    encode_array,
    keep_both_ends,
    normalize_rows,
    round_to_float16,
)

MAX_CENTRES: Final = 400
QUESTIONS_A_CENTRE: Final = 25
SHARPNESSES: Final = (15.0, 30.0)
"""Sharpness of the softmax; the one with the lower leave-one-out error is taken."""

VECTOR_SCALE: Final = 0.5
"""Scale of the vector, so that the regression uses it less than the centres."""

NEIGHBOUR_RIDGE: Final = 3.0
"""Strength of the ridge; chosen among a few on training questions of MMLU's first fold."""

CENTRE_SETS: Final = 5
KMEANS_STEPS: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourScores:
    """Ridge regressions over the nearness to `centres`, a set each.

    `table` has a number for each worker of each centre and direction, `level` one for each worker.
    """

    centres: Array
    table: Array
    level: Array
    sharpness: float

    @classmethod
    def fit(cls, vectors: Array, rewards: Array) -> NeighbourScores:
        """Fit the scores; a worker that was not asked counts with its mean reward."""
        centred = np.nan_to_num(rewards - np.nanmean(rewards, axis=0))
        sets = [round_to_float16(_centres(vectors, seed)) for seed in range(CENTRE_SETS)]
        candidates = {
            sharpness: _regress(_features(vectors, sets[0], sharpness), centred)
            for sharpness in SHARPNESSES
        }
        sharpness = min(candidates, key=lambda value: candidates[value].error)
        rest = [_regress(_features(vectors, centres, sharpness), centred) for centres in sets[1:]]
        tables = [candidates[sharpness], *rest]
        level = np.mean([table.level for table in tables], axis=0)
        return cls(
            np.stack(sets),
            np.stack([table.slopes for table in tables]).astype(np.float32),
            level.astype(np.float32),
            sharpness,
        )

    def score(self, vectors: Array) -> Array:
        """Return each worker's expected reward above its mean."""
        predictions = [
            _features(vectors, centres, self.sharpness) @ table
            for centres, table in zip(self.centres, self.table, strict=True)
        ]
        scores: Array = np.mean(predictions, axis=0) + self.level
        return scores

    def document(self) -> dict[str, Any]:
        return {
            "centres": encode_array(self.centres, "float16"),
            "table": encode_array(self.table),
            "level": encode_array(self.level),
            "sharpness": self.sharpness,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> NeighbourScores:
        return cls(
            decode_array(document["centres"]),
            decode_array(document["table"]),
            decode_array(document["level"]),
            document["sharpness"],
        )


class _Regression(NamedTuple):
    """Slopes, intercepts, and the mean squared leave-one-out error."""

    slopes: Array
    level: Array
    error: float


def _regress(features: Array, targets: Array) -> _Regression:
    mean = features.mean(axis=0)
    centred = (features - mean).astype(np.float64)
    inverse = np.linalg.inv(centred.T @ centred + NEIGHBOUR_RIDGE * np.eye(features.shape[1]))
    slopes = inverse @ (centred.T @ targets)
    leverage = 1 / len(features) + np.einsum("ij,ij->i", centred @ inverse, centred)
    residuals = (targets - centred @ slopes) / (1 - np.minimum(leverage, 0.99))[:, None]
    return _Regression(slopes, -mean @ slopes, float(np.square(residuals).mean()))


def _centres(vectors: Array, seed: int) -> Array:
    count = max(1, min(MAX_CENTRES, len(vectors) // QUESTIONS_A_CENTRE))
    rng = np.random.default_rng(seed)
    centres: Array = vectors[rng.choice(len(vectors), count, replace=False)]
    for _ in range(KMEANS_STEPS):
        nearest = (vectors @ centres.T).argmax(axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors)
        is_used = np.bincount(nearest, minlength=count) > 0
        centres = np.where(is_used[:, None], normalize_rows(sums), centres)
    return centres


def _features(vectors: Array, centres: Array, sharpness: float) -> Array:
    weights = np.exp(sharpness * (vectors @ centres.T - 1))
    return np.hstack([weights / weights.sum(axis=1, keepdims=True), VECTOR_SCALE * vectors])


BUCKETS: Final = 1 << 16
WORD_RIDGE: Final = 10.0
"""Strength of the ridge; of 1, 3, 10, 20 and 30 the best on training questions of MMLU's first
fold."""

MAX_SOLVER_STEPS: Final = 30
RESIDUAL_TOLERANCE: Final = 1e-3
"""Relative residual at which the solver stops early."""

MAX_CHARACTERS: Final = 3072
"""Characters that are read of a text, from both ends, so that a decision takes milliseconds."""

LINE_BEGINS: Final = 80
"""Characters of a line in which its first words are looked for."""

_CAPITAL: Final = re.compile(r"\b[A-Z]\w+")
_TOKEN: Final = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


@dataclass(frozen=True, slots=True, eq=False)
class TokenCounts:
    """Hashed tokens of texts, one text after another, with their counts and each text's start."""

    buckets: NDArray[np.int64]
    counts: Array
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> TokenCounts:
        buckets: list[int] = []
        counts: list[int] = []
        begins = []
        for text in texts:
            begins.append(len(buckets))
            found = Counter(map(_bucket, _tokens(text)))
            buckets += found.keys()
            counts += found.values()
        return cls(
            np.array(buckets, dtype=np.int64),
            np.array(counts, dtype=np.float64),
            np.array(begins, dtype=np.int64),
        )

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> TokenCounts:
        lengths = self.lengths[indices]
        ends = np.cumsum(lengths)
        begins = ends - lengths
        positions = np.arange(int(lengths.sum())) + np.repeat(
            self.begins[indices] - begins, lengths
        )
        return TokenCounts(self.buckets[positions], self.counts[positions], begins)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of buckets of each text, at least 1."""
        return np.diff(self.begins, append=len(self.buckets))

    def __len__(self) -> int:
        return len(self.begins)


@dataclass(frozen=True, slots=True, eq=False)
class WordScores:
    """For each known bucket its inverse document frequency and a number for each worker.

    `unmet` is the inverse document frequency of all other buckets.
    """

    buckets: NDArray[np.int64]
    rarity: Array
    table: Array
    unmet: float

    @classmethod
    def fit(cls, texts: TokenCounts, rewards: Array) -> WordScores:
        """Fit the scores; a worker that was not asked counts with its mean reward."""
        buckets, places = np.unique(texts.buckets, return_inverse=True)
        documents = np.bincount(places)
        rarity: Array = (np.log((1 + len(texts)) / (1 + documents)) + 1).astype(np.float32)
        rows = _Rows.of(texts, places, rarity[places])
        centred = np.nan_to_num(rewards - np.nanmean(rewards, axis=0))
        table = rows.transpose_times(_solve(rows, centred), len(buckets))
        return cls(buckets, rarity, round_to_float16(table), float(np.log1p(len(texts)) + 1))

    def score(self, texts: TokenCounts) -> Array:
        """Return each worker's expected reward above its mean."""
        places = np.minimum(np.searchsorted(self.buckets, texts.buckets), len(self.buckets) - 1)
        is_known = self.buckets[places] == texts.buckets
        rows = _Rows.of(texts, places, np.where(is_known, self.rarity[places], self.unmet))
        return replace(rows, weights=rows.weights * is_known).times(self.table)

    def document(self) -> dict[str, Any]:
        return {
            "buckets": encode_array(self.buckets, "uint16"),
            "rarity": encode_array(self.rarity),
            "table": encode_array(self.table, "float16"),
            "unmet": self.unmet,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> WordScores:
        return cls(
            decode_array(document["buckets"]).astype(np.int64),
            decode_array(document["rarity"]),
            decode_array(document["table"]),
            document["unmet"],
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Texts as sparse rows of length one."""

    columns: NDArray[np.int64]
    weights: Array
    row: NDArray[np.int64]
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, texts: TokenCounts, columns: NDArray[np.int64], rarity: Array) -> _Rows:
        weights = (1 + np.log(texts.counts)) * rarity
        row = np.repeat(np.arange(len(texts)), texts.lengths)
        lengths = np.sqrt(np.bincount(row, weights=np.square(weights), minlength=len(texts)))
        return cls(columns, weights / lengths[row], row, texts.begins)

    def times(self, table: Array) -> Array:
        found: Array = np.add.reduceat(
            table[self.columns] * self.weights[:, None], self.begins, axis=0
        )
        return found

    def transpose_times(self, numbers: Array, width: int) -> Array:
        """Return the transposed rows times a number for each text: a table of `width` rows."""
        return np.stack(
            [
                np.bincount(self.columns, self.weights * item[self.row], minlength=width)
                for item in numbers.T
            ],
            axis=1,
        )


def _solve(rows: _Rows, targets: Array) -> Array:
    """Solve the ridge regression in its dual form by conjugate gradients, all columns at once."""
    width = int(rows.columns.max()) + 1
    solution = np.zeros_like(targets, dtype=np.float64)
    residual = targets.astype(np.float64)
    direction = residual.copy()
    norm = np.square(residual).sum(axis=0)
    tolerance = RESIDUAL_TOLERANCE**2 * norm
    for _ in range(MAX_SOLVER_STEPS):
        if (norm <= tolerance).all():
            break
        product = rows.times(rows.transpose_times(direction, width)) + WORD_RIDGE * direction
        curvature = (direction * product).sum(axis=0)
        step = np.where(curvature > 0, norm / np.where(curvature > 0, curvature, 1), 0.0)
        solution += step * direction
        residual = residual - step * product
        next_norm = np.square(residual).sum(axis=0)
        direction = (
            residual + np.where(norm > 0, next_norm / np.where(norm > 0, norm, 1), 0.0) * direction
        )
        norm = next_norm
    return solution


def _tokens(text: str) -> Iterator[str]:
    """Yield words, word pairs, capitalized words, and beginnings and lengths of lines.

    The first token is the text's length, so that no text is empty.
    """
    yield f"\t{int(3 * log1p(len(text)))}"
    text = keep_both_ends(text, MAX_CHARACTERS)
    words = _TOKEN.findall(text.casefold())
    yield from words
    yield from (f"{one} {other}" for one, other in pairwise(words))
    yield from (f"^{word}" for word in _CAPITAL.findall(text))
    for line in text.splitlines():
        first = _TOKEN.findall(line[:LINE_BEGINS].casefold())
        yield f"\n{' '.join(first[:3])}"
        yield f"\n{' '.join(first[2:3])}"
        yield f"\n{int(2 * log1p(len(line)))}"


@lru_cache(maxsize=200_000)
def _bucket(token: str) -> int:
    return zlib.crc32(token.encode()) % BUCKETS
