"""How much of the gap between two workers routing recovers, whatever is spent: RouteLLM's APGR.

    recovered = Recovery(preferences, weaker, stronger)
    recovered.share()                     # 0.5 is what sending questions at random recovers

Questions are sent to the stronger of two workers one after the other, those first for which a
router prefers it most. With none sent there is the accuracy of the weaker, with all that of the
stronger, in between the router's. The area under that curve, on a scale where the weaker worker is
0 and the stronger is 1, is the average performance gap recovered (Ong et al. 2024,
arXiv:2406.18665). RouteLLM takes ten thresholds, and here all of them count; questions that a
router does not tell apart are sent in proportion, as at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from podium.evals.tables.statistics import Share
from podium.routing.arrays import Array

RESAMPLES: Final = 1_000
"""How many samples the bootstrap draws, the same ones for every router."""


@dataclass(frozen=True, slots=True, eq=False)
class Recovery:
    """For each question how much a router prefers the stronger worker, and what both earned. The
    preferences of each fold are those of another router, so they are ranks within it."""

    preferences: Array
    weaker: Array
    stronger: Array

    def share(self) -> Share:
        """The gap recovered on the average, with its interval over questions."""
        return _interval(self._areas())

    def lead(self, other: Recovery) -> Share:
        """How much more it recovers than another router on the same questions."""
        return _interval(self._areas() - other._areas())

    def _areas(self) -> Array:
        """The area of all questions, then that of each sample that is drawn of them: the same
        samples for every router."""
        count = len(self.weaker)
        order = np.argsort(-self.preferences, kind="stable")
        gains = (self.stronger - self.weaker)[order]
        # Where preferences are equal, only the ends of the stretch are points of the curve.
        ends = np.flatnonzero(np.diff(self.preferences[order], append=-np.inf)) + 1
        places = np.concatenate([[0], ends])
        rng = np.random.default_rng(0)
        found = []
        weights: Array = np.ones(count)
        for _ in range(RESAMPLES + 1):
            sent = np.concatenate([[0.0], np.cumsum(weights)])
            gained = np.concatenate([[0.0], np.cumsum(gains * weights)])
            whole = sent[-1] * gained[-1]
            area = np.trapezoid(gained[places], sent[places])
            found.append(float(area / whole) if whole else 0.5)
            weights = np.bincount(rng.integers(0, count, count), minlength=count)[order] * 1.0
        return np.array(found)


def _interval(areas: Array) -> Share:
    value, *drawn = areas
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Share(float(value), float(low), float(high))


def ranks(preferences: Array, folds: Sequence[Sequence[int]]) -> Array:
    """Preferences as shares of their fold that are preferred less, so that folds can be compared;
    equals stay equal."""
    found = np.zeros(len(preferences))
    for places in folds:
        part = preferences[list(places)]
        found[list(places)] = np.searchsorted(np.sort(part), part, side="left") / len(part)
    return found
