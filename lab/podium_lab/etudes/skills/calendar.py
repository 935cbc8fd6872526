"""Weekdays, months and seasons; a year has 365 days and its winter begins in December."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from podium_lab.etudes.skills.base import COUNT, Arguments, Family, Skill, is_number, lookup
from podium_lab.etudes.values import MONTHS, WEEKDAYS, Kind, Value, number

_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SEASONS: Final = ("winter", "spring", "summer", "autumn")
_MOST: Final = 6
"""The most days or months to count; farther than that, a small model loses its place."""


def _shift(name: str, wheel: tuple[Value, ...], direction: int) -> Skill:
    """Going round the week or the year; one step would not be worth a count."""
    place_of = {value: position for position, value in enumerate(wheel)}

    def accepts(position: int, value: Value) -> bool:
        return value in place_of if position == 0 else is_number(value, 2, _MOST)

    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        start = given[0] if 0 in given else rng.choice(wheel)
        return start, given[1] if 1 in given else number(rng.randint(2, _MOST))

    def solve(arguments: Arguments) -> Value | None:
        start, count = arguments
        return wheel[(place_of[start] + direction * int(count.text)) % len(wheel)]

    return Skill(
        Family.CALENDAR,
        name,
        ("a", COUNT),
        (frozenset({wheel[0].kind}), frozenset({Kind.NUMBER})),
        accepts=accepts,
        draw=draw,
        solve=solve,
        results=frozenset({wheel[0].kind}),
        refers=(0, 1),
        joins=(2,),
    )


def _season(position: int) -> Value:
    return Value(Kind.WORD, _SEASONS[(position + 1) % 12 // 3])


SKILLS: Final = (
    _shift("day_after", WEEKDAYS, 1),
    _shift("day_before", WEEKDAYS, -1),
    _shift("month_after", MONTHS, 1),
    _shift("month_before", MONTHS, -1),
    lookup(
        Family.CALENDAR,
        "month_number",
        {month: number(position) for position, month in enumerate(MONTHS, start=1)},
    ),
    lookup(
        Family.CALENDAR,
        "days_in",
        {month: number(length) for month, length in zip(MONTHS, _LENGTHS, strict=True)},
    ),
    lookup(
        Family.CALENDAR,
        "month_of",
        {number(position): month for position, month in enumerate(MONTHS, start=1)},
    ),
    lookup(
        Family.CALENDAR,
        "season",
        {month: _season(position) for position, month in enumerate(MONTHS)},
    ),
)
