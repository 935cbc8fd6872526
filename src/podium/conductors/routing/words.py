"""What words tell of rewards: a linear model over every word and pair of words of a question.

    scores = WordScores.fitted(Counted.of(questions), rewards)
    scores.score(Counted.of(["What is six times seven?"]))     # a number for each worker

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
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import log1p
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import (
    AGAIN,
    Array,
    encode_array,
    keep_both_ends,
    read_array,
    read_number,
    round_to_float16,
)
from podium.core.errors import ConfigError

BUCKETS: Final = 1 << 16
HELD_BACK: Final = 10.0
"""How strongly the regression is held back; of 1, 3, 10, 20 and 30 the best on training questions
of MMLU's first fold."""

ROUNDS: Final = 30
CLOSE: Final = 1e-3
"""How small what is left to explain must be, of what there was, to be done before that."""

MOST_CHARACTERS: Final = 3072
"""Of a longer text both ends are read, so that no decision takes longer than some milliseconds."""

LINE_BEGINS: Final = 80
"""In so many characters of a line its first words are looked for."""

_CAPITAL: Final = re.compile(r"\b[A-Z]\w+")
_TOKEN: Final = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")


@dataclass(frozen=True, slots=True, eq=False)
class TokenCounts:
    """Texts as the buckets of their words, those of one text after those of another: how often each
    is met in its text, and where each text begins. Counted once, whatever is then made of them."""

    buckets: NDArray[np.int64]
    counts: Array
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> TokenCounts:
        """These texts."""
        buckets: list[int] = []
        counts: list[int] = []
        begins = []
        for text in texts:
            begins.append(len(buckets))
            met = Counter(map(_bucket, _tokens(text)))
            buckets += met.keys()
            counts += met.values()
        return cls(
            np.array(buckets, dtype=np.int64),
            np.array(counts, dtype=np.float64),
            np.array(begins, dtype=np.int64),
        )

    def some(self, places: Sequence[int] | NDArray[np.int64]) -> TokenCounts:
        """The same for some of the texts."""
        lengths = self.lengths[places]
        ends = np.cumsum(lengths)
        begins = ends - lengths
        within = np.arange(int(lengths.sum())) + np.repeat(self.begins[places] - begins, lengths)
        return TokenCounts(self.buckets[within], self.counts[within], begins)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many buckets each text has, which is never none."""
        return np.diff(self.begins, append=len(self.buckets))

    def __len__(self) -> int:
        return len(self.begins)


@dataclass(frozen=True, slots=True, eq=False)
class WordScores:
    """Of each bucket that was met in training, in their order, how rare it was and a number for
    each worker; `unmet` is how rare all others are."""

    buckets: NDArray[np.int64]
    rarity: Array
    table: Array
    unmet: float

    @classmethod
    def fitted(cls, texts: TokenCounts, rewards: Array) -> WordScores:
        """What comes of these rewards, a row for each text. A worker that was not asked a question
        is taken to have earned there what it earns on the average."""
        buckets, places = np.unique(texts.buckets, return_inverse=True)
        found = np.bincount(places)
        rarity: Array = (np.log((1 + len(texts)) / (1 + found)) + 1).astype(np.float32)
        rows = _Rows.of(texts, places, rarity[places])
        apart = np.nan_to_num(rewards - np.nanmean(rewards, axis=0))
        table = rows.back(_solved(rows, apart), len(buckets))
        return cls(buckets, rarity, round_to_float16(table), float(np.log1p(len(texts)) + 1))

    def score(self, texts: TokenCounts) -> Array:
        """By how much each worker is expected to earn more than it does on the average."""
        places = np.minimum(np.searchsorted(self.buckets, texts.buckets), len(self.buckets) - 1)
        is_met = self.buckets[places] == texts.buckets
        rows = _Rows.of(texts, places, np.where(is_met, self.rarity[places], self.unmet))
        return replace(rows, weights=rows.weights * is_met).onto(self.table)

    def document(self) -> dict[str, Any]:
        """The scores as JSON."""
        return {
            "buckets": encode_array(self.buckets, "uint16"),
            "rarity": encode_array(self.rarity),
            "table": encode_array(self.table, "float16"),
            "unmet": self.unmet,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> WordScores:
        """The scores that were written down."""
        buckets = read_array(document, "buckets", (None,))
        rarity = read_array(document, "rarity", (len(buckets),))
        table = read_array(document, "table", (len(buckets), None))
        if not 0 <= buckets[0] <= buckets[-1] < BUCKETS or not (np.diff(buckets) > 0).all():
            raise ConfigError(  # they are looked up by halving, which finds nothing in disorder
                f"expected the buckets of words in their order, from 0 to {BUCKETS - 1}, each "
                f"once; {AGAIN}"
            )
        unmet = read_number(document.get("unmet"), "how rare words are that were not met", 0.0)
        return cls(buckets.astype(np.int64), rarity, table, unmet)


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Texts as sparse rows of length one: the column and the weight of each number that is not
    zero, in which row it is, and where each row begins."""

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

    def onto(self, table: Array) -> Array:
        """The rows times a table of columns."""
        found: Array = np.add.reduceat(
            table[self.columns] * self.weights[:, None], self.begins, axis=0
        )
        return found

    def back(self, numbers: Array, width: int) -> Array:
        """Numbers for each text times the rows: a table of so many columns."""
        return np.stack(
            [
                np.bincount(self.columns, self.weights * each[self.row], minlength=width)
                for each in numbers.T
            ],
            axis=1,
        )


def _solved(rows: _Rows, wanted: Array) -> Array:
    """The ridge regression in its dual form, by conjugate gradients, all columns at once."""
    width = int(rows.columns.max()) + 1
    found = np.zeros_like(wanted, dtype=np.float64)
    left = wanted.astype(np.float64)
    towards = left.copy()
    size = np.square(left).sum(axis=0)
    enough = CLOSE**2 * size
    for _ in range(ROUNDS):
        if (size <= enough).all():
            break
        image = rows.onto(rows.back(towards, width)) + HELD_BACK * towards
        along = (towards * image).sum(axis=0)
        length = np.where(along > 0, size / np.where(along > 0, along, 1), 0.0)
        found += length * towards
        left = left - length * image
        rest = np.square(left).sum(axis=0)
        towards = left + np.where(size > 0, rest / np.where(size > 0, size, 1), 0.0) * towards
        size = rest
    return found


def _tokens(text: str) -> Iterator[str]:
    """Words and pairs of words; those that begin with a capital, for names are unlike other words;
    how each line begins and how long it is, for the layout of a question tells of its kind; and how
    long all of it is, so that no text is empty."""
    yield f"\t{int(3 * log1p(len(text)))}"
    text = keep_both_ends(text, MOST_CHARACTERS)
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
