from __future__ import annotations

from dataclasses import replace

import pytest

from podium.core.request import (
    FREE,
    MAX_TOKENS,
    NO_USAGE,
    UNKNOWN_USAGE,
    Price,
    Usage,
    plausible_usage,
)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    total = Usage(10, 5, 0, None, 0) + Usage(1, 2, 0, 0, 0)
    assert total == Usage(11, 7, 0, None, 0)
    assert (NO_USAGE + UNKNOWN_USAGE).total_tokens is None


def test_cached_and_written_tokens_are_part_of_the_input_and_priced_apart() -> None:
    price = Price(input=2.0, output=10.0, cached=0.2, cache_write=2.5)
    usage = Usage(1_000_000, 100_000, 400_000, 0, 100_000)
    assert price.cost(usage) == pytest.approx(0.5 * 2.0 + 0.4 * 0.2 + 0.1 * 2.5 + 0.1 * 10.0)


def test_tokens_that_are_cached_for_an_hour_have_a_price_of_their_own() -> None:
    usage = Usage(1_000_000, 0, 0, 0, 500_000, 200_000)
    price = Price(input=2.0, output=10.0, cache_write=2.5, cache_write_1h=4.0)
    assert price.cost(usage) == pytest.approx(0.5 * 2.0 + 0.3 * 2.5 + 0.2 * 4.0)
    assert replace(price, cache_write_1h=None).cost(usage) == pytest.approx(1.0 + 0.5 * 2.5)
    assert price.cost(replace(usage, cache_write_1h_tokens=None)) is None
    assert price.highest_input == 4.0


def test_without_a_cached_price_cached_tokens_cost_what_input_costs() -> None:
    assert Price(input=3.0, output=0.0).cost(Usage(1_000_000, 0, 400_000, 0, 0)) == 3.0


def test_the_cost_of_unknown_usage_is_unknown_unless_everything_is_free() -> None:
    assert Price(input=0, output=1).cost(UNKNOWN_USAGE) is None
    assert FREE.cost(UNKNOWN_USAGE) == 0.0


def test_a_cache_that_costs_less_but_was_not_reported_makes_the_cost_unknown() -> None:
    assert Price(input=1.0, output=1.0, cached=0.1).cost(Usage(10, 10, None, 0, 0)) is None


def test_a_long_input_is_priced_as_a_whole_at_the_higher_rate() -> None:
    price = Price(
        input=1.0, output=10.0, long_input=Price(input=2.0, output=15.0, above_tokens=200_000)
    )
    assert price.cost(Usage(200_000, 0, 0, 0, 0)) == pytest.approx(0.2)
    assert price.cost(Usage(300_000, 100_000, 0, 0, 0)) == pytest.approx(0.6 + 1.5)
    assert (price.highest_input, price.highest_output) == (2.0, 15.0)


@pytest.mark.parametrize(
    ("counted", "kept"),
    [
        (Usage(10, 5, 10, 5, 0), Usage(10, 5, 10, 5, 0)),
        (Usage(10, 5, 11, 5, 0), Usage(10, 5, None, 5, None)),
        (Usage(10, 5, 6, 5, 5), Usage(10, 5, None, 5, None)),
        (Usage(10, 5, 0, 6, 0), Usage(10, 5, 0, None, 0)),
        (Usage(10, 5, 0, 5, 4, 4), Usage(10, 5, 0, 5, 4, 4)),
        (Usage(10, 5, 0, 5, 4, 5), Usage(10, 5, 0, 5, 4, None)),
        (Usage(None, None, 7, 7, 7), Usage(None, None, 7, 7, 7)),
        (Usage(-40, -2, 0, 0, 0), Usage(None, None, 0, 0, 0)),
        (Usage(10, 5, -1, 0, 0), Usage(10, 5, None, 0, 0)),
        (Usage(MAX_TOKENS, MAX_TOKENS, 0, 0, 0), Usage(MAX_TOKENS, MAX_TOKENS, 0, 0, 0)),
        (Usage(MAX_TOKENS + 1, 5, 0, 0, 0), Usage(None, 5, 0, 0, 0)),
        (Usage(10, 5.5, 0, 0, 0), Usage(10, None, 0, 0, 0)),  # type: ignore[arg-type]
        (Usage("10", True, 0, 0, 0), Usage(None, None, 0, 0, 0)),  # type: ignore[arg-type]
    ],
)
def test_counts_that_cannot_be_are_unknown(counted: Usage, kept: Usage) -> None:
    assert plausible_usage(counted) == kept
