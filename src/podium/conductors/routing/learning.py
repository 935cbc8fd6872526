"""Train a router on a table of rewards.

The head is one ridge regression for each worker: its rewards on the questions that it was asked,
over the encoded questions. The strength of the ridge, the cost weights of the quality bias and the
calibration of confidence are chosen by cross-validation, on questions that every worker was asked
(`RewardMatrix.complete_rows`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import Array, normalize_seed
from podium.conductors.routing.encoders import Encoder
from podium.conductors.routing.router import (
    Calibration,
    LearnedRouter,
    QualityBias,
    RewardMatrix,
    cost_weight_for_budget,
    expected_by,
    route,
)

DEFAULT_MIDPOINT: Final = 0.5
"""The expected reward at which an uncalibrated confidence is one half."""

NEWTON_STEPS: Final = 40
"""Steps of the calibration; the problem is convex, and each step goes downhill."""

BUDGETS: Final = 11
"""Number of budgets at which routing is scored, from the cheapest worker's cost to the highest."""

MIN_QUESTIONS: Final = 10

PRIOR_STRENGTH: Final = 1e-3
"""Strength of the prior on the calibration curve."""

MIN_SLOPE: Final = 1e-3
"""Slope of a flat calibration curve, which never falls."""

HALVINGS: Final = 20
"""The most halvings of a step of the calibration curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterTraining:
    """Options of a router's training.

    `ridges` are the strengths to choose from, by cross-validation in `folds` folds.
    """

    ridges: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
    folds: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RouterFit:
    """The trained router, its ridge, and the score of each ridge."""

    router: LearnedRouter
    ridge: float
    scores: dict[float, float]


def fit_router(
    table: RewardMatrix,
    encoder: Encoder,
    options: RouterTraining,
    *,
    source: str = "",
) -> RouterFit:
    table.check(MIN_QUESTIONS)
    fold_of = _assign_folds(table.complete_rows, options)
    vectors = encoder.encode(table.questions)
    whole, rewards, costs = table.complete_rows, table.rewards[table.complete_rows], table.costs

    def predict(ridge: float) -> Array:
        """Predict the rewards of each question by a head that was fitted to the other folds."""
        found = np.zeros(table.rewards.shape)
        for fold in range(int(fold_of.max()) + 1):
            left_out = fold_of == fold
            head = fit_head(vectors[~left_out], table.rewards[~left_out], ridge)
            found[left_out] = expected_by(head, vectors[left_out])
        return found[whole]

    predicted = {ridge: predict(ridge) for ridge in options.ridges}
    scores = {
        ridge: mean_reward_over_budgets(found, rewards, costs) for ridge, found in predicted.items()
    }
    ridge = max(scores, key=scores.__getitem__)
    router = LearnedRouter(
        table.workers,
        encoder,
        fit_head(vectors, table.rewards, ridge),
        QualityBias.fit(predicted[ridge], rewards, costs),
        fit_calibration(predicted[ridge], rewards),
        source,
    )
    return RouterFit(router, ridge, scores)


def _assign_folds(whole: NDArray[np.bool_], options: RouterTraining) -> NDArray[np.int64]:
    """Return the fold of each question; those that every worker was asked are dealt out evenly."""
    rng = np.random.default_rng(normalize_seed(options.seed))
    found = np.zeros(len(whole), dtype=np.int64)
    for rows in (whole, ~whole):
        found[rows] = rng.permutation(int(rows.sum())) % min(options.folds, int(whole.sum()))
    return found


def fit_head(vectors: Array, rewards: Array, ridge: float) -> Array:
    """Fit each worker's rewards on the questions that it was asked; the last row is the intercept.

    Solved over the questions (the dual form), for there are fewer of them than numbers in a vector.
    """
    return np.stack(
        [_ridge(vectors[known], column[known], ridge) for column, known in _known_rewards(rewards)],
        axis=1,
    ).astype(np.float32)


def _known_rewards(rewards: Array) -> list[tuple[Array, NDArray[np.bool_]]]:
    return [(column, ~np.isnan(column)) for column in rewards.T]


def _ridge(vectors: Array, rewards: Array, ridge: float) -> Array:
    centre, level = vectors.mean(axis=0), rewards.mean()
    centred = (vectors - centre).astype(np.float64)
    kernel = centred @ centred.T + ridge * np.eye(len(centred))
    slopes = centred.T @ np.linalg.solve(kernel, rewards - level)
    return np.append(slopes, level - centre @ slopes)


def mean_reward_over_budgets(expected: Array, rewards: Array, costs: Array) -> float:
    """Return the mean reward of routing over all budgets, from the lowest cost to the highest."""
    return float(rewards_by_question(expected, rewards, costs).mean())


def rewards_by_question(expected: Array, rewards: Array, costs: Array) -> Array:
    """Return the mean reward of routing over all budgets, for each question."""
    budgets = np.linspace(costs.min(), costs.max(), BUDGETS)
    weights = [cost_weight_for_budget(expected, costs, float(budget)) for budget in budgets]
    everyone = np.arange(len(rewards))
    found = np.stack([rewards[everyone, route(expected, costs, weight)] for weight in weights])
    averages: Array = found.mean(axis=0)
    return averages


def fit_calibration(expected: Array, rewards: Array) -> Calibration:
    """Fit the logistic curve from expected rewards to chances, by damped Newton steps.

    Where rewards do not rise with expected rewards, the chance is the mean reward.
    """
    inputs = np.stack([expected.ravel() - DEFAULT_MIDPOINT, np.ones(expected.size)], axis=1)
    earned = rewards.ravel().astype(np.float64)
    usual = np.array([Calibration().slope, 0.0])

    def loss(weights: Array) -> float:
        logits = inputs @ weights
        held = 0.5 * PRIOR_STRENGTH * np.square(weights - usual).sum()
        return float(np.logaddexp(0, logits).sum() - earned @ logits + held)

    weights = usual
    for _ in range(NEWTON_STEPS):
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
    return Calibration(slope, DEFAULT_MIDPOINT - float(weights[1]) / slope)
