"""The typed values of études, and the tables that the skills share.

A value is a text and its kind; operations fit together where kinds do. The everyday words, the
calendar and the invented archive of towns are data files beside this module.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from podium._util.lab import UNSURE as UNSURE


class Kind(StrEnum):
    """The kind of a value, in the word by which questions refer to it."""

    NUMBER = "number"
    WORD = "word"
    LETTER = "letter"
    WEEKDAY = "day"
    MONTH = "month"
    TOWN = "town"
    ESPERANTO = "Esperanto word"
    ROMAN = "Roman numeral"
    LIST = "list"
    TEXT = "text"


TERMINAL_KINDS: Final = frozenset({Kind.ROMAN, Kind.LIST, Kind.TEXT})
"""Kinds that no other family goes on from: they end a question."""

HIGHEST: Final = 99
"""Numbers lie between 0 and this, so that a small model can calculate with them."""


class Value(NamedTuple):
    """A typed text."""

    kind: Kind
    text: str


def number(value: int) -> Value:
    return Value(Kind.NUMBER, str(value))


NUMBERS: Final = tuple(number(value) for value in range(HIGHEST + 1))


class Town(NamedTuple):
    """A town of the invented archive."""

    name: Value
    bridges: Value
    motto: Value
    market: Value
    fair: Value


def read_table(name: str) -> Mapping[str, Any]:
    text = resources.files(__package__).joinpath("data", name).read_text("utf-8")
    return MappingProxyType(tomllib.loads(text))


def _values(kind: Kind, texts: Mapping[str, Any] | str) -> tuple[Value, ...]:
    return tuple(Value(kind, text) for text in texts)


_LEXICON: Final = read_table("lexicon.toml")

NOUNS: Final = _values(Kind.WORD, _LEXICON["countable"])
WORDS: Final = (
    *NOUNS,
    *_values(Kind.WORD, _LEXICON["uncountable"]),
    *_values(Kind.WORD, _LEXICON["adjectives"]),
    *_values(Kind.WORD, _LEXICON["colours"]),
)
WEEKDAYS: Final = _values(Kind.WEEKDAY, _LEXICON["weekdays"])
MONTHS: Final = _values(Kind.MONTH, _LEXICON["months"])
LETTERS: Final = _values(Kind.LETTER, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def esperanto_words() -> dict[Value, Value]:
    countable = {word: entry[0] for word, entry in _LEXICON["countable"].items()}
    tables = (countable, *(_LEXICON[name] for name in ("uncountable", "adjectives", "colours")))
    english = {
        **{Value(Kind.WORD, word): text for table in tables for word, text in table.items()},
        **dict(zip(WEEKDAYS, _LEXICON["weekdays"].values(), strict=True)),
        **dict(zip(MONTHS, _LEXICON["months"].values(), strict=True)),
    }
    return {value: Value(Kind.ESPERANTO, text) for value, text in english.items()}


def esperanto_numbers() -> dict[Value, Value]:
    names = list(_LEXICON["numbers"]["words"])
    names += [f"dek {name}" for name in names[1:10]] + ["dudek"]
    return {number(n): Value(Kind.ESPERANTO, name) for n, name in enumerate(names)}


def plurals() -> dict[Value, Value]:
    return {noun: Value(Kind.TEXT, _LEXICON["countable"][noun.text][1]) for noun in NOUNS}


def opposites() -> dict[Value, Value]:
    pairs = [
        (Value(Kind.WORD, one), Value(Kind.WORD, other))
        for one, other in _LEXICON["opposites"].items()
    ]
    return {**dict(pairs), **{other: one for one, other in pairs}}


@cache
def towns() -> tuple[Town, ...]:
    """Return the archive, in the order of its numbers, which begin at 1."""
    return tuple(
        Town(
            Value(Kind.TOWN, name),
            number(entry["bridges"]),
            Value(Kind.WORD, entry["motto"]),
            Value(Kind.WEEKDAY, entry["market"]),
            Value(Kind.MONTH, entry["fair"]),
        )
        for name, entry in read_table("towns.toml").items()
    )


_SYMBOLS: Final = ((50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


def _roman(value: int) -> Value:
    text = ""
    for worth, symbol in _SYMBOLS:
        times, value = divmod(value, worth)
        text += symbol * times
    return Value(Kind.ROMAN, text)


ROMAN_NUMERALS: Final = {number(n): _roman(n) for n in range(1, 51)}


def named_values(text: str) -> tuple[Value, ...]:
    """Return the values with that text in any case; a numeral may also be a letter."""
    return _by_text().get(text.casefold(), ())


@cache
def _by_text() -> Mapping[str, tuple[Value, ...]]:
    values = (
        *NUMBERS,
        *WORDS,
        *WEEKDAYS,
        *MONTHS,
        *(town.name for town in towns()),
        *esperanto_words().values(),
        *esperanto_numbers().values(),
        *LETTERS,
        *ROMAN_NUMERALS.values(),
    )
    found: dict[str, tuple[Value, ...]] = {}
    for value in values:
        key = value.text.casefold()
        found[key] = (*found.get(key, ()), value)
    return found
