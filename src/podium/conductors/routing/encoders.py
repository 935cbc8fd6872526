"""Encoders: texts as vectors that routers compare.

    encoder = HashedEncoder.fit(questions)
    vectors = encoder.encode(["What is six times seven?"])

`hashed` counts words and needs no weights; `minilm` is a sentence embedding (`embedding`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np

from podium.conductors.routing.arrays import (
    AGAIN,
    Array,
    encode_array,
    keep_both_ends,
    normalize_rows,
    read_array,
)
from podium.conductors.routing.embedding import Embedder
from podium.conductors.routing.scores import NeighbourScores, TokenCounts, WordScores
from podium.core.errors import ConfigError

HASHED: Final = "hashed"
MINILM: Final = "minilm"
SCORING: Final = "scoring"
SCORE_SCALE: Final = 30.0
"""Scale of the scores, large enough for a strongly regularized head to use them."""

BUCKETS: Final = 2048
"""Number of counters that words are hashed into."""

MOST_CHARACTERS: Final = 16_384
"""Characters that are read of a text, from both ends, so that a decision takes milliseconds."""

DIMENSIONS: Final = 128
"""Number of directions that are kept."""

_TOKEN: Final = re.compile(r"[^\W\d_]+|\d|[^\w\s]")
_OVERSAMPLED: Final = 16
_PASSES: Final = 4


class Encoder(Protocol):
    """Turns texts into vectors of length one."""

    def encode(self, texts: Sequence[str]) -> Array:
        """Encode the texts as rows."""
        ...

    def document(self) -> dict[str, Any]:
        """Return the encoder as JSON."""
        ...


ReadEncoder = Callable[[object], Encoder]
"""Reads an encoder from JSON."""


@dataclass(frozen=True, slots=True, eq=False)
class HashedEncoder:
    """TF-IDF over hashed words and word pairs, reduced by latent semantic analysis.

    `weights` has a number for each bucket, `basis` a column for each direction.
    """

    weights: Array
    basis: Array

    @classmethod
    def fit(cls, texts: Sequence[str]) -> HashedEncoder:
        """Fit an encoder to the texts; what is in every text weighs nothing."""
        counts = _counts(texts)
        found = (counts != 0).sum(axis=0)
        weights = np.log((1 + len(texts)) / (1 + found)).astype(np.float32)
        return cls(weights, _directions(normalize_rows(counts * weights), DIMENSIONS))

    def encode(self, texts: Sequence[str]) -> Array:
        """Encode the texts as rows of length one; a text of unknown words is a row of zeros."""
        found: Array = normalize_rows(normalize_rows(_counts(texts) * self.weights) @ self.basis)
        return found

    def document(self) -> dict[str, Any]:
        """Return the encoder as JSON."""
        return {
            "name": HASHED,
            "weights": encode_array(self.weights),
            "basis": encode_array(self.basis),
        }


def read_encoder(document: object, inner: ReadEncoder | None = None) -> Encoder:
    """Read an encoder from JSON; `inner` reads one that is nested in another."""
    if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
        raise ConfigError("expected an encoder with a name; " + AGAIN)
    name = document["name"]
    if name == HASHED:
        return HashedEncoder(
            read_array(document, "weights", (BUCKETS,)),
            read_array(document, "basis", (BUCKETS, None)),
        )
    if name == MINILM:
        return Embedder.read(document)
    if name == SCORING:
        within, near, words = (_part(document, part) for part in ("encoder", "near", "words"))
        if within.get("name") == SCORING:
            raise ConfigError("its opinions are made over opinions; " + AGAIN)
        return ScoringEncoder(
            (inner or read_encoder)(within), NeighbourScores.read(near), WordScores.read(words)
        )
    raise ConfigError(f"the encoder {name!r:.40} is none that Podium knows; {AGAIN}")


def width_of(encoder: Encoder) -> int:
    """Return the length of an encoder's vectors; `ConfigError` if it cannot encode."""
    try:
        with np.errstate(all="ignore"):  # what is then no number is refused
            rows = encoder.encode(["?"])
        _, width = rows.shape
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"its encoder cannot read a question ({type(error).__name__}: {error}); {AGAIN}"
        ) from error
    if not np.isfinite(rows).all():
        raise ConfigError("its encoder makes what is no number of a question; " + AGAIN)
    return int(width)


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = document.get(name)
    if not isinstance(part, Mapping):
        raise ConfigError(f"expected an object in {name!r}, not {type(part).__name__}; {AGAIN}")
    return part


def _counts(texts: Sequence[str]) -> Array:
    """Count the buckets of each text, as logarithms.

    The sign of a token keeps those that share a bucket apart on average.
    """
    counts = np.zeros((len(texts), BUCKETS), dtype=np.float32)
    for row, text in enumerate(texts):
        for token in _tokens(text):
            bucket, sign = _position(token)
            counts[row, bucket] += sign
    found: Array = np.sign(counts) * np.log1p(np.abs(counts))
    return found


def _tokens(text: str) -> Iterator[str]:
    words = _TOKEN.findall(keep_both_ends(text, MOST_CHARACTERS).casefold())
    yield from words
    yield from (f"{one} {other}" for one, other in pairwise(words))


@lru_cache(maxsize=200_000)
def _position(token: str) -> tuple[int, float]:
    number = zlib.crc32(token.encode())
    return number % BUCKETS, 1.0 if number >> 31 else -1.0


def _directions(rows: Array, count: int) -> Array:
    """Return the right singular vectors as columns, by random projection (Halko et al. 2011)."""
    count = min(count, *rows.shape)
    rng = np.random.default_rng(0)
    sketch = rng.standard_normal((rows.shape[1], min(count + _OVERSAMPLED, *rows.shape)))
    sketch = sketch.astype(np.float32)
    basis, _ = np.linalg.qr(rows @ sketch)
    for _ in range(_PASSES):
        basis, _ = np.linalg.qr(rows @ (rows.T @ basis))
    _, _, right = np.linalg.svd(basis.T @ rows, full_matrices=False)
    found: Array = np.ascontiguousarray(right[:count].T, dtype=np.float32)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ScoringEncoder:
    """Two scores for each worker, learned from rewards: by meaning and by words."""

    encoder: Encoder
    near: NeighbourScores
    words: WordScores

    def encode(self, texts: Sequence[str]) -> Array:
        """Encode the texts as rows of both scores for each worker."""
        near = self.near.score(self.encoder.encode(texts))
        return join_scores(near, self.words.score(TokenCounts.of(texts)))

    def document(self) -> dict[str, Any]:
        """Return the encoder as JSON."""
        return {
            "name": SCORING,
            "encoder": self.encoder.document(),
            "near": self.near.document(),
            "words": self.words.document(),
        }


def average_head(workers: int) -> Array:
    """Return the head, without its last row, that averages both scores."""
    own = np.eye(workers) / (2 * SCORE_SCALE)
    return np.vstack([own, own])


def join_scores(near: Array, words: Array) -> Array:
    """Put both scores side by side, scaled."""
    return SCORE_SCALE * np.hstack([near, words])
