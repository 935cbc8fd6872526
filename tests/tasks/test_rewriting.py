from __future__ import annotations

import pytest

from podium.tasks.mathematics import is_equal
from tasks.agreement import near_misses, rewrite_answer

ANSWERS = [
    "\\frac{14}{3}",
    "-\\frac43",
    "\\frac{1}{4}",
    "90^\\circ",
    "\\$32,\\!348",
    "5.4 \\text{ cents}",
    "864 \\mbox{ inches}^2",
    "42",
    "3, 5, 7",
    "\\{1\\pm\\sqrt{5},-2\\}",
    "1 \\pm \\sqrt{19}",
    "(-\\infty, 2) \\cup (3, \\infty)",
    "\\left( 3, \\frac{\\pi}{2} \\right)",
    "\\begin{pmatrix} -1/3 \\\\ 2/3 \\end{pmatrix}",
    "52_8",
    "\\text{(C)}",
    "\\cot x",
    "58,500",
]


def texts(answer: str, how: str) -> list[str]:
    return [way.text for way in rewrite_answer(answer) if way.how == how]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_rewriting_is_graded_as_the_answer_itself(answer: str) -> None:
    for way in rewrite_answer(answer):
        assert await is_equal(way.text, answer), way


@pytest.mark.parametrize("answer", [*ANSWERS, "(2,5)", "[1,2)", "1+2i", "0.15", "3\\sqrt{13}"])
async def test_a_near_miss_is_not(answer: str) -> None:
    for miss in near_misses(answer):
        assert not await is_equal(miss.text, answer), miss


def test_fractions_are_written_in_every_usual_way() -> None:
    ways = texts("\\frac{1}{4}", "fractions")
    assert ways == ["\\dfrac{1}{4}", "\\tfrac{1}{4}", "\\frac {1} {4}", "1/4", "0.25"]
    assert texts("-\\frac43", "fractions")[-1] == "-4/3"


def test_units_are_taken_away_and_added() -> None:
    assert "90" in texts("90^\\circ", "units")
    assert "42\\text{ cm}" in texts("42", "units")
    assert "32,348 dollars" in texts("\\$32,\\!348", "units")


def test_only_what_has_no_order_is_put_in_another() -> None:
    assert "7, 5, 3" in texts("3, 5, 7", "ordering")
    assert texts("1 \\pm \\sqrt{19}", "ordering") == ["1-\\sqrt{19}, 1+\\sqrt{19}"]
    assert texts("(3,5)", "ordering") == []
    for one_thing in ("58,500", "10{,}080", "10,\\!080", "\\$115,000", "\\text{A, C}"):
        assert texts(one_thing, "ordering") == []


def test_nothing_is_written_twice_or_as_it_was() -> None:
    for answer in ANSWERS:
        written = [way.text for way in rewrite_answer(answer)]
        assert answer not in written
        assert len(written) == len(set(written)) > 3


def test_near_misses_differ_in_what_matters() -> None:
    assert {miss.how: miss.text for miss in near_misses("(2,5]")} == {
        "other order": "(5,2]",
        "other brackets": "[2,5)",
    }
    assert [miss.text for miss in near_misses("52_8")] == ["52_{9}"]
    assert near_misses("(3,3)") == []
