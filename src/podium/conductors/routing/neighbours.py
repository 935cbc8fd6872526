"""What the neighbourhood of a question tells of rewards.

    near = NearScores.fitted(vectors, rewards)
    near.score(vectors)                                # a number for each worker

Vectors of questions are gathered around centres (k-means). A question is as near to each of them as
a softmax over cosines says, and a ridge regression over that, and over the vector itself, says what
is earned near each centre and along each direction: what nearest neighbours know, without keeping
them all. Several sets of centres are drawn, and what they say is averaged, for where a centre comes
to stand is chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from podium.conductors.routing.arrays import (
    Array,
    encode_array,
    normalize_rows,
    read_array,
    read_number,
    round_to_float16,
)

MOST_CENTRES: Final = 400
QUESTIONS_A_CENTRE: Final = 25
SHARPNESSES: Final = (15.0, 30.0)
"""How much more the nearest centres may count than others; of these the one by which each question
is told best from all others is taken, for encoders spread vectors more or less."""

LOUDNESS: Final = 0.5
"""What the vector is multiplied by, so that the regression heeds it less than the centres."""

HELD_BACK: Final = 3.0
"""How strongly the regression is held back. The numbers here were chosen among a few on parts of
the training questions of MMLU's first fold."""

SETS: Final = 5
MOVES: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourScores:
    """For each set `centres`, rows of length one, and a `table` with a number for each worker of
    each centre and then of each direction; `level` is a number for each worker."""

    centres: Array
    table: Array
    level: Array
    sharpness: float

    @classmethod
    def fitted(cls, vectors: Array, rewards: Array) -> NeighbourScores:
        """What comes of these rewards, a row for each vector. A worker that was not asked a
        question is taken to have earned there what it earns on the average."""
        apart = np.nan_to_num(rewards - np.nanmean(rewards, axis=0))
        sets = [round_to_float16(_centres(vectors, seed)) for seed in range(SETS)]
        tried = {
            sharpness: _regressed(_seen(vectors, sets[0], sharpness), apart)
            for sharpness in SHARPNESSES
        }
        sharpness = min(tried, key=lambda each: tried[each].error)
        others = [_regressed(_seen(vectors, each, sharpness), apart) for each in sets[1:]]
        tables = [tried[sharpness], *others]
        level = np.mean([table.level for table in tables], axis=0)
        return cls(
            np.stack(sets),
            np.stack([table.slopes for table in tables]).astype(np.float32),
            level.astype(np.float32),
            sharpness,
        )

    def score(self, vectors: Array) -> Array:
        """By how much each worker is expected to earn more than it does on the average."""
        said = [
            _seen(vectors, centres, self.sharpness) @ table
            for centres, table in zip(self.centres, self.table, strict=True)
        ]
        found: Array = np.mean(said, axis=0) + self.level
        return found

    def document(self) -> dict[str, Any]:
        """The scores as JSON."""
        return {
            "centres": encode_array(self.centres, "float16"),
            "table": encode_array(self.table),
            "level": encode_array(self.level),
            "sharpness": self.sharpness,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> NeighbourScores:
        """The scores that were written down."""
        centres = read_array(document, "centres", (None, None, None))
        level = read_array(document, "level", (None,))
        seen = sum(centres.shape[1:])  # how near each centre is, and the vector
        table = read_array(document, "table", (len(centres), seen, len(level)))
        return cls(centres, table, level, read_number(document.get("sharpness"), "a sharpness"))


class _Regressed(NamedTuple):
    """What is earned near each centre and along each direction, what is to be added to it, and how
    far off it is (squared) for a question when it is learned from all others."""

    slopes: Array
    level: Array
    error: float


def _regressed(seen: Array, wanted: Array) -> _Regressed:
    middle = seen.mean(axis=0)
    centred = (seen - middle).astype(np.float64)
    inverse = np.linalg.inv(centred.T @ centred + HELD_BACK * np.eye(seen.shape[1]))
    slopes = inverse @ (centred.T @ wanted)
    own = 1 / len(seen) + np.einsum("ij,ij->i", centred @ inverse, centred)
    left = (wanted - centred @ slopes) / (1 - np.minimum(own, 0.99))[:, None]
    return _Regressed(slopes, -middle @ slopes, float(np.square(left).mean()))


def _centres(vectors: Array, seed: int) -> Array:
    count = max(1, min(MOST_CENTRES, len(vectors) // QUESTIONS_A_CENTRE))
    rng = np.random.default_rng(seed)
    centres: Array = vectors[rng.choice(len(vectors), count, replace=False)]
    for _ in range(MOVES):
        nearest = (vectors @ centres.T).argmax(axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors)
        is_met = np.bincount(nearest, minlength=count) > 0
        centres = np.where(is_met[:, None], normalize_rows(sums), centres)
    return centres


def _seen(vectors: Array, centres: Array, sharpness: float) -> Array:
    """How near each vector is to each centre, and the vector."""
    raised = np.exp(sharpness * (vectors @ centres.T - 1))
    return np.hstack([raised / raised.sum(axis=1, keepdims=True), LOUDNESS * vectors])
