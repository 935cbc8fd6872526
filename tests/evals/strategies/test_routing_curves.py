from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from podium.evals.strategies.routers import ConstantRouter, HeadRouter, WorkerOutcomes, mean_costs
from podium.evals.strategies.routing_curves import BIASES, compute_curves, score_fold
from support.routing import PLAYS, SUMS, small_router

QUESTIONS = (*SUMS, *PLAYS)
SHARES = np.array([[1.0, 1.0]] * 4 + [[0.0, 1.0]] * 4, dtype=np.float32)
OUTCOMES = WorkerOutcomes(QUESTIONS, ("cheap", "dear"), SHARES)
COSTS = np.array([[0.1, 1.0]] * 4 + [[0.3, 3.0]] * 4)
FOLDS = ((0, 2, 4, 6), (1, 3, 5, 7))


def test_of_two_workers_each_router_has_the_gap_that_it_recovers() -> None:
    router = HeadRouter(small_router())
    constant = ConstantRouter(OUTCOMES.workers, SHARES.mean(axis=0))
    held = {
        "constant": [score_fold(constant, OUTCOMES, fold) for fold in FOLDS],
        "router": [score_fold(router, OUTCOMES, fold) for fold in FOLDS],
    }
    found = compute_curves(OUTCOMES, held)
    assert found is not None
    assert found.recovered["constant"].value == pytest.approx(0.5)
    assert found.recovered["router"].value == pytest.approx(0.75, abs=0.02)
    assert found.leads["constant"].value == pytest.approx(0.25, abs=0.02)
    assert "router" not in found.leads


def test_points_of_the_quality_bias_stand_beside_the_line() -> None:
    router = HeadRouter(small_router())
    found = compute_curves(
        OUTCOMES, {"router": [score_fold(router, OUTCOMES, fold) for fold in FOLDS]}
    )
    assert found is not None
    assert [position.quality_bias for position in found.quality_bias] == list(BIASES)
    first, half, last = found.quality_bias[0], found.quality_bias[5], found.quality_bias[-1]
    assert (first.cost, first.reward, first.line) == (0.0, 0.5, 0.5)
    assert (half.cost, half.reward, half.line) == (0.5, 1.0, 0.75)
    assert last.reward == 1.0
    assert last.above.value == pytest.approx(1 - last.line)
    assert len(found.tables()) == 2


def test_of_more_than_two_workers_there_is_no_gap_and_without_costs_no_dial() -> None:
    outcomes = WorkerOutcomes(QUESTIONS, ("a", "b", "c"), np.ones((8, 3), dtype=np.float32))
    constant = ConstantRouter(outcomes.workers, np.ones(3))
    found = compute_curves(outcomes, {"constant": [score_fold(constant, outcomes, range(8))]})
    assert found is not None
    assert (dict(found.recovered), found.quality_bias, found.tables()) == ({}, (), [])


def test_what_two_workers_cost_is_counted_in_calls_of_the_stronger_where_nobody_knows() -> None:
    assert mean_costs(OUTCOMES) == (0.0, 1.0)
    known = WorkerOutcomes(QUESTIONS, ("cheap", "dear"), SHARES, costs=COSTS)
    assert mean_costs(known) == pytest.approx((0.2, 2.0))


def test_a_position_costs_what_the_questions_cost_that_went_there() -> None:
    outcomes = WorkerOutcomes(QUESTIONS, ("cheap", "dear"), SHARES, costs=COSTS)
    router = HeadRouter(small_router())
    found = compute_curves(
        outcomes, {"router": [score_fold(router, outcomes, fold) for fold in FOLDS]}
    )
    assert found is not None
    # The sums go to the cheap worker and the plays to the dear one, which are dear with both.
    assert found.quality_bias[5].cost == pytest.approx((0.1 + 3.0) / 2)
    assert found.quality_bias[5].line == pytest.approx(0.5 + 0.5 * (1.55 - 0.2) / (2.0 - 0.2))


def test_a_router_learns_from_what_the_questions_cost_that_it_learns_from() -> None:
    outcomes = WorkerOutcomes(QUESTIONS, ("cheap", "dear"), SHARES, costs=COSTS)
    assert mean_costs(outcomes.of([0, 1])) == pytest.approx((0.1, 1.0))
