"""Roman numerals up to 50, places in the alphabet, and a few units of everyday life."""

from __future__ import annotations

from typing import Final

from podium_lab.etudes.skills.base import COUNT, Arguments, Family, join_all, lookup
from podium_lab.etudes.values import HIGHEST, LETTERS, Kind, Value, number

_SYMBOLS: Final = ((50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


def _roman(value: int) -> Value:
    text = ""
    for worth, symbol in _SYMBOLS:
        times, value = divmod(value, worth)
        text += symbol * times
    return Value(Kind.ROMAN, text)


_TO_ROMAN: Final = {number(n): _roman(n) for n in range(1, 51)}
ROMAN_NUMERALS: Final = tuple(_TO_ROMAN.values())
_TO_LETTER: Final = {number(position): letter for position, letter in enumerate(LETTERS, start=1)}


def _all_to_roman(arguments: Arguments) -> Value:
    return Value(Kind.LIST, ", ".join(_TO_ROMAN[argument].text for argument in arguments))


def _times(factor: int) -> dict[Value, Value]:
    return {number(n): number(n * factor) for n in range(2, HIGHEST // factor + 1)}


SKILLS: Final = (
    lookup(Family.CODES, "to_roman", _TO_ROMAN),
    lookup(
        Family.CODES,
        "from_roman",
        {roman: number for number, roman in _TO_ROMAN.items()},
        refers=False,
    ),
    lookup(
        Family.CODES, "letter_number", {letter: position for position, letter in _TO_LETTER.items()}
    ),
    lookup(Family.CODES, "number_letter", _TO_LETTER),
    lookup(Family.CODES, "dozens", _times(12), slot=COUNT),
    lookup(Family.CODES, "weeks", _times(7), slot=COUNT),
    lookup(Family.CODES, "yards", _times(3), slot=COUNT),
    join_all(
        Family.CODES,
        "all_to_roman",
        _all_to_roman,
        frozenset({Kind.NUMBER}),
        Kind.LIST,
        accepts=_TO_ROMAN.__contains__,
    ),
)
