"""What the neighbourhood of a question tells of rewards.

    near = NearScores.fitted(vectors, rewards)
    near.score(vectors)                                # a number for each worker

Vectors of questions are gathered around centres (k-means). A question is as near to each of them as
a softmax over cosines says, and a ridge regression over that says what is earned near each centre:
what nearest neighbours know, without keeping them all. Several sets of centres are drawn, and what
they say is averaged, for where a centre comes to stand is chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from podium.routing.arrays import Array, packed, unit, unpacked

MOST_CENTRES: Final = 400
QUESTIONS_A_CENTRE: Final = 25
SHARPNESS: Final = 15.0
HELD_BACK: Final = 3.0
"""How strongly the regression is held back. The four were chosen among a few on training questions
of MMLU's first fold."""

SETS: Final = 5
MOVES: Final = 5


@dataclass(frozen=True, slots=True, eq=False)
class NearScores:
    """For each set `centres`, rows of length one, and a `table` with a number for each centre and
    worker; `level` is a number for each worker."""

    centres: Array
    table: Array
    level: Array

    @classmethod
    def fitted(cls, vectors: Array, rewards: Array) -> NearScores:
        """What comes of these rewards, a row for each vector. A worker that was not asked a
        question is taken to have earned there what it earns on the average."""
        apart = np.nan_to_num(rewards - np.nanmean(rewards, axis=0))
        sets = [_centres(vectors, seed) for seed in range(SETS)]
        tables = [_regressed(_nearness(vectors, centres), apart) for centres in sets]
        level = np.mean([table.level for table in tables], axis=0)
        return cls(
            np.stack(sets),
            np.stack([table.slopes for table in tables]).astype(np.float32),
            level.astype(np.float32),
        )

    def score(self, vectors: Array) -> Array:
        """By how much each worker is expected to earn more than it does on the average."""
        said = [
            _nearness(vectors, centres) @ table
            for centres, table in zip(self.centres, self.table, strict=True)
        ]
        found: Array = np.mean(said, axis=0) + self.level
        return found

    def document(self) -> dict[str, Any]:
        """The scores as JSON."""
        arrays = {"centres": self.centres, "table": self.table, "level": self.level}
        return {name: packed(array) for name, array in arrays.items()}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> NearScores:
        """The scores that were written down."""
        return cls(*(unpacked(document.get(name)) for name in ("centres", "table", "level")))


class _Regressed(NamedTuple):
    """What is earned near each centre, and what is to be added to it."""

    slopes: Array
    level: Array


def _regressed(near: Array, wanted: Array) -> _Regressed:
    middle = near.mean(axis=0)
    centred = (near - middle).astype(np.float64)
    curvature = centred.T @ centred + HELD_BACK * np.eye(near.shape[1])
    slopes = np.linalg.solve(curvature, centred.T @ wanted)
    return _Regressed(slopes, -middle @ slopes)


def _centres(vectors: Array, seed: int) -> Array:
    count = max(1, min(MOST_CENTRES, len(vectors) // QUESTIONS_A_CENTRE))
    rng = np.random.default_rng(seed)
    centres: Array = vectors[rng.choice(len(vectors), count, replace=False)]
    for _ in range(MOVES):
        nearest = (vectors @ centres.T).argmax(axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, vectors)
        is_met = np.bincount(nearest, minlength=count) > 0
        centres = np.where(is_met[:, None], unit(sums), centres)
    return centres


def _nearness(vectors: Array, centres: Array) -> Array:
    raised = np.exp(SHARPNESS * (vectors @ centres.T - 1))
    found: Array = raised / raised.sum(axis=1, keepdims=True)
    return found
