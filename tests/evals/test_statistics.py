from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.evals.results import (
    bootstrap,
    estimate_share,
    mcnemar,
    mean,
    paired_difference,
    quantile,
    wilson,
)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (1, 29, 0.0061, 0.1718),
        (0, 20, 0.0, 0.1611),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_wilsons_interval_is_the_published_one(
    successes: int, trials: int, low: float, high: float
) -> None:
    """The first four are the worked examples of Newcombe (1998), method 3."""
    share = wilson(successes, trials)
    assert share.value == successes / trials
    assert share.low == pytest.approx(low, abs=1e-4)
    assert share.high == pytest.approx(high, abs=1e-4)


def test_of_no_trials_nothing_is_known() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)


def test_more_successes_than_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        wilson(3, 2)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_lies_in_its_interval(counts: tuple[int, int]) -> None:
    share = wilson(*counts)
    assert 0.0 <= share.low <= share.value <= share.high <= 1.0


def test_a_difference_counts_only_the_tasks_on_which_the_two_differ() -> None:
    one = [True] * 30 + [False] * 70
    other = [True] * 10 + [False] * 20 + [True] * 5 + [False] * 65
    difference = paired_difference(one, other)
    assert (difference.gained, difference.lost) == (20, 5)
    assert difference.estimate.value == pytest.approx(0.15)
    # Agresti and Min: (20.5 - 5.5) / 102 -/+ z * sqrt(26 - 15**2 / 102) / 102
    assert difference.estimate.low == pytest.approx(0.1471 - 0.0937, abs=1e-3)
    assert difference.estimate.high == pytest.approx(0.1471 + 0.0937, abs=1e-3)
    assert difference.p_value == pytest.approx(0.0041, abs=1e-4)


def test_outcomes_of_different_tasks_are_not_compared() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        paired_difference([True], [])


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_turning_a_comparison_round_turns_its_interval_round(
    pairs: list[tuple[bool, bool]],
) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    there, back = paired_difference(one, other).estimate, paired_difference(other, one).estimate
    assert there.low <= there.value <= there.high
    assert (there.value, there.low, there.high) == pytest.approx(
        (-back.value, -back.high, -back.low)
    )


def test_mcnemars_test_is_the_exact_binomial_one() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 5) == 1.0
    assert mcnemar(0, 6) == pytest.approx(2 / 64)
    assert mcnemar(6, 0) == mcnemar(0, 6)
    assert mcnemar(700, 100) < 1e-100


def test_a_mean_with_an_unknown_part_is_unknown() -> None:
    assert mean([1, 2, 6]) == 3.0
    assert mean([1, None]) is None
    assert mean([]) is None


def test_the_bootstrap_of_many_independent_tasks_agrees_with_wilson() -> None:
    outcomes = [1.0] * 700 + [0.0] * 300
    drawn, exact = bootstrap(outcomes), wilson(700, 1000)
    assert (drawn.low, drawn.high) == pytest.approx((exact.low, exact.high), abs=0.004)
    assert bootstrap(outcomes) == drawn


def test_the_bootstrap_is_the_same_in_whatever_order_samples_were_written() -> None:
    outcomes = [tenths / 10 for tenths in (0, 1, 3, 3, 5, 7, 7, 8, 9, 10)]
    assert bootstrap(outcomes[::-1]) == bootstrap(outcomes)


def test_tries_of_one_task_make_no_interval_narrower_than_the_tasks_allow() -> None:
    """Ten tries that always agree are worth no more than one."""
    assert estimate_share([1.0, 0.0, 1.0, 1.0]) == wilson(3, 4)
    sometimes = estimate_share([0.9, 0.1, 1.0, 0.8])
    assert sometimes.value == pytest.approx(0.7)
    assert sometimes.low < 0.5 < 0.9 < sometimes.high


def test_of_few_tasks_little_is_known_however_often_they_were_tried() -> None:
    half = estimate_share([0.5, 0.5])
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.0945, 0.9055), abs=1e-4)
    difference = paired_difference([2 / 3, 2 / 3], [1 / 3, 1 / 3]).estimate
    assert difference.low < 0 < difference.value == pytest.approx(1 / 3)
    many = estimate_share([0.4, 0.6] * 20)
    assert many.high - many.low < 0.1


def test_of_several_repeats_a_task_counts_for_the_strategy_that_is_right_more_often() -> None:
    difference = paired_difference([2 / 3, 1.0, 0.0, 1 / 3], [1 / 3, 1.0, 1 / 3, 0.0])
    assert (difference.gained, difference.lost) == (2, 1)
    assert difference.estimate.value == pytest.approx(1 / 12)
    assert difference.p_value == mcnemar(2, 1)


def test_of_no_numbers_there_is_no_mean_to_draw() -> None:
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_mean_lies_in_its_interval(numbers: list[float]) -> None:
    share = bootstrap(numbers)
    assert share.low <= share.value <= share.high


def test_quantiles_lie_between_neighbours_in_proportion() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.25) == 1.25
    assert (quantile([1.0, 2.0], 0.0), quantile([1.0, 2.0], 1.0)) == (1.0, 2.0)
    assert quantile([], 0.5) is None
