from __future__ import annotations

import pytest

from podium.core.errors import ConfigError

np = pytest.importorskip("numpy")

from podium.conductors.routing import KnownWorker
from podium.conductors.routing.arrays import Array, normalize_rows
from podium.conductors.routing.encoders import HashedEncoder
from podium.conductors.routing.learning import (
    RouterTraining,
    fit_calibration,
    fit_head,
    fit_router,
    mean_reward_over_budgets,
)
from podium.conductors.routing.router import QualityBias, RewardMatrix, expected_by, mean_reward

WORKERS = (KnownWorker("small", "s", 1.0), KnownWorker("large", "l", 10.0))
SUBJECTS = {"sum": (0.9, 0.9), "play": (0.1, 0.9), "riddle": (0.1, 0.2)}
"""How often each worker is right on a subject."""


def evidence(count: int = 240, seed: int = 0) -> RewardMatrix:
    """Questions whose first word tells who can answer them."""
    rng = np.random.default_rng(seed)
    subjects = [list(SUBJECTS)[number % 3] for number in range(count)]
    questions = tuple(f"{item} about number {where}" for where, item in enumerate(subjects))
    chances = np.array([SUBJECTS[item] for item in subjects])
    rewards = (rng.random(chances.shape) < chances).astype(np.float32)
    return RewardMatrix(questions, WORKERS, rewards)


def learned(found: RewardMatrix) -> Array:
    """What is expected of the workers on each subject, on the average over new questions."""
    options = RouterTraining(ridges=(0.3,))
    router = fit_router(found, HashedEncoder.fit(found.questions), options).router
    expected = router.expected(router.encoder.encode(evidence(300).questions))
    averages: Array = np.stack([expected[where::3].mean(axis=0) for where in range(3)])
    return averages


def test_the_head_expects_what_was_earned() -> None:
    assert learned(evidence()) == pytest.approx(np.array(list(SUBJECTS.values())), abs=0.2)


def test_the_head_is_where_the_penalised_squared_error_is_least() -> None:
    rng = np.random.default_rng(0)
    vectors, rewards = normalize_rows(rng.normal(size=(60, 5))), rng.random((60, 3))
    rewards[:20, 1] = np.nan
    ridge = 2.0

    def loss(head: Array) -> float:
        errors = np.nan_to_num(expected_by(head, vectors) - rewards)
        return float(np.square(errors).sum() + ridge * np.square(head[:-1]).sum())

    head = fit_head(vectors, rewards, ridge).astype(np.float64)
    for _ in range(20):
        assert loss(head) < loss(head + 0.05 * rng.normal(size=head.shape))


def test_questions_that_not_every_worker_was_asked_count_for_those_that_were() -> None:
    whole = evidence()
    rewards = whole.rewards.copy()
    rewards[::2, 0] = np.nan
    partly = RewardMatrix(whole.questions, WORKERS, rewards)
    assert learned(partly) == pytest.approx(learned(whole), abs=0.15)


def test_nothing_to_tell_questions_apart_by_leaves_every_question_to_the_best() -> None:
    rng = np.random.default_rng(1)
    questions = tuple(f"question {number}" for number in range(200))
    rewards = (rng.random((200, 2)) < (0.4, 0.7)).astype(np.float32)
    router = fit_router(
        RewardMatrix(questions, WORKERS, rewards),
        HashedEncoder.fit(questions),
        RouterTraining(),
    ).router
    unseen = [f"question {number}" for number in range(200, 400)]
    expected = router.expected(router.encoder.encode(unseen))
    assert (expected.argmax(axis=1) == 1).mean() > 0.95


def test_the_quality_bias_is_monotone_in_cost_and_above_the_line_on_unseen_questions() -> None:
    found, unseen = evidence(), evidence(600, seed=1)
    router = fit_router(found, HashedEncoder.fit(found.questions), RouterTraining()).router
    expected = router.expected(router.encoder.encode(unseen.questions))
    everyone = np.arange(600)
    costs, rewards = [], []
    for quality_bias in (0, 0.2, 0.4, 0.6, 0.8, 1):
        chosen = [
            router.quality_bias.choose(row, router.costs, quality_bias, range(2))
            for row in expected
        ]
        costs.append(float(router.costs[chosen].mean()))
        rewards.append(float(unseen.rewards[everyone, chosen].mean()))
    small, large = unseen.rewards.mean(axis=0)
    assert costs == sorted(costs)
    assert costs[0] == 1.0 < costs[2] < costs[-1]
    for cost, reward in zip(costs, rewards, strict=True):
        assert reward >= small + (large - small) * (cost - 1) / 9 - 1e-6


def test_the_quality_bias_ends_where_routing_earned_most() -> None:
    # Of the last two questions the head expects the dear worker to be better, and it is not.
    expected = np.array([[0.1, 0.9], [0.2, 0.7], [0.3, 0.4], [0.3, 0.4]])
    rewards = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    costs = np.array([0.0, 1.0])
    quality_bias = QualityBias.fit(expected, rewards, costs)
    assert quality_bias.cost_weights[-1] > 0
    assert mean_reward(expected, rewards, costs, quality_bias.cost_weights[-1]) == 1.0


EASY, HARD = (0.9, 0.95), (0.05, 0.5)


def sorted_out(count: int, asked_all: int) -> tuple[RewardMatrix, Array]:
    """Easy questions were put to `small` and hard ones to `large`, but for the first ones, which
    everybody was asked; and what everybody would have earned."""
    rng = np.random.default_rng(0)
    chances = np.array([EASY if number % 2 else HARD for number in range(count)])
    questions = tuple(
        f"{'sum' if number % 2 else 'proof'} about {number}" for number in range(count)
    )
    rewards = (rng.random(chances.shape) < chances).astype(np.float32)
    logged = rewards.copy()
    logged[asked_all::2, 0] = np.nan
    logged[asked_all + 1 :: 2, 1] = np.nan
    return RewardMatrix(questions, WORKERS, logged), rewards


def test_a_log_without_questions_that_every_worker_was_asked_is_refused() -> None:
    found, _ = sorted_out(600, 8)
    result = "every worker was asked 8 of the 600 questions, and 10 such.*--from-evaluation"
    with pytest.raises(ConfigError, match=result):
        fit_router(found, HashedEncoder.fit(found.questions), RouterTraining())


def test_a_routers_figures_hold_though_not_every_worker_was_asked_everything() -> None:
    found, truth = sorted_out(600, 100)
    done = fit_router(found, HashedEncoder.fit(found.questions), RouterTraining())
    router = done.router
    expected = router.expected(router.encoder.encode(found.questions))
    chosen = [router.quality_bias.choose(row, router.costs, 1.0, range(2)) for row in expected]
    assert truth[np.arange(600), chosen].mean() >= truth.mean(axis=0).max() - 0.03
    assert done.scores[done.ridge] == pytest.approx(
        mean_reward_over_budgets(expected, truth, router.costs), abs=0.1
    )


def test_confidence_is_the_share_that_was_right() -> None:
    rng = np.random.default_rng(0)
    expected = rng.uniform(0.3, 0.7, size=(4000, 1))
    chances = 1 / (1 + np.exp(-8 * (expected - 0.6)))
    curve = fit_calibration(expected, (rng.random((4000, 1)) < chances).astype(np.float64))
    assert curve.slope == pytest.approx(8, rel=0.2)
    assert curve(0.6) == pytest.approx(0.5, abs=0.04)


def test_confidence_is_what_was_earned_where_less_was_earned_the_more_was_expected() -> None:
    rng = np.random.default_rng(0)
    expected = rng.uniform(0.68, 0.88, size=(13, 3))
    rewards = (rng.random((13, 3)) < 0.7 - 4 * (expected - 0.78)).astype(np.float64)
    curve = fit_calibration(expected, rewards)
    assert np.corrcoef(expected.ravel(), rewards.ravel())[0, 1] < 0
    assert curve.slope > 0
    assert [curve(item) for item in (0.68, 0.88)] == pytest.approx([rewards.mean()] * 2, abs=0.01)


def test_confidence_holds_where_all_or_no_answers_were_right() -> None:
    expected = np.full((20, 2), 0.3)
    assert fit_calibration(expected, np.zeros((20, 2)))(0.3) < 0.01
    assert fit_calibration(expected, np.ones((20, 2)))(0.3) > 0.99


def test_confidence_is_found_though_what_is_expected_lies_far_apart() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(0.5, 5.0, size=(171, 3))
    chances = 1 / (1 + np.exp(-0.5 * (expected - 0.6)))
    curve = fit_calibration(expected, (rng.random((171, 3)) < chances).astype(np.float64))
    assert curve.slope == pytest.approx(0.5, rel=0.2)
    assert curve.midpoint == pytest.approx(0.6, abs=0.5)


def test_too_few_questions_are_refused() -> None:
    few = evidence(9)
    with pytest.raises(ConfigError, match="questions to learn from are 9, and 10 are the least"):
        fit_router(few, HashedEncoder.fit(few.questions), RouterTraining())
