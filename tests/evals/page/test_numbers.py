from __future__ import annotations

import pytest

from podium.evals.page.numbers import amount, chance, percent, plural, points, seconds, span, usd
from podium.evals.tables.statistics import Share


@pytest.mark.parametrize(
    ("dollars", "told"),
    [(None, "–"), (0, "$0"), (12.5, "$12.50"), (0.25, "$0.25"), (0.0067, "$0.0067"),
     (0.000092, "$0.000092")],
)  # fmt: skip
def test_money_has_as_many_digits_as_it_takes(dollars: float | None, told: str) -> None:
    assert usd(dollars) == told


@pytest.mark.parametrize(
    ("number", "told"),
    [(None, "–"), (5218.4, "5,218"), (33.33, "33.3"), (3.333, "3.33"), (4.0, "4"), (0, "0")],
)
def test_counts_have_three_digits_or_so(number: float | None, told: str) -> None:
    assert amount(number) == told


def test_differences_have_their_sign_and_nothing_is_no_minus() -> None:
    assert [points(share) for share in (0.215, -0.08, 0.0, -0.0001)] == ["+21.5", "−8.0", "±0.0",
                                                                         "±0.0"]  # fmt: skip
    assert span(Share(0, -0.011, 0.5)) == "−1.1 to 50.0"


def test_times_chances_and_counts_of_things() -> None:
    assert [seconds(s) for s in (None, 0.8, 1.74, 1200)] == ["–", "800 ms", "1.7 s", "1,200 s"]
    assert [chance(p) for p in (1e-9, 0.0433)] == ["p < 0.001", "p = 0.043"]
    assert [plural(n, "task") for n in (0, 1, 2000)] == ["0 tasks", "1 task", "2,000 tasks"]
    assert plural(2, "strategy", "strategies") == "2 strategies"
    assert (percent(None), percent(0.8333)) == ("–", "83.3 %")
