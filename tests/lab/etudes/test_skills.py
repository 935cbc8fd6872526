"""What each skill answers, and what it refuses."""

from __future__ import annotations

from random import Random

import pytest

from podium_lab.etudes.skills import FAMILIES, SKILLS, Arguments
from podium_lab.etudes.values import HIGHEST, Kind, named_values, number, towns


def arguments(name: str, *texts: str) -> Arguments:
    """The values that are written so, of the kinds that the skill takes."""
    values = []
    for where, text in enumerate(texts):
        kinds = SKILLS[name].kinds(where)
        values.append(next(value for value in named_values(text) if value.kind in kinds))
    return tuple(values)


@pytest.mark.parametrize(
    ("name", "texts", "answer"),
    [
        ("add", ("58", "41"), "99"),
        ("subtract", ("95", "38"), "57"),
        ("times", ("12", "8"), "96"),
        ("double", ("49",), "98"),
        ("half", ("98",), "49"),
        ("sum", ("12", "15", "13"), "40"),
        ("difference", ("3", "41"), "38"),
        ("largest", ("9", "80", "11"), "80"),
        ("smallest", ("9", "80", "11"), "9"),
        ("ascending", ("9", "80", "11"), "9, 11, 80"),
        ("first", ("Monday", "Friday", "Sunday"), "Monday"),
        ("last", ("fox", "moon", "bell"), "bell"),
        ("count", ("fox", "moon", "bell", "sun"), "4"),
        ("opposite", ("late",), "early"),
        ("plural", ("mouse",), "mice"),
        ("letters", ("Wednesday",), "9"),
        ("first_letter", ("hundo",), "H"),
        ("alphabetical", ("moon", "bell"), "bell"),
        ("hyphen", ("moon", "12", "May"), "moon-12-May"),
        ("day_after", ("Friday", "6"), "Thursday"),
        ("day_before", ("Monday", "2"), "Saturday"),
        ("month_after", ("November", "3"), "February"),
        ("month_before", ("January", "6"), "July"),
        ("month_number", ("September",), "9"),
        ("days_in", ("February",), "28"),
        ("month_of", ("12",), "December"),
        ("season", ("December",), "winter"),
        ("season", ("February",), "winter"),
        ("season", ("March",), "spring"),
        ("season", ("November",), "autumn"),
        ("to_esperanto", ("Thursday",), "ĵaŭdo"),
        ("to_esperanto", ("17",), "dek sep"),
        ("from_esperanto", ("luno",), "moon"),
        ("number_from_esperanto", ("dudek",), "20"),
        ("all_to_esperanto", ("fox", "3"), "vulpo, tri"),
        ("to_roman", ("49",), "XLIX"),
        ("from_roman", ("XIV",), "14"),
        ("all_to_roman", ("4", "50"), "IV, L"),
        ("letter_number", ("Z",), "26"),
        ("number_letter", ("10",), "J"),
        ("dozens", ("8",), "96"),
        ("weeks", ("14",), "98"),
        ("yards", ("33",), "99"),
    ],
)
def test_a_skill_answers_exactly(name: str, texts: tuple[str, ...], answer: str) -> None:
    solved = SKILLS[name].solve(arguments(name, *texts))
    assert solved is not None
    assert solved.text == answer


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("add", ("59", "41")),
        ("subtract", ("3", "4")),
        ("sum", ("12", "15", "14")),
        ("largest", ("9", "9", "3")),
        ("alphabetical", ("moon", "mouse")),
        ("alphabetical", ("moon", "May")),
        ("times", ("12", "9")),
        ("times", ("21", "4")),
    ],
)
def test_a_skill_refuses_what_is_too_large_or_has_no_one_answer(
    name: str, texts: tuple[str, ...]
) -> None:
    assert SKILLS[name].solve(arguments(name, *texts)) is None


def test_the_archive_is_read_by_number_by_name_and_by_motto() -> None:
    for where, town in enumerate(towns(), start=1):
        assert SKILLS["town_by_number"].solve((number(where),)) == town.name
        assert SKILLS["town_by_motto"].solve((town.motto,)) == town.name
        for name in ("bridges", "motto", "market", "fair"):
            assert SKILLS[name].solve((town.name,)) == getattr(town, name)


@pytest.mark.parametrize("name", [skill.name for skill in SKILLS.values() if skill.leaf])
def test_literals_that_are_drawn_have_an_answer_of_a_promised_kind(name: str) -> None:
    skill = SKILLS[name]
    rng = Random(7)
    answers = [skill.solve(skill.draw(rng, {})) for _ in range(200)]
    found = [answer for answer in answers if answer is not None]
    assert len(found) > 100
    assert {answer.kind for answer in found} <= skill.results
    numbers = [int(answer.text) for answer in found if answer.kind is Kind.NUMBER]
    assert all(0 <= n <= HIGHEST for n in numbers)


def test_every_family_has_several_skills() -> None:
    for family in FAMILIES:
        assert sum(skill.family is family for skill in SKILLS.values()) >= 4
