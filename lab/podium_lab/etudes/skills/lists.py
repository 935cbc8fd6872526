"""Picking from lists, counting them, and putting numbers in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from podium_lab.etudes.skills.base import ITEMS, Arguments, Family, Skill, is_number
from podium_lab.etudes.values import HIGHEST, MONTHS, WEEKDAYS, WORDS, Kind, Value, number, towns

NUMBERS: Final = tuple(number(n) for n in range(1, 100))
SHELVES: Final = (NUMBERS, WORDS, tuple(town.name for town in towns()), WEEKDAYS, MONTHS)
"""What literal lists are made of; the items of one list are of one kind."""

LONGEST: Final = 4
"""The most items of a literal list."""

_KINDS: Final = frozenset(shelf[0].kind for shelf in SHELVES)
_BY_TEXT: Final = {value.text: value for shelf in SHELVES for value in shelf}


def _draw_numbers(
    shortest: int, longest: int
) -> Callable[[Random, Mapping[int, Value]], Arguments]:
    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        length = rng.randint(shortest, longest)
        items = rng.sample(NUMBERS, length)
        if 0 in given:
            items = [given[0], *(item for item in items if item != given[0])][:length]
        return tuple(items)

    return draw


def _draw_items(shortest: int, longest: int) -> Callable[[Random, Mapping[int, Value]], Arguments]:
    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        return tuple(rng.sample(rng.choice(SHELVES), rng.randint(shortest, longest)))

    return draw


def _draw_either_way(
    winner: Callable[[Arguments], Value],
) -> Callable[[Random, Mapping[int, Value]], Arguments]:
    """Lists in which an earlier result is as often the answer as not, so that neither the result
    nor the list can be left out."""
    draw = _draw_numbers(3, LONGEST)
    beaten_by = {
        one: tuple(other for other in NUMBERS if other != one == winner((one, other)))
        for one in map(number, range(HIGHEST + 1))
    }

    def draw_either_way(rng: Random, given: Mapping[int, Value]) -> Arguments:
        items = draw(rng, given)
        if 0 in given and rng.random() < 0.5:
            beaten = beaten_by[given[0]]
            if len(beaten) >= len(items) - 1:
                return given[0], *rng.sample(beaten, len(items) - 1)
        elif 0 in given and winner(items) == given[0]:
            return draw(rng, given)
        return items

    return draw_either_way


def _draw_item(rng: Random, given: Mapping[int, Value]) -> Arguments:
    items = rng.sample(rng.choice(SHELVES), LONGEST)
    position = given[0] if 0 in given else number(rng.randint(1, LONGEST))
    return position, Value(Kind.LIST, ", ".join(item.text for item in items))


def _item(arguments: Arguments) -> Value | None:
    position, items = arguments
    texts = items.text.split(", ")
    place = int(position.text)
    return _BY_TEXT.get(texts[place - 1]) if 1 <= place <= len(texts) else None


def _size(value: Value) -> int:
    return int(value.text)


def _ascending(arguments: Arguments) -> Value:
    return Value(Kind.LIST, ", ".join(item.text for item in sorted(arguments, key=_size)))


def _largest(arguments: Arguments) -> Value:
    return max(arguments, key=_size)


def _smallest(arguments: Arguments) -> Value:
    return min(arguments, key=_size)


def _of_numbers(
    name: str,
    solve: Callable[[Arguments], Value],
    draw: Callable[[Random, Mapping[int, Value]], Arguments],
    results: Kind,
) -> Skill:
    """A skill on numbers, some of which may be earlier results."""

    def solve_distinct(arguments: Arguments) -> Value | None:
        return solve(arguments) if len(set(arguments)) == len(arguments) > 1 else None

    return Skill(
        Family.LISTS,
        name,
        (ITEMS,),
        (frozenset({Kind.NUMBER}),),
        accepts=lambda place, value: is_number(value, 0, HIGHEST),
        draw=draw,
        solve=solve_distinct,
        results=frozenset({results}),
        joins=(2, 3),
        operands="items",
    )


def _of_anything(
    name: str, solve: Callable[[Arguments], Value], results: frozenset[Kind], shortest: int
) -> Skill:
    """A skill on a literal list of any one kind."""
    return Skill(
        Family.LISTS,
        name,
        (ITEMS,),
        (_KINDS,),
        accepts=lambda place, value: value.kind in _KINDS,
        draw=_draw_items(shortest, LONGEST),
        solve=solve,
        results=results,
        refers=(),
        operands="items",
    )


SKILLS: Final = (
    _of_numbers("largest", _largest, _draw_either_way(_largest), Kind.NUMBER),
    _of_numbers("smallest", _smallest, _draw_either_way(_smallest), Kind.NUMBER),
    _of_numbers("ascending", _ascending, _draw_numbers(3, 3), Kind.LIST),
    _of_anything("first", lambda items: items[0], _KINDS, 3),
    _of_anything("last", lambda items: items[-1], _KINDS, 3),
    _of_anything("count", lambda items: number(len(items)), frozenset({Kind.NUMBER}), 2),
    Skill(
        Family.LISTS,
        "item",
        ("a", "b"),
        (frozenset({Kind.NUMBER}), frozenset({Kind.LIST})),
        accepts=lambda place, value: is_number(value, 1, LONGEST),
        draw=_draw_item,
        solve=_item,
        results=_KINDS,
        operands="items",
    ),
)
