"""Encoders: texts as vectors that routers compare.

    encoder = HashedEncoder.fitted(questions)
    vectors = encoder.encode(["What is six times seven?"])

`hashed` counts words and needs no weights; `minilm` is `podium.routing.embedding`, and knows what
words mean. Encoders of somebody's own are `podium.evals.strategies.routers.encoder`.
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
from podium.conductors.routing.neighbours import NeighbourScores
from podium.conductors.routing.words import TokenCounts, WordScores
from podium.core.errors import ConfigError

HASHED: Final = "hashed"
MINILM: Final = "minilm"
SCORING: Final = "scoring"
LOUDNESS: Final = 30.0
"""What opinions are multiplied by."""

BUCKETS: Final = 2048
"""How many counters the words of a text are hashed into."""

MOST_CHARACTERS: Final = 16_384
"""Of a longer text both ends are read, so that no decision takes longer than some milliseconds."""

DIMENSIONS: Final = 128
"""How many directions of those counters are kept."""

_TOKEN: Final = re.compile(r"[^\W\d_]+|\d|[^\w\s]")
_OVERSAMPLED: Final = 16
_PASSES: Final = 4


class Encoder(Protocol):
    """Turns texts into vectors, one row each, of length one."""

    def encode(self, texts: Sequence[str]) -> Array:
        """The texts as rows."""
        ...

    def document(self) -> dict[str, Any]:
        """What it takes to make the same encoder again, as JSON."""
        ...


ReadEncoder = Callable[[object], Encoder]
"""Makes an encoder of what was written down."""


@dataclass(frozen=True, slots=True, eq=False)
class HashedEncoder:
    """Counts of words and of pairs of words, weighted by how rare they are (TF-IDF), and of
    those the directions in which the texts that it was fitted to differ most (latent semantic
    analysis). `weights` has a number for each bucket, `basis` a column for each direction."""

    weights: Array
    basis: Array

    @classmethod
    def fitted(cls, texts: Sequence[str]) -> HashedEncoder:
        """An encoder for texts like these. What stands in every one of them weighs nothing."""
        counts = _counts(texts)
        found = (counts != 0).sum(axis=0)
        weights = np.log((1 + len(texts)) / (1 + found)).astype(np.float32)
        return cls(weights, _directions(normalize_rows(counts * weights), DIMENSIONS))

    def encode(self, texts: Sequence[str]) -> Array:
        """The texts as rows of length one; a text of unknown words is a row of zeros."""
        found: Array = normalize_rows(normalize_rows(_counts(texts) * self.weights) @ self.basis)
        return found

    def document(self) -> dict[str, Any]:
        """The encoder as JSON."""
        return {
            "name": HASHED,
            "weights": encode_array(self.weights),
            "basis": encode_array(self.basis),
        }


def read_encoder(document: object, inner: ReadEncoder | None = None) -> Encoder:
    """The encoder that was written down; `inner` reads one that stands inside another."""
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
    """How many numbers an encoder that was written down makes of a question."""
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
    """How often each bucket is met in each text, dampened: the tenth time says little more than
    the ninth. The sign of a token keeps those that share a bucket apart on average."""
    counts = np.zeros((len(texts), BUCKETS), dtype=np.float32)
    for row, text in enumerate(texts):
        for token in _tokens(text):
            bucket, sign = _place(token)
            counts[row, bucket] += sign
    found: Array = np.sign(counts) * np.log1p(np.abs(counts))
    return found


def _tokens(text: str) -> Iterator[str]:
    words = _TOKEN.findall(keep_both_ends(text, MOST_CHARACTERS).casefold())
    yield from words
    yield from (f"{one} {other}" for one, other in pairwise(words))


@lru_cache(maxsize=200_000)
def _place(token: str) -> tuple[int, float]:
    number = zlib.crc32(token.encode())
    return number % BUCKETS, 1.0 if number >> 31 else -1.0


def _directions(rows: Array, count: int) -> Array:
    """The directions in which the rows are longest, as columns: the right singular vectors, by
    random projection (Halko et al. 2011), which does for tables of any height."""
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
    """Two opinions on what each worker will earn: by the meaning of a text, as `encoder` sees it,
    and by its words. Learned from rewards, unlike the others."""

    encoder: Encoder
    near: NeighbourScores
    words: WordScores

    def encode(self, texts: Sequence[str]) -> Array:
        """The texts as rows: a number for each worker by each opinion."""
        near = self.near.score(self.encoder.encode(texts))
        return joined(near, self.words.score(TokenCounts.of(texts)))

    def document(self) -> dict[str, Any]:
        """The encoder as JSON."""
        return {
            "name": SCORING,
            "encoder": self.encoder.document(),
            "near": self.near.document(),
            "words": self.words.document(),
        }


def averaged(workers: int) -> Array:
    """The head, but for its last row, by which what is expected is the average of both opinions."""
    own = np.eye(workers) / (2 * LOUDNESS)
    return np.vstack([own, own])


def joined(near: Array, words: Array) -> Array:
    """Both opinions side by side, so large that a head which is held back can still heed them."""
    return LOUDNESS * np.hstack([near, words])
