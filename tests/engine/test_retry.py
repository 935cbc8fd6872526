from __future__ import annotations

from podium.core.errors import AuthenticationFailed, RateLimited, Unavailable
from podium.engine import RetryPolicy

POLICY = RetryPolicy(attempts=4, initial_wait_seconds=1.0, max_wait_seconds=3.0, jitter=lambda: 1.0)


def test_waits_double_up_to_the_longest() -> None:
    error = Unavailable("down")
    assert [POLICY.wait_before(n, error) for n in (1, 2, 3, 4)] == [1.0, 2.0, 3.0, None]


def test_jitter_takes_off_up_to_half_of_a_wait() -> None:
    policy = RetryPolicy(initial_wait_seconds=1.0, jitter=lambda: 0.0)
    assert policy.wait_before(1, Unavailable("down")) == 0.5


def test_the_wait_that_a_provider_asked_for_is_honoured() -> None:
    assert POLICY.wait_before(1, RateLimited("slow down", retry_after=7.5)) == 7.5


def test_a_provider_that_asks_for_too_long_a_wait_is_given_up() -> None:
    assert POLICY.wait_before(1, RateLimited("tomorrow", retry_after=86_400)) is None


def test_an_error_that_cannot_pass_is_not_retried() -> None:
    assert POLICY.wait_before(1, AuthenticationFailed("bad key")) is None
