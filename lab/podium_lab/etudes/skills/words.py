"""Opposites, plurals, letters and alphabetical order, over a fixed lexicon.

A small model sees tokens, not letters: what depends on letters is asked only of words that it
has met in training.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from podium_lab.etudes.skills.base import ITEMS, Arguments, Family, Skill, join_all, lookup
from podium_lab.etudes.values import (
    MONTHS,
    WEEKDAYS,
    WORDS,
    Kind,
    Value,
    esperanto_words,
    number,
    opposites,
    plurals,
    towns,
)

_TOWNS: Final = tuple(town.name for town in towns())
_ENGLISH: Final = (*WORDS, *WEEKDAYS, *MONTHS)
_NAMES: Final = frozenset({Kind.WORD, Kind.TOWN, Kind.WEEKDAY, Kind.MONTH})
_JOINED: Final = _NAMES | {Kind.NUMBER, Kind.LETTER, Kind.ESPERANTO}


def _initial(value: Value) -> Value:
    return Value(Kind.LETTER, value.text[0].upper())


_SHELVES: Final = {shelf[0].kind: shelf for shelf in (WORDS, _TOWNS, WEEKDAYS, MONTHS)}


def _draw_two(rng: Random, given: Mapping[int, Value]) -> Arguments:
    if 0 in given:
        return given[0], rng.choice(_SHELVES[given[0].kind])
    shelf = rng.choice((WORDS, _TOWNS))
    return rng.choice(shelf), rng.choice(shelf)


def _alphabetical(arguments: Arguments) -> Value | None:
    """The first by alphabet of two values of one kind, whose first letters decide."""
    one, other = arguments
    if one.kind is not other.kind or _initial(one) == _initial(other):
        return None
    return min(one, other, key=_initial)


def _hyphen(arguments: Arguments) -> Value:
    return Value(Kind.TEXT, "-".join(argument.text for argument in arguments))


SKILLS: Final = (
    lookup(Family.WORDS, "opposite", opposites()),
    lookup(Family.WORDS, "plural", plurals()),
    lookup(Family.WORDS, "letters", {word: number(len(word.text)) for word in _ENGLISH}),
    lookup(
        Family.WORDS,
        "first_letter",
        {word: _initial(word) for word in (*_ENGLISH, *_TOWNS, *esperanto_words().values())},
    ),
    Skill(
        Family.WORDS,
        "alphabetical",
        (ITEMS,),
        (_NAMES,),
        accepts=lambda position, value: value.kind in _NAMES,
        draw=_draw_two,
        solve=_alphabetical,
        results=_NAMES,
        joins=(2,),
        operands="alphabetical",
    ),
    join_all(Family.WORDS, "hyphen", _hyphen, _JOINED, Kind.TEXT),
)
