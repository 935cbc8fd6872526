"""Sums, differences, small products, doubles and halves of numbers from 0 to 199."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from podium.etudes.skills.base import Arguments, Family, Skill, is_number, join_all, lookup
from podium.etudes.values import HIGHEST, Kind, Value, number

LARGEST_SUM_OF_THREE: Final = 60
"""Three numbers at once carry more than two do, so they are kept small."""

NUMBER: Final = frozenset({Kind.NUMBER})


def _draw_add(rng: Random, given: Mapping[int, Value]) -> Arguments:
    first = given[0] if 0 in given else number(rng.randint(1, 99))
    return first, number(rng.randint(1, min(99, HIGHEST - int(first.text))))


def _draw_subtract(rng: Random, given: Mapping[int, Value]) -> Arguments:
    first = given[0] if 0 in given else number(rng.randint(5, 150))
    return first, number(rng.randint(1, min(99, int(first.text))))


def _draw_times(rng: Random, given: Mapping[int, Value]) -> Arguments:
    first = given[0] if 0 in given else number(rng.randint(2, 20))
    return first, number(rng.randint(2, 9))


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
    return number(one * other) if one <= 20 and other <= 9 else None


SKILLS: Final = (
    Skill(
        Family.ARITHMETIC,
        "add",
        ("a", "b"),
        (NUMBER, NUMBER),
        accepts=lambda place, value: is_number(value, 0, HIGHEST - 10),
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
        accepts=lambda place, value: is_number(value, 3, HIGHEST),
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
        accepts=lambda place, value: is_number(value, 2, 20),
        draw=_draw_times,
        solve=_times,
        results=NUMBER,
    ),
    lookup(Family.ARITHMETIC, "double", {number(n): number(2 * n) for n in range(1, 100)}),
    lookup(Family.ARITHMETIC, "half", {number(2 * n): number(n) for n in range(1, 100)}),
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
