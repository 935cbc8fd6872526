from __future__ import annotations

import pytest

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price
from podium.server.access.usage import CostEstimator, highest_input_price
from podium.store.keys import Amount


def test_a_request_is_estimated_from_earlier_ones() -> None:
    estimator = CostEstimator(highest_price=0.001)
    estimator.learn("podium", Amount(0.5, 1000))
    assert estimator.estimate("podium", 3) == Amount(0.5, 1000)
    assert estimator.estimate("podium-mini", 3) == Amount(0.003, 3)


def test_a_request_is_estimated_at_no_less_than_its_input() -> None:
    estimator = CostEstimator(highest_price=0.001)
    assert estimator.estimate("podium", 2000) == Amount(2.0, 2000)
    estimator.learn("podium", Amount(0.5, 1000))
    assert estimator.estimate("podium", 2000) == Amount(2.0, 2000)


def test_a_short_question_does_not_make_a_long_one_seem_more_expensive() -> None:
    estimator = CostEstimator(highest_price=0.000001)
    estimator.learn("podium", Amount(0.5, 1000))
    assert estimator.estimate("podium", 100_000).usd == 0.5


def test_experience_follows_what_happens_now() -> None:
    estimator = CostEstimator(highest_price=0.0)
    estimator.learn("podium", Amount(1.0, 1000))
    for _ in range(60):
        estimator.learn("podium", Amount(0.1, 100))
    estimate = estimator.estimate("podium", 1)
    assert estimate.usd == pytest.approx(0.1, rel=0.05)
    assert estimate.tokens == pytest.approx(100, rel=0.05)


def test_the_highest_price_is_what_reading_a_token_costs_at_most() -> None:
    cheap = WorkerProfile(name="cheap", price=Price(input=1.0, output=9.0))
    dear = WorkerProfile(name="dear", price=Price(input=3.0, output=4.0))
    assert highest_input_price(
        Pool((cheap, dear, WorkerProfile(name="unpriced")))
    ) == pytest.approx(3e-6)
    assert highest_input_price(Pool((WorkerProfile(name="unpriced"),))) == 0.0
