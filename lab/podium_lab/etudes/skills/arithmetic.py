"""Sums, differences, small products, doubles and halves of numbers from 0 to 99."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from podium_lab.etudes.skills.base import Arguments, Family, Skill, is_number, join_all, lookup
from podium_lab.etudes.values import HIGHEST, Kind, Value, number

LARGEST_SUM_OF_THREE: Final = 40
"""Three numbers at once carry more than two do, so they are kept small."""

LARGEST_TO_ADD_TO: Final = HIGHEST - 10
"""Closer to the highest number, there would be hardly anything left to add."""

LARGEST_TO_MULTIPLY: Final = 20

NUMBER: Final = frozenset({Kind.NUMBER})


def _draw_add(rng: Random, given: Mapping[int, Value]) -> Arguments:
    first = given[0] if 0 in given else number(rng.randint(1, LARGEST_TO_ADD_TO))
    return first, number(rng.randint(1, HIGHEST - int(first.text)))


def _draw_subtract(rng: Random, given: Mapping[int, Value]) -> Arguments:
    first = given[0] if 0 in given else number(rng.randint(5, HIGHEST))
    return first, number(rng.randint(1, int(first.text)))


def _draw_times(rng: Random, given: Mapping[int, Value]) -> Arguments:
    first = given[0] if 0 in given else number(rng.randint(2, LARGEST_TO_MULTIPLY))
    return first, number(rng.randint(2, min(9, HIGHEST // int(first.text))))


def _within(result: int) -> Value | None:
    return number(result) if 0 <= result <= HIGHEST else None


def _sum(arguments: Arguments) -> Value | None:
    total = sum(int(argument.text) for argument in arguments)
    if len(arguments) > 2 and total > LARGEST_SUM_OF_THREE:
        return None
    return _within(total)


def _difference(arguments: Arguments) -> Value | None:
    one, other = (int(argument.text) for argument in arguments)
    return number(abs(one - other))


def _subtract(arguments: Arguments) -> Value | None:
    one, other = (int(argument.text) for argument in arguments)
    return _within(one - other)


def _times(arguments: Arguments) -> Value | None:
    one, other = (int(argument.text) for argument in arguments)
    return _within(one * other) if one <= LARGEST_TO_MULTIPLY and other <= 9 else None


_DOUBLES: Final = {number(n): number(2 * n) for n in range(1, HIGHEST // 2 + 1)}

SKILLS: Final = (
    Skill(
        Family.ARITHMETIC,
        "add",
        ("a", "b"),
        (NUMBER, NUMBER),
        accepts=lambda position, value: is_number(value, 0, LARGEST_TO_ADD_TO),
        draw=_draw_add,
        solve=_sum,
        results=NUMBER,
        operands="sum",
    ),
    Skill(
        Family.ARITHMETIC,
        "subtract",
        ("a", "b"),
        (NUMBER, NUMBER),
        accepts=lambda position, value: is_number(value, 3, HIGHEST),
        draw=_draw_subtract,
        solve=_subtract,
        results=NUMBER,
        operands="difference",
    ),
    Skill(
        Family.ARITHMETIC,
        "times",
        ("a", "b"),
        (NUMBER, NUMBER),
        accepts=lambda position, value: is_number(value, 2, LARGEST_TO_MULTIPLY),
        draw=_draw_times,
        solve=_times,
        results=NUMBER,
    ),
    lookup(Family.ARITHMETIC, "double", _DOUBLES),
    lookup(Family.ARITHMETIC, "half", {double: half for half, double in _DOUBLES.items()}),
    join_all(Family.ARITHMETIC, "sum", _sum, NUMBER, Kind.NUMBER, operands="sum"),
    join_all(
        Family.ARITHMETIC,
        "difference",
        _difference,
        NUMBER,
        Kind.NUMBER,
        sizes=(2,),
        operands="difference",
    ),
)
