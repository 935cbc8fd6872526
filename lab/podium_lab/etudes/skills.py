"""The skills of the seven families: each one thing that one specialist can do, exact and checkable.

arithmetic   sums, differences, products, doubles, halves of numbers from 0 to 99
lists        largest, smallest, first, last, count, ascending order
words        opposites, plurals, letters, alphabetical order, hyphens
calendar     weekdays, months, seasons; a year has 365 days
facts        an invented archive of towns
translation  Esperanto
codes        Roman numerals up to 50, positions in the alphabet, units
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import MappingProxyType
from typing import Final

from podium_lab.etudes.values import (
    HIGHEST,
    LETTERS,
    MONTHS,
    NUMBERS,
    ROMAN_NUMERALS,
    WEEKDAYS,
    WORDS,
    Kind,
    Value,
    esperanto_numbers,
    esperanto_words,
    opposites,
    plurals,
    towns,
)

Arguments = tuple[Value, ...]
Draw = Callable[[Random, Mapping[int, Value]], Arguments]
"""Adds literals to the given arguments, which are earlier results by position."""


class Family(StrEnum):
    """The skills of one specialist."""

    ARITHMETIC = "arithmetic"
    LISTS = "lists"
    WORDS = "words"
    CALENDAR = "calendar"
    FACTS = "facts"
    TRANSLATION = "translation"
    CODES = "codes"


FAMILIES: Final = tuple(Family)

ITEMS: Final = "items"
"""The slot that takes all arguments at once, as a list."""

COUNT: Final = "n"
"""The slot for a number that counts something: earlier results enter it as `that many`."""


@dataclass(frozen=True, slots=True, eq=False)
class Skill:
    """One operation on typed values.

    `slots` name the arguments in phrases. `may_take` tells whether an earlier result may stand in a
    position, `draw` adds literals, and `compute` gives the answer. A skill with `leaf` may begin a
    question with literals.
    `refers` are the positions that one earlier result may fill, `joins` the numbers of earlier
    results that may fill all positions. `split_key` names the hash that keeps arguments apart
    between the splits; None for a table to memorise.
    """

    family: Family
    name: str
    slots: tuple[str, ...]
    takes: tuple[frozenset[Kind], ...]
    may_take: Callable[[int, Value], bool]
    draw: Draw
    compute: Callable[[Arguments], Value | None]
    results: frozenset[Kind]
    leaf: bool = True
    refers: tuple[int, ...] = (0,)
    joins: tuple[int, ...] = ()
    split_key: str | None = None

    def kinds(self, position: int) -> frozenset[Kind]:
        """Return the kinds that fit that position; all items of a list have the same kinds."""
        return self.takes[min(position, len(self.takes) - 1)]

    def accepts(self, position: int, value: Value) -> bool:
        """True if an earlier result may stand in that position."""
        return self.may_take(position, value)

    def solve(self, arguments: Arguments) -> Value | None:
        """Return the answer; None if there is none within bounds."""
        return self.compute(arguments)

    def draw_solved(
        self, rng: Random, given: Mapping[int, Value]
    ) -> tuple[Arguments, Value | None]:
        """Add literals to the given arguments; return all with their answer."""
        arguments = self.draw(rng, given)
        return arguments, self.compute(arguments)


def lookup(
    family: Family, name: str, table: Mapping[Value, Value], *, slot: str = "a", refers: bool = True
) -> Skill:
    """Make a skill of a table: one key in, its value out."""
    keys = tuple(table)
    return Skill(
        family,
        name,
        (slot,),
        (frozenset(key.kind for key in keys),),
        may_take=lambda position, value: value in table,
        draw=lambda rng, given: (given[0] if 0 in given else rng.choice(keys),),
        compute=lambda arguments: table.get(arguments[0]),
        results=frozenset(value.kind for value in table.values()),
        refers=(0,) if refers else (),
    )


def of_items(
    family: Family,
    name: str,
    takes: frozenset[Kind],
    solve: Callable[[Arguments], Value | None],
    results: frozenset[Kind],
    draw: Draw | None = None,
    *,
    accepts: Callable[[Value], bool] = lambda value: True,
    refers: bool = True,
    joins: tuple[int, ...] = (2, 3),
    split_key: str | None = None,
) -> Skill:
    """Make a skill on a list of items; without `draw`, it takes nothing but earlier results."""
    return Skill(
        family,
        name,
        (ITEMS,),
        (takes,),
        may_take=lambda position, value: value.kind in takes and accepts(value),
        draw=draw or (lambda rng, given: tuple(given[position] for position in sorted(given))),
        compute=solve,
        results=results,
        leaf=draw is not None,
        refers=(0,) if draw is not None and refers else (),
        joins=joins,
        split_key=split_key,
    )


def is_number(value: Value, lowest: int, highest: int) -> bool:
    return value.kind is Kind.NUMBER and lowest <= int(value.text) <= highest


def _inverse(table: Mapping[Value, Value]) -> dict[Value, Value]:
    return {value: key for key, value in table.items()}


def _translate_all(family: Family, name: str, table: Mapping[Value, Value]) -> Skill:
    """Make a skill that looks up all of several earlier results."""

    def solve(arguments: Arguments) -> Value:
        return _as_list(tuple(table[argument] for argument in arguments))

    kinds = frozenset(value.kind for value in table)
    return of_items(family, name, kinds, solve, LIST, accepts=table.__contains__)


def _as_list(items: Arguments) -> Value:
    return Value(Kind.LIST, ", ".join(item.text for item in items))


NUMBER: Final = frozenset({Kind.NUMBER})
LIST: Final = frozenset({Kind.LIST})
LARGEST_SUM_OF_THREE: Final = 40
"""Three numbers at once carry more than two do, so they are kept small."""

LARGEST_TO_ADD_TO: Final = HIGHEST - 10
"""Closer to the highest number, there would be hardly anything left to add."""

LARGEST_TO_MULTIPLY: Final = 20


def _numbers(arguments: Arguments) -> list[int]:
    return [int(argument.text) for argument in arguments]


def _within(result: int) -> Value | None:
    return NUMBERS[result] if 0 <= result <= HIGHEST else None


def _sum(arguments: Arguments) -> Value | None:
    total = sum(_numbers(arguments))
    return None if len(arguments) > 2 and total > LARGEST_SUM_OF_THREE else _within(total)


def _difference(arguments: Arguments) -> Value | None:
    one, other = _numbers(arguments)
    return NUMBERS[abs(one - other)]


def _subtract(arguments: Arguments) -> Value | None:
    one, other = _numbers(arguments)
    return _within(one - other)


def _times(arguments: Arguments) -> Value | None:
    one, other = _numbers(arguments)
    return _within(one * other) if one <= LARGEST_TO_MULTIPLY and other <= 9 else None


def _calculation(
    name: str,
    solve: Callable[[Arguments], Value | None],
    first: tuple[int, int],
    least: int,
    second: Callable[[int], tuple[int, int]],
    split_key: str | None = None,
) -> Skill:
    """Make a skill on two numbers: the first within bounds, of which an earlier result may go down
    to `least`; `second` gives the bounds of the second by the first."""

    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        one = given[0] if 0 in given else NUMBERS[rng.randint(*first)]
        return one, NUMBERS[rng.randint(*second(int(one.text)))]

    return Skill(
        Family.ARITHMETIC,
        name,
        ("a", "b"),
        (NUMBER, NUMBER),
        may_take=lambda position, value: is_number(value, least, first[1]),
        draw=draw,
        compute=solve,
        results=NUMBER,
        split_key=split_key,
    )


_DOUBLES: Final = {NUMBERS[n]: NUMBERS[2 * n] for n in range(1, HIGHEST // 2 + 1)}
_ARITHMETIC: Final = (
    _calculation("add", _sum, (1, LARGEST_TO_ADD_TO), 0, lambda one: (1, HIGHEST - one), "sum"),
    _calculation("subtract", _subtract, (5, HIGHEST), 3, lambda one: (1, one), "difference"),
    _calculation(
        "times", _times, (2, LARGEST_TO_MULTIPLY), 2, lambda one: (2, min(9, HIGHEST // one))
    ),
    lookup(Family.ARITHMETIC, "double", _DOUBLES),
    lookup(Family.ARITHMETIC, "half", _inverse(_DOUBLES)),
    of_items(Family.ARITHMETIC, "sum", NUMBER, _sum, NUMBER, split_key="sum"),
    of_items(
        *(Family.ARITHMETIC, "difference", NUMBER, _difference, NUMBER),
        joins=(2,),
        split_key="difference",
    ),
)

_NUMBERS: Final = NUMBERS[1:]
_TOWNS: Final = tuple(town.name for town in towns())
_COLLECTIONS: Final = (_NUMBERS, WORDS, _TOWNS, WEEKDAYS, MONTHS)
"""Literal lists are drawn from these; the items of one list are of one kind."""

LONGEST: Final = 4
"""The most items of a literal list."""

_LIST_KINDS: Final = frozenset(collection[0].kind for collection in _COLLECTIONS)
_BY_TEXT: Final = {value.text: value for collection in _COLLECTIONS for value in collection}


def _draw_numbers(shortest: int, longest: int) -> Draw:
    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        length = rng.randint(shortest, longest)
        items = rng.sample(_NUMBERS, length)
        if 0 in given:
            items = [given[0], *(item for item in items if item != given[0])][:length]
        return tuple(items)

    return draw


def _draw_either_way(winner: Callable[[Arguments], Value]) -> Draw:
    """Draw lists in which an earlier result is the answer half of the time.

    So neither the result nor the list can be left out.
    """
    draw = _draw_numbers(3, LONGEST)
    beaten_by = {
        one: tuple(other for other in _NUMBERS if other != one == winner((one, other)))
        for one in NUMBERS
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
    items = rng.sample(rng.choice(_COLLECTIONS), LONGEST)
    position = given[0] if 0 in given else NUMBERS[rng.randint(1, LONGEST)]
    return position, _as_list(tuple(items))


def _item(arguments: Arguments) -> Value | None:
    texts = arguments[1].text.split(", ")
    position = int(arguments[0].text)
    return _BY_TEXT.get(texts[position - 1]) if 1 <= position <= len(texts) else None


def _size(value: Value) -> int:
    return int(value.text)


def _ascending(arguments: Arguments) -> Value:
    return _as_list(tuple(sorted(arguments, key=_size)))


def _largest(arguments: Arguments) -> Value:
    return max(arguments, key=_size)


def _smallest(arguments: Arguments) -> Value:
    return min(arguments, key=_size)


def _of_numbers(
    name: str, solve: Callable[[Arguments], Value], draw: Draw, results: frozenset[Kind]
) -> Skill:
    """Make a skill on distinct numbers, some of which may be earlier results."""
    return of_items(
        Family.LISTS,
        name,
        NUMBER,
        lambda items: solve(items) if len(set(items)) == len(items) > 1 else None,
        results,
        draw,
        accepts=lambda value: is_number(value, 0, HIGHEST),
        split_key="items",
    )


def _of_anything(
    name: str, solve: Callable[[Arguments], Value], results: frozenset[Kind], shortest: int
) -> Skill:
    """Make a skill on a literal list of any one kind."""

    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        return tuple(rng.sample(rng.choice(_COLLECTIONS), rng.randint(shortest, LONGEST)))

    return of_items(
        *(Family.LISTS, name, _LIST_KINDS, solve, results, draw),
        refers=False,
        joins=(),
        split_key="items",
    )


_LISTS: Final = (
    _of_numbers("largest", _largest, _draw_either_way(_largest), NUMBER),
    _of_numbers("smallest", _smallest, _draw_either_way(_smallest), NUMBER),
    _of_numbers("ascending", _ascending, _draw_numbers(3, 3), LIST),
    _of_anything("first", lambda items: items[0], _LIST_KINDS, 3),
    _of_anything("last", lambda items: items[-1], _LIST_KINDS, 3),
    _of_anything("count", lambda items: NUMBERS[len(items)], NUMBER, 2),
    Skill(
        Family.LISTS,
        "item",
        ("a", "b"),
        (NUMBER, LIST),
        may_take=lambda position, value: is_number(value, 1, LONGEST),
        draw=_draw_item,
        compute=_item,
        results=_LIST_KINDS,
        split_key="items",
    ),
)

# A small model sees tokens, not letters: skills on letters use words that it met in training.
_ENGLISH: Final = (*WORDS, *WEEKDAYS, *MONTHS)
_NAMES: Final = frozenset({Kind.WORD, Kind.TOWN, Kind.WEEKDAY, Kind.MONTH})
_HYPHENATED: Final = _NAMES | {Kind.NUMBER, Kind.LETTER, Kind.ESPERANTO}
_BY_KIND: Final = {values[0].kind: values for values in (WORDS, _TOWNS, WEEKDAYS, MONTHS)}


def _initial(value: Value) -> Value:
    return Value(Kind.LETTER, value.text[0].upper())


def _draw_two(rng: Random, given: Mapping[int, Value]) -> Arguments:
    if 0 in given:
        return given[0], rng.choice(_BY_KIND[given[0].kind])
    values = rng.choice((WORDS, _TOWNS))
    return rng.choice(values), rng.choice(values)


def _alphabetical(arguments: Arguments) -> Value | None:
    """Return the first by alphabet of two values of one kind, whose first letters decide."""
    one, other = arguments
    if one.kind is not other.kind or _initial(one) == _initial(other):
        return None
    return min(one, other, key=_initial)


def _hyphen(arguments: Arguments) -> Value:
    return Value(Kind.TEXT, "-".join(argument.text for argument in arguments))


_INITIALED: Final = (*_ENGLISH, *_TOWNS, *esperanto_words().values())
_WORDS: Final = (
    lookup(Family.WORDS, "opposite", opposites()),
    lookup(Family.WORDS, "plural", plurals()),
    lookup(Family.WORDS, "letters", {word: NUMBERS[len(word.text)] for word in _ENGLISH}),
    lookup(Family.WORDS, "first_letter", {word: _initial(word) for word in _INITIALED}),
    of_items(
        *(Family.WORDS, "alphabetical", _NAMES, _alphabetical, _NAMES, _draw_two),
        joins=(2,),
        split_key="alphabetical",
    ),
    of_items(Family.WORDS, "hyphen", _HYPHENATED, _hyphen, frozenset({Kind.TEXT})),
)

_MONTH_LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SEASONS: Final = ("winter", "spring", "summer", "autumn")
_LONGEST_SHIFT: Final = 6
"""The most days or months to count; a small model loses count beyond that."""


def _shift(name: str, cycle: tuple[Value, ...], direction: int) -> Skill:
    """Make a skill that goes round the week or the year, by at least two steps."""
    kind = frozenset({cycle[0].kind})
    position_of = {value: position for position, value in enumerate(cycle)}

    def accepts(position: int, value: Value) -> bool:
        return value in position_of if position == 0 else is_number(value, 2, _LONGEST_SHIFT)

    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        start = given[0] if 0 in given else rng.choice(cycle)
        return start, given[1] if 1 in given else NUMBERS[rng.randint(2, _LONGEST_SHIFT)]

    def solve(arguments: Arguments) -> Value | None:
        start, count = arguments
        return cycle[(position_of[start] + direction * int(count.text)) % len(cycle)]

    return Skill(
        Family.CALENDAR,
        name,
        ("a", COUNT),
        (kind, NUMBER),
        may_take=accepts,
        draw=draw,
        compute=solve,
        results=kind,
        refers=(0, 1),
        joins=(2,),
    )


_MONTH_NUMBERS: Final = {month: NUMBERS[n] for n, month in enumerate(MONTHS, start=1)}
_SEASON_OF: Final = {
    month: Value(Kind.WORD, _SEASONS[(position + 1) % 12 // 3])
    for position, month in enumerate(MONTHS)
}
_CALENDAR: Final = (
    _shift("day_after", WEEKDAYS, 1),
    _shift("day_before", WEEKDAYS, -1),
    _shift("month_after", MONTHS, 1),
    _shift("month_before", MONTHS, -1),
    lookup(Family.CALENDAR, "month_number", _MONTH_NUMBERS),
    lookup(
        Family.CALENDAR,
        "days_in",
        dict(zip(MONTHS, (NUMBERS[n] for n in _MONTH_LENGTHS), strict=True)),
    ),
    lookup(Family.CALENDAR, "month_of", _inverse(_MONTH_NUMBERS)),
    lookup(Family.CALENDAR, "season", _SEASON_OF),
)

_TOWN_NUMBERS: Final = {NUMBERS[n]: town for n, town in enumerate(_TOWNS, start=1)}
_TO_ESPERANTO: Final = {**esperanto_words(), **esperanto_numbers()}
_FROM_NUMBERS: Final = _inverse(esperanto_numbers())
_KNOWLEDGE: Final = (
    lookup(Family.FACTS, "bridges", {town.name: town.bridges for town in towns()}),
    lookup(Family.FACTS, "motto", {town.name: town.motto for town in towns()}),
    lookup(Family.FACTS, "market", {town.name: town.market for town in towns()}),
    lookup(Family.FACTS, "fair", {town.name: town.fair for town in towns()}),
    lookup(Family.FACTS, "town_by_number", _TOWN_NUMBERS),
    lookup(Family.FACTS, "town_by_motto", {town.motto: town.name for town in towns()}),
    lookup(Family.TRANSLATION, "to_esperanto", _TO_ESPERANTO),
    lookup(Family.TRANSLATION, "from_esperanto", _inverse(esperanto_words()), refers=False),
    lookup(Family.TRANSLATION, "number_from_esperanto", _FROM_NUMBERS, refers=False),
    _translate_all(Family.TRANSLATION, "all_to_esperanto", _TO_ESPERANTO),
)

_TO_LETTER: Final = {NUMBERS[n]: letter for n, letter in enumerate(LETTERS, start=1)}


def _multiples(factor: int) -> dict[Value, Value]:
    return {NUMBERS[n]: NUMBERS[n * factor] for n in range(2, HIGHEST // factor + 1)}


_CODES: Final = (
    lookup(Family.CODES, "to_roman", ROMAN_NUMERALS),
    lookup(Family.CODES, "from_roman", _inverse(ROMAN_NUMERALS), refers=False),
    lookup(Family.CODES, "letter_number", _inverse(_TO_LETTER)),
    lookup(Family.CODES, "number_letter", _TO_LETTER),
    lookup(Family.CODES, "dozens", _multiples(12), slot=COUNT),
    lookup(Family.CODES, "weeks", _multiples(7), slot=COUNT),
    lookup(Family.CODES, "yards", _multiples(3), slot=COUNT),
    _translate_all(Family.CODES, "all_to_roman", ROMAN_NUMERALS),
)

SKILLS: Final = MappingProxyType(
    {
        skill.name: skill
        for skill in (*_ARITHMETIC, *_LISTS, *_WORDS, *_CALENDAR, *_KNOWLEDGE, *_CODES)
    }
)
