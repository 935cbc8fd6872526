"""Train a router on a table of rewards.

For each question the workers' mean rewards, divided by a temperature, make a distribution, and the
head is fitted to it by Kullback-Leibler divergence. A reward of one half is in every distribution
as a worker of its own, so that the head learns absolute rewards. Workers that were not asked a
question are left out of its distribution.

Regularization, prices of the quality bias and the calibration of confidence are chosen by
cross-validation, on questions that every worker was asked (`RewardTable.whole`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import Array, normalize_seed
from podium.conductors.routing.encoders import Encoder, ScoringEncoder, average_head, join_scores
from podium.conductors.routing.router import (
    Calibration,
    LearnedRouter,
    QualityBias,
    RewardTable,
    expected_by,
    price_within,
    route,
)
from podium.conductors.routing.scores import NeighbourScores, TokenCounts, WordScores

MIDDLE: Final = 0.5
"""The reward that is a worker of its own in every distribution."""

ROUNDS: Final = 40
"""Number of steps; the problem is convex, and each step goes downhill."""

BUDGETS: Final = 11
"""Number of budgets at which routing is scored, from the cheapest worker's cost to the highest."""

MIN_QUESTIONS: Final = 10

PRIOR_STRENGTH: Final = 1e-3
"""Strength of the prior on the calibration curve."""

MIN_SLOPE: Final = 1e-3
"""Slope of a flat calibration curve, which never falls."""

HALVINGS: Final = 20
"""The most halvings of a step of the calibration curve."""


class Penalty(NamedTuple):
    """A head's L2 penalty: its strength, and whether it pulls to both scores or to the average."""

    strength: float
    toward_scores: bool

    def __str__(self) -> str:
        return f"{self.strength:g} towards {'both scores' if self.toward_scores else 'the average'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterTraining:
    """Options of a router's training.

    `penalties` are the penalties to choose from, in `parts` folds of cross-validation.
    """

    temperature: float = 0.5
    penalties: tuple[Penalty, ...] = (
        *(Penalty(strength, toward_scores=True) for strength in (1e3, 1e4, 1e5, 1e6)),
        *(Penalty(strength, toward_scores=False) for strength in (1.0, 10.0, 100.0, 1e3)),
    )
    parts: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RouterFit:
    """The trained router, its penalty, and the score of each penalty."""

    router: LearnedRouter
    penalty: Penalty
    areas: dict[Penalty, float]


def fit_router(
    table: RewardTable,
    encoder: Encoder,
    options: RouterTraining,
    *,
    source: str = "",
) -> RouterFit:
    table.check(MIN_QUESTIONS)
    parts = _assign_folds(table.whole, options)
    full_encoder, vectors = _fit_encoder(table, encoder, parts)
    whole, rewards, costs = table.whole, table.rewards[table.whole], table.costs

    def head(rows: NDArray[np.bool_], penalty: Penalty) -> Array:
        shape = vectors.shape[1], len(table.workers)
        plain = average_head(shape[1]) if penalty.toward_scores else np.zeros(shape)
        return fit_head(
            vectors[rows], table.rewards[rows], options.temperature, penalty.strength, plain
        )

    def predict(penalty: Penalty) -> Array:
        """Predict the rewards of each question by a head that was fitted to the other folds."""
        found = np.zeros(table.rewards.shape)
        for part in range(int(parts.max()) + 1):
            left_out = parts == part
            found[left_out] = expected_by(head(~left_out, penalty), vectors[left_out])
        return found[whole]

    predicted = {penalty: predict(penalty) for penalty in options.penalties}
    areas = {penalty: area(found, rewards, costs) for penalty, found in predicted.items()}
    penalty = max(areas, key=areas.__getitem__)
    router = LearnedRouter(
        table.workers,
        full_encoder,
        head(np.ones(len(vectors), dtype=bool), penalty),
        QualityBias.fit(predicted[penalty], rewards, costs),
        fit_calibration(predicted[penalty], rewards),
        source,
    )
    return RouterFit(router, penalty, areas)


def _assign_folds(whole: NDArray[np.bool_], options: RouterTraining) -> NDArray[np.int64]:
    """Return the fold of each question; those that every worker was asked are dealt out evenly."""
    rng = np.random.default_rng(normalize_seed(options.seed))
    found = np.zeros(len(whole), dtype=np.int64)
    for rows in (whole, ~whole):
        found[rows] = rng.permutation(int(rows.sum())) % min(options.parts, int(whole.sum()))
    return found


def _fit_encoder(
    table: RewardTable, encoder: Encoder, parts: NDArray[np.int64]
) -> tuple[Encoder, Array]:
    """Fit the router's encoder, and encode the questions.

    The scores of a question come from the other folds, so that they are not too good to be true.
    """
    questions, rewards = table.questions, table.rewards
    vectors, counted = encoder.encode(questions), TokenCounts.of(questions)
    found = np.zeros((len(questions), 2 * rewards.shape[1]))
    for part in range(int(parts.max()) + 1):
        own, others = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        near = NeighbourScores.fit(vectors[others], rewards[others])
        words = WordScores.fit(counted.take(others), rewards[others])
        found[own] = join_scores(near.score(vectors[own]), words.score(counted.take(own)))
    whole = ScoringEncoder(
        encoder, NeighbourScores.fit(vectors, rewards), WordScores.fit(counted, rewards)
    )
    return whole, found


def fit_head(
    vectors: Array, rewards: Array, temperature: float, strength: float, plain: Array
) -> Array:
    """Fit the head by Kullback-Leibler divergence, with an L2 penalty towards `plain`.

    Steps use a bound of the curvature that holds everywhere (Böhning and Lindsay 1988), so none is
    too long. `plain` has no last row.
    """
    inputs = np.hstack([vectors, np.ones((len(vectors), 1), dtype=vectors.dtype)])
    known = ~np.isnan(rewards)
    logits = np.where(known, (np.nan_to_num(rewards) - MIDDLE) / temperature, -np.inf)
    targets = _distribution(logits)
    held = np.full(inputs.shape[1], strength)
    held[-1] = 1e-6  # what is the same for all questions is not held back
    curvature = 0.5 * (inputs.T @ inputs).astype(np.float64) + np.diag(held)
    inverse = np.linalg.inv(curvature)
    towards = np.vstack([plain / temperature, np.zeros((1, rewards.shape[1]))])
    head = towards.copy()
    for _ in range(ROUNDS):
        said = _distribution(np.where(known, inputs @ head, -np.inf))
        head -= inverse @ (inputs.T @ (said - targets) + held[:, None] * (head - towards))
    head *= temperature
    head[-1] += MIDDLE
    return head.astype(np.float32)


def area(expected: Array, rewards: Array, costs: Array) -> float:
    """Return the mean reward of routing over all budgets, from the lowest cost to the highest."""
    return float(rewards_by_question(expected, rewards, costs).mean())


def rewards_by_question(expected: Array, rewards: Array, costs: Array) -> Array:
    """Return the mean reward of routing over all budgets, for each question."""
    budgets = np.linspace(costs.min(), costs.max(), BUDGETS)
    prices = [price_within(expected, costs, float(budget)) for budget in budgets]
    everyone = np.arange(len(rewards))
    found = np.stack([rewards[everyone, route(expected, costs, price)] for price in prices])
    averages: Array = found.mean(axis=0)
    return averages


def fit_calibration(expected: Array, rewards: Array) -> Calibration:
    """Fit the logistic curve from expected rewards to chances, by damped Newton steps.

    Where rewards do not rise with expected rewards, the chance is the mean reward.
    """
    inputs = np.stack([expected.ravel() - MIDDLE, np.ones(expected.size)], axis=1)
    earned = rewards.ravel().astype(np.float64)
    usual = np.array([Calibration().slope, 0.0])

    def loss(weights: Array) -> float:
        logits = inputs @ weights
        held = 0.5 * PRIOR_STRENGTH * np.square(weights - usual).sum()
        return float(np.logaddexp(0, logits).sum() - earned @ logits + held)

    weights = usual
    for _ in range(ROUNDS):
        chances = 1 / (1 + np.exp(-np.clip(inputs @ weights, -50, 50)))
        slopes = inputs.T @ (chances - earned) + PRIOR_STRENGTH * (weights - usual)
        curvature = (
            inputs * (chances * (1 - chances))[:, None]
        ).T @ inputs + PRIOR_STRENGTH * np.eye(2)
        step = np.linalg.solve(curvature, slopes)
        lost = loss(weights) * (1 + 1e-12)  # at the bottom there is nothing but rounding
        shares = (0.5**halvings for halvings in range(HALVINGS))
        share = next((item for item in shares if loss(weights - item * step) <= lost), 0.0)
        weights = weights - share * step
    if weights[0] < MIN_SLOPE:
        mean = min(max(float(earned.mean()), 1e-3), 1 - 1e-3)
        logit = math.log(mean / (1 - mean))
        return Calibration(MIN_SLOPE, float(expected.mean()) - logit / MIN_SLOPE)
    slope = float(weights[0])
    return Calibration(slope, MIDDLE - float(weights[1]) / slope)


def _distribution(logits: Array) -> Array:
    """Return the workers' part of a softmax over workers and the middle reward, of logit 0."""
    highest = np.maximum(logits.max(axis=1, keepdims=True), 0)
    raised = np.exp(logits - highest)
    found: Array = raised / (raised.sum(axis=1, keepdims=True) + np.exp(-highest))
    return found
