from __future__ import annotations

import pytest

from evals.samples import sample
from podium.evals.page.families import Family, family, leading, planning
from podium.evals.strategies import STRATEGIES
from podium.evals.tables.comparison import CEILING
from podium.evals.tables.row import Row


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        ("conductor", "conducted"),
        ("untrained:compact", "conducted"),
        ("single:gpt-5", "alone"),
        ("best-single", "alone"),
        ("best-of-5:gpt-5", "other"),
        ("moa-3", "other"),
        ("mine.py:answer", "other"),
        ("ideal", "ceiling"),
        (CEILING, "ceiling"),
    ],
)
def test_strategies_are_of_kinds(strategy: str, kind: Family) -> None:
    assert family(strategy) == kind


def test_what_is_said_to_conduct_are_strategies_that_there_are() -> None:
    conducted = [name for name in STRATEGIES if family(name) == "conducted"]
    assert conducted == ["conductor", "recursion", "rules", "untrained"]


def row(strategy: str, *outcomes: bool) -> Row:
    return Row(strategy, tuple(sample(right) for right in outcomes))


def test_a_page_is_about_the_best_that_conducts_however_good_the_others_are() -> None:
    weak, strong = row("rules", False), row("conductor", True, False)
    others = [row("ideal", True), row("moa", True), row("best-single", True)]
    assert leading([weak, *others, strong]) is strong
    assert leading(others).strategy == "moa"
    assert leading([others[0], others[2]]).strategy == "best-single"
    assert leading([others[0]]).strategy == "ideal"


def test_steps_tell_nothing_where_everybody_has_one() -> None:
    two = Row("conductor", (sample(True, workers=("a", "b")),))
    assert planning([two, row("random", True), row("single:a", True), row(CEILING, True)]) == [two]
