"""What routers do at every expense, over folds that they did not learn from.

    found = curves(outcomes, {"router": [held_out(router, outcomes, places), …]})
    found.document()

Of two workers, how much of the gap between them each router recovers
(`podium.evals.tables.recovery`); of the router that has a quality bias, what each of its positions
costs
and earns, beside the straight line between the cheapest worker and the best: what sending questions
at random would earn for as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import Array
from podium.evals.strategies.routers.base import HeadRouter, Outcomes, Router, costs_of
from podium.evals.tables.statistics import Z_95, Share, rounded
from podium.evals.tables.text_table import markdown

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


POSITIONS: Final = tuple(mark / 10 for mark in range(11))
"""Where the quality bias is looked at."""

OURS: Final = "router"
RECOVERED: Final = ("strategy", "APGR", "95 % interval", f"{OURS} against it")
QUALITY_BIAS: Final = (
    "quality bias",
    *("cost", "right, %", "the line, %", "above it", "95 % interval"),
)


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """One fold: the places of its questions, what a router scores them, and, where it has a
    quality bias, which worker (columns are `POSITIONS`) each goes to."""

    places: tuple[int, ...]
    scores: Array
    dialled: NDArray[np.int64] | None = None


def held_out(router: Router, outcomes: Outcomes, places: Sequence[int]) -> HeldOut:
    """What the router would do with these questions."""
    scores = router.scores([outcomes.questions[place] for place in places])
    dialled = None
    if isinstance(router, HeadRouter):
        learned = router.router
        everyone = range(len(learned.workers))
        dialled = np.array(
            [
                [
                    learned.quality_bias.choose(row, learned.costs, quality_bias, everyone)
                    for quality_bias in POSITIONS
                ]
                for row in scores
            ]
        )
    return HeldOut(tuple(places), scores, dialled)


@dataclass(frozen=True, slots=True)
class Position:
    """One position of the quality bias: what a question cost and earned, and by how much that is
    more than mixing the cheapest and the best worker would earn for the same."""

    quality_bias: float
    cost: float
    reward: float
    line: float
    above: Share

    def document(self) -> dict[str, Any]:
        """The position as JSON."""
        return {
            "quality_bias": self.quality_bias,
            "cost": rounded(self.cost),
            "reward": rounded(self.reward),
            "line": rounded(self.line),
            "above": self.above.document(),
        }


@dataclass(frozen=True, slots=True)
class Curves:
    """APGR by strategy where there are two workers, and the positions of the quality bias."""

    recovered: Mapping[str, Share]
    leads: Mapping[str, Share]
    quality_bias: tuple[Position, ...]

    def document(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "apgr": {name: share.document() for name, share in self.recovered.items()},
            "apgr_lead": {name: share.document() for name, share in self.leads.items()},
            "quality_bias": [position.document() for position in self.quality_bias],
        }

    def tables(self) -> list[str]:
        """A table for each of the two that there is something to say about."""
        found = []
        if self.recovered:
            found.append(markdown(RECOVERED, [self._recovered(name) for name in self.recovered]))
        if self.quality_bias:
            found.append(
                markdown(QUALITY_BIAS, [_shown(position) for position in self.quality_bias])
            )
        return found

    def _recovered(self, name: str) -> tuple[str, ...]:
        share, lead = self.recovered[name], self.leads.get(name)
        told = "–" if lead is None else f"{lead.value:+.3f} ({lead.low:+.3f} to {lead.high:+.3f})"
        return (name, f"{share.value:.3f}", f"{share.low:.3f} to {share.high:.3f}", told)


def curves(outcomes: Outcomes, held: Mapping[str, Sequence[HeldOut]]) -> Curves | None:
    """What comes of the folds; None where no router was measured."""
    if not held:
        return None
    recoveries = (
        {name: _recovery(outcomes, folds) for name, folds in held.items()}
        if len(outcomes.workers) == 2
        else {}
    )
    ours = recoveries.get(OURS)
    return Curves(
        {name: recovery.share() for name, recovery in recoveries.items()},
        {
            name: ours.lead(recovery)
            for name, recovery in recoveries.items()
            if ours is not None and name != OURS
        },
        _quality_bias(outcomes, held.get(OURS, ())),
    )


def _recovery(outcomes: Outcomes, folds: Sequence[HeldOut]) -> Recovery:
    stronger = outcomes.best
    preferences = np.zeros(len(outcomes.questions))
    for fold in folds:
        preferences[list(fold.places)] = fold.scores[:, stronger] - fold.scores[:, 1 - stronger]
    return Recovery(
        ranks(preferences, [fold.places for fold in folds]),
        outcomes.shares[:, 1 - stronger],
        outcomes.shares[:, stronger],
    )


def _quality_bias(outcomes: Outcomes, folds: Sequence[HeldOut]) -> tuple[Position, ...]:
    means = np.array(costs_of(outcomes))
    costs = np.tile(means, (len(outcomes.questions), 1))
    if outcomes.costs is not None:
        costs = outcomes.costs
    if not folds or means.min() == means.max():
        return ()
    chosen = np.zeros((len(outcomes.questions), len(POSITIONS)), dtype=np.int64)
    for fold in folds:
        if fold.dialled is not None:
            chosen[list(fold.places)] = fold.dialled
    return tuple(
        _position(quality_bias, outcomes.shares, costs, chosen[:, column])
        for column, quality_bias in enumerate(POSITIONS)
    )


def _position(
    quality_bias: float, shares: Array, costs: Array, chosen: NDArray[np.int64]
) -> Position:
    everyone = np.arange(len(shares))
    rewards, cost = shares[everyone, chosen], float(costs[everyone, chosen].mean())
    means, overall = costs.mean(axis=0), shares.mean(axis=0)
    cheapest, best = int(means.argmin()), int(overall.argmax())
    dearer = means[best] - means[cheapest]
    way = float((cost - means[cheapest]) / dearer) if dearer else 1.0
    line = (1 - way) * shares[:, cheapest] + way * shares[:, best]
    above = _mean(rewards - line)
    return Position(quality_bias, cost, float(rewards.mean()), float(line.mean()), above)


def _mean(numbers: Array) -> Share:
    """A mean over questions, with its normal interval: there are hundreds of them."""
    value = float(numbers.mean())
    reach = Z_95 * float(numbers.std()) / len(numbers) ** 0.5
    return Share(value, value - reach, value + reach)


def _shown(position: Position) -> tuple[str, ...]:
    above = position.above
    return (
        f"{position.quality_bias:g}",
        f"{position.cost:.3f}",
        f"{100 * position.reward:.1f}",
        f"{100 * position.line:.1f}",
        f"{100 * above.value:+.1f}",
        f"{100 * above.low:+.1f} to {100 * above.high:+.1f}",
    )
