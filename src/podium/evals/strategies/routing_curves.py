"""The accuracy of routers at every cost, on folds that they did not learn from.

    found = compute_curves(outcomes, {"router": [score_fold(router, outcomes, fold), …]})
    found.document()

With two workers: the average performance gap recovered (APGR). For the router with a quality
bias: the cost and reward at each value, beside the line that mixes the cheapest and the best worker
at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import Array
from podium.evals.results import Z_95, IntervalEstimate, markdown, round_figure
from podium.evals.strategies.routers import HeadRouter, RouterModel, WorkerOutcomes, mean_costs

RESAMPLES: Final = 1_000
"""Bootstrap resamples, the same for every router."""


@dataclass(frozen=True, slots=True, eq=False)
class GapRecovery:
    """A router's preference for the stronger of two workers per question, and both rewards.

    Each fold has another router, so preferences are ranks within their fold.
    """

    preferences: Array
    weaker: Array
    stronger: Array

    def share(self) -> IntervalEstimate:
        """Return the APGR with its interval over questions."""
        return _interval(self._areas())

    def lead(self, other: GapRecovery) -> IntervalEstimate:
        """Return how much more it recovers than another router on the same questions."""
        return _interval(self._areas() - other._areas())

    def _areas(self) -> Array:
        """Return the area over all questions, then over each bootstrap resample."""
        count = len(self.weaker)
        order = np.argsort(-self.preferences, kind="stable")
        gains = (self.stronger - self.weaker)[order]
        # of equal preferences, only the last is a point of the curve
        ends = np.flatnonzero(np.diff(self.preferences[order], append=-np.inf)) + 1
        points = np.concatenate([[0], ends])
        rng = np.random.default_rng(0)
        found = []
        weights: Array = np.ones(count)
        for _ in range(RESAMPLES + 1):
            sent = np.concatenate([[0.0], np.cumsum(weights)])
            gained = np.concatenate([[0.0], np.cumsum(gains * weights)])
            whole = sent[-1] * gained[-1]
            area = np.trapezoid(gained[points], sent[points])
            found.append(float(area / whole) if whole else 0.5)
            weights = np.bincount(rng.integers(0, count, count), minlength=count)[order] * 1.0
        return np.array(found)


def _interval(areas: Array) -> IntervalEstimate:
    value, *drawn = areas
    low, high = np.quantile(drawn, (0.025, 0.975))
    return IntervalEstimate(float(value), float(low), float(high))


def ranks(preferences: Array, fold_indices: Sequence[Sequence[int]]) -> Array:
    """Return each preference as the share of its fold with a lower one."""
    found = np.zeros(len(preferences))
    for indices in fold_indices:
        part = preferences[list(indices)]
        found[list(indices)] = np.searchsorted(np.sort(part), part, side="left") / len(part)
    return found


BIASES: Final = tuple(mark / 10 for mark in range(11))
"""The values of the quality bias in a curve."""

OURS: Final = "router"
RECOVERED: Final = ("strategy", "APGR", "95 % interval", f"{OURS} against it")
QUALITY_BIAS: Final = (
    "quality bias",
    *("cost", "right, %", "the line, %", "above it", "95 % interval"),
)


@dataclass(frozen=True, slots=True, eq=False)
class FoldScores:
    """A router's scores of one fold, and the worker for each quality bias if it has one."""

    indices: tuple[int, ...]
    scores: Array
    chosen_by_bias: NDArray[np.int64] | None = None


def score_fold(router: RouterModel, outcomes: WorkerOutcomes, indices: Sequence[int]) -> FoldScores:
    """Score these questions with the router."""
    scores = router.scores([outcomes.questions[index] for index in indices])
    chosen_by_bias = None
    if isinstance(router, HeadRouter):
        learned = router.router
        all_rows = range(len(learned.workers))
        chosen_by_bias = np.array(
            [
                [
                    learned.quality_bias.choose(row, learned.costs, quality_bias, all_rows)
                    for quality_bias in BIASES
                ]
                for row in scores
            ]
        )
    return FoldScores(tuple(indices), scores, chosen_by_bias)


@dataclass(frozen=True, slots=True)
class BiasPoint:
    """The mean cost and reward at one quality bias, and the reward of mixing at the same cost."""

    quality_bias: float
    cost: float
    reward: float
    line: float
    above: IntervalEstimate

    def document(self) -> dict[str, Any]:
        """Return the point as JSON."""
        return {
            "quality_bias": self.quality_bias,
            "cost": round_figure(self.cost),
            "reward": round_figure(self.reward),
            "line": round_figure(self.line),
            "above": self.above.document(),
        }


@dataclass(frozen=True, slots=True)
class RoutingCurves:
    """The APGR by strategy if there are two workers, and the points of the quality bias."""

    recovered: Mapping[str, IntervalEstimate]
    leads: Mapping[str, IntervalEstimate]
    quality_bias: tuple[BiasPoint, ...]

    def document(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "apgr": {name: share.document() for name, share in self.recovered.items()},
            "apgr_lead": {name: share.document() for name, share in self.leads.items()},
            "quality_bias": [point.document() for point in self.quality_bias],
        }

    def tables(self) -> list[str]:
        """Return a table for each of the two that is not empty."""
        found = []
        if self.recovered:
            found.append(
                markdown(RECOVERED, [self._recovery_cells(name) for name in self.recovered])
            )
        if self.quality_bias:
            found.append(markdown(QUALITY_BIAS, [_cells(point) for point in self.quality_bias]))
        return found

    def _recovery_cells(self, name: str) -> tuple[str, ...]:
        share, lead = self.recovered[name], self.leads.get(name)
        shown = "–" if lead is None else f"{lead.value:+.3f} ({lead.low:+.3f} to {lead.high:+.3f})"
        return (name, f"{share.value:.3f}", f"{share.low:.3f} to {share.high:.3f}", shown)


def compute_curves(
    outcomes: WorkerOutcomes, scores: Mapping[str, Sequence[FoldScores]]
) -> RoutingCurves | None:
    """Compute the curves from scored folds; None without any router."""
    if not scores:
        return None
    recoveries = (
        {name: _recovery(outcomes, fold_scores) for name, fold_scores in scores.items()}
        if len(outcomes.workers) == 2
        else {}
    )
    ours = recoveries.get(OURS)
    return RoutingCurves(
        {name: recovery.share() for name, recovery in recoveries.items()},
        {
            name: ours.lead(recovery)
            for name, recovery in recoveries.items()
            if ours is not None and name != OURS
        },
        _quality_bias(outcomes, scores.get(OURS, ())),
    )


def _recovery(outcomes: WorkerOutcomes, fold_scores: Sequence[FoldScores]) -> GapRecovery:
    stronger = outcomes.best
    preferences = np.zeros(len(outcomes.questions))
    for fold in fold_scores:
        preferences[list(fold.indices)] = fold.scores[:, stronger] - fold.scores[:, 1 - stronger]
    return GapRecovery(
        ranks(preferences, [fold.indices for fold in fold_scores]),
        outcomes.shares[:, 1 - stronger],
        outcomes.shares[:, stronger],
    )


def _quality_bias(
    outcomes: WorkerOutcomes, fold_scores: Sequence[FoldScores]
) -> tuple[BiasPoint, ...]:
    means = np.array(mean_costs(outcomes))
    costs = np.tile(means, (len(outcomes.questions), 1))
    if outcomes.costs is not None:
        costs = outcomes.costs
    if not fold_scores or means.min() == means.max():
        return ()
    chosen = np.zeros((len(outcomes.questions), len(BIASES)), dtype=np.int64)
    for fold in fold_scores:
        if fold.chosen_by_bias is not None:
            chosen[list(fold.indices)] = fold.chosen_by_bias
    return tuple(
        _position(quality_bias, outcomes.shares, costs, chosen[:, column])
        for column, quality_bias in enumerate(BIASES)
    )


def _position(
    quality_bias: float, shares: Array, costs: Array, chosen: NDArray[np.int64]
) -> BiasPoint:
    all_rows = np.arange(len(shares))
    rewards, cost = shares[all_rows, chosen], float(costs[all_rows, chosen].mean())
    means, overall = costs.mean(axis=0), shares.mean(axis=0)
    cheapest, best = int(means.argmin()), int(overall.argmax())
    extra = means[best] - means[cheapest]
    weight = float((cost - means[cheapest]) / extra) if extra else 1.0
    line = (1 - weight) * shares[:, cheapest] + weight * shares[:, best]
    above = _mean(rewards - line)
    return BiasPoint(quality_bias, cost, float(rewards.mean()), float(line.mean()), above)


def _mean(numbers: Array) -> IntervalEstimate:
    """Return a mean over questions with its normal interval."""
    value = float(numbers.mean())
    reach = Z_95 * float(numbers.std()) / len(numbers) ** 0.5
    return IntervalEstimate(value, value - reach, value + reach)


def _cells(point: BiasPoint) -> tuple[str, ...]:
    above = point.above
    return (
        f"{point.quality_bias:g}",
        f"{point.cost:.3f}",
        f"{100 * point.reward:.1f}",
        f"{100 * point.line:.1f}",
        f"{100 * above.value:+.1f}",
        f"{100 * above.low:+.1f} to {100 * above.high:+.1f}",
    )
