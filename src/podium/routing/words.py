"""What words tell of rewards: a linear model over every word and pair of words of a question.

    scores = WordScores.fitted(questions, rewards)
    scores.score(["What is six times seven?"])        # a number for each worker

Some words say at once who will be right, and no vector of meaning keeps them. Words and pairs are
hashed into buckets, weighted by how rare they are (TF-IDF), and a ridge regression of the rewards
is solved by conjugate gradients over the questions, so that it does not matter how many buckets
there are. Its scores are one of the two opinions that a head reads (`podium.routing.learning`).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log1p
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.routing.arrays import Array, packed, unpacked

BUCKETS: Final = 1 << 16
HELD_BACK: Final = 10.0
"""How strongly the regression is held back; of 1, 3, 10, 20 and 30 the best on training questions
of MMLU's first fold."""

ROUNDS: Final = 30
CLOSE: Final = 1e-3
"""How small what is left to explain must be, of what there was, to be done before that."""

LINE_BEGINS: Final = 80
"""In so many characters of a line its first words are looked for."""

_TOKEN: Final = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


@dataclass(frozen=True, slots=True, eq=False)
class WordScores:
    """`rarity` has a number for each bucket, `table` one for each bucket and worker."""

    rarity: Array
    table: Array

    @classmethod
    def fitted(cls, texts: Sequence[str], rewards: Array) -> WordScores:
        """What comes of these rewards, a row for each text. A worker that was not asked a question
        is taken to have earned there what it earns on the average."""
        found = np.bincount(_counted(texts).buckets, minlength=BUCKETS)
        rarity: Array = (np.log((1 + len(texts)) / (1 + found)) + 1).astype(np.float32)
        rows = _Rows.of(texts, rarity)
        apart = np.nan_to_num(rewards - np.nanmean(rewards, axis=0))
        return cls(rarity, rows.back(_solved(rows, apart)).astype(np.float32))

    def score(self, texts: Sequence[str]) -> Array:
        """By how much each worker is expected to earn more than it does on the average."""
        return _Rows.of(texts, self.rarity).onto(self.table)

    def document(self) -> dict[str, Any]:
        """The scores as JSON."""
        return {"rarity": packed(self.rarity), "table": packed(self.table)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> WordScores:
        """The scores that were written down."""
        return cls(unpacked(document.get("rarity")), unpacked(document.get("table")))


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Texts as a sparse matrix: the buckets of each one after the other, how often each is met, and
    where each text begins."""

    buckets: NDArray[np.int64]
    counts: Array
    begins: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Texts as sparse rows of length one."""

    buckets: NDArray[np.int64]
    weights: Array
    begins: NDArray[np.int64]
    row: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str], rarity: Array) -> _Rows:
        counted = _counted(texts)
        weights = (1 + np.log(counted.counts)) * rarity[counted.buckets]
        row = np.repeat(np.arange(len(texts)), np.diff(counted.begins, append=len(counted.buckets)))
        lengths = np.sqrt(np.bincount(row, weights=np.square(weights), minlength=len(texts)))
        return cls(counted.buckets, weights / lengths[row], counted.begins, row)

    def onto(self, table: Array) -> Array:
        """The rows times a table of buckets."""
        found: Array = np.add.reduceat(
            table[self.buckets] * self.weights[:, None], self.begins, axis=0
        )
        return found

    def back(self, columns: Array) -> Array:
        """A column for each text times the rows: a table of buckets."""
        return np.stack(
            [
                np.bincount(
                    self.buckets, weights=self.weights * column[self.row], minlength=BUCKETS
                )
                for column in columns.T
            ],
            axis=1,
        )


def _solved(rows: _Rows, wanted: Array) -> Array:
    """The ridge regression in its dual form, by conjugate gradients, all columns at once."""
    found = np.zeros_like(wanted, dtype=np.float64)
    left = wanted.astype(np.float64)
    towards = left.copy()
    size = np.square(left).sum(axis=0)
    enough = CLOSE**2 * size
    for _ in range(ROUNDS):
        if (size <= enough).all():
            break
        image = rows.onto(rows.back(towards)) + HELD_BACK * towards
        along = (towards * image).sum(axis=0)
        length = np.where(along > 0, size / np.where(along > 0, along, 1), 0.0)
        found += length * towards
        left = left - length * image
        rest = np.square(left).sum(axis=0)
        towards = left + np.where(size > 0, rest / np.where(size > 0, size, 1), 0.0) * towards
        size = rest
    return found


def _counted(texts: Sequence[str]) -> _Counted:
    buckets: list[int] = []
    counts: list[int] = []
    begins = []
    for text in texts:
        begins.append(len(buckets))
        met = Counter(map(_bucket, _tokens(text)))
        buckets += met.keys()
        counts += met.values()
    return _Counted(
        np.array(buckets, dtype=np.int64),
        np.array(counts, dtype=np.float64),
        np.array(begins, dtype=np.int64),
    )


def _tokens(text: str) -> Iterator[str]:
    """Words and pairs of words; how each line begins and how long it is, for the layout of a
    question tells of its kind; and how long all of it is, so that no text is empty."""
    words = _TOKEN.findall(text.casefold())
    yield from words
    yield from (f"{one} {other}" for one, other in pairwise(words))
    for line in text.splitlines():
        first = _TOKEN.findall(line[:LINE_BEGINS].casefold())
        yield f"\n{' '.join(first[:3])}"
        yield f"\n{' '.join(first[2:3])}"
        yield f"\n{int(2 * log1p(len(line)))}"
    yield f"\t{int(3 * log1p(len(text)))}"


@lru_cache(maxsize=200_000)
def _bucket(token: str) -> int:
    return zlib.crc32(token.encode("utf-8", "replace")) % BUCKETS
