from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium._util.rate_limit import RateLimiter, TokenBucket


def test_a_bucket_allows_a_minutes_worth_at_once_and_then_its_rate() -> None:
    bucket = TokenBucket(60, now=0.0)
    for _ in range(60):
        assert bucket.wait(1, now=0.0) == 0.0
        bucket.take(1)
    assert bucket.wait(1, now=0.0) == pytest.approx(1.0)
    assert bucket.wait(1, now=0.5) == pytest.approx(0.5)
    assert bucket.wait(1, now=1.0) == pytest.approx(0.0)


def test_a_bucket_never_holds_more_than_a_minutes_worth() -> None:
    bucket = TokenBucket(60, now=0.0)
    assert bucket.wait(60, now=3600.0) == 0.0
    bucket.take(60)
    assert bucket.wait(60, now=3600.0) == pytest.approx(60.0)
    bucket.take(-1000)
    bucket.take(60)
    assert bucket.wait(1, now=3600.0) == pytest.approx(1.0)


def test_more_than_a_bucket_can_hold_passes_when_it_is_full_and_leaves_a_debt() -> None:
    bucket = TokenBucket(60, now=0.0)
    assert bucket.wait(600, now=0.0) == 0.0
    bucket.take(600)
    assert bucket.wait(1, now=0.0) == pytest.approx(541.0)


def test_a_clock_that_is_set_back_frees_no_tokens() -> None:
    bucket = TokenBucket(60, now=100.0)
    bucket.take(60)
    assert bucket.wait(1, now=0.0) == pytest.approx(1.0)
    assert bucket.wait(1, now=1.0) == pytest.approx(0.0)


def test_requests_and_tokens_are_both_limited() -> None:
    rates = RateLimiter(requests_per_minute=2, tokens_per_minute=1000, now=0.0)
    rates.take(900)
    assert rates.wait(100, now=0.0) == 0.0
    assert rates.wait(200, now=0.0) == pytest.approx(6.0)
    rates.take(100)
    assert rates.wait(0, now=0.0) == pytest.approx(30.0)


def test_wrong_estimates_are_corrected() -> None:
    rates = RateLimiter(requests_per_minute=None, tokens_per_minute=1000, now=0.0)
    rates.take(1000)
    rates.correct(-900)
    assert rates.wait(900, now=0.0) == 0.0
    rates.correct(900)
    assert rates.wait(1, now=0.0) > 0


def test_no_limit_is_no_wait() -> None:
    rates = RateLimiter(None, None, now=0.0)
    for _ in range(1000):
        rates.take(10**9)
    assert rates.wait(10**9, now=0.0) == 0.0


@given(
    rate=st.integers(1, 100),
    pauses=st.lists(st.floats(0, 30), min_size=1, max_size=60),
)
def test_no_span_of_time_sees_more_than_its_rate_and_one_bucketful(
    rate: int, pauses: list[float]
) -> None:
    bucket, now, taken = TokenBucket(rate, now=0.0), 0.0, 0
    for pause in pauses:
        now += pause
        while bucket.wait(1, now) == 0.0:
            bucket.take(1)
            taken += 1
        assert taken <= rate + rate * now / 60 + 1e-6


@given(rate=st.integers(1, 10_000), taken=st.integers(0, 50_000), wanted=st.integers(0, 50_000))
def test_the_reported_wait_is_sufficient_and_half_is_not(
    rate: int, taken: int, wanted: int
) -> None:
    bucket = TokenBucket(rate, now=0.0)
    bucket.take(taken)
    wait = bucket.wait(wanted, now=0.0)
    if wait:
        assert bucket.wait(wanted, now=wait / 2) > 0
        assert bucket.wait(wanted, now=wait) == pytest.approx(0.0, abs=1e-6)
