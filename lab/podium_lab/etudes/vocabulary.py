"""Every value that études know, by its text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from podium._util.lab import UNSURE as UNSURE
from podium_lab.etudes.skills.codes import ROMAN_NUMERALS
from podium_lab.etudes.values import (
    HIGHEST,
    LETTERS,
    MONTHS,
    WEEKDAYS,
    WORDS,
    Value,
    esperanto_numbers,
    esperanto_words,
    number,
    towns,
)


def named_values(text: str) -> tuple[Value, ...]:
    """The values that are written so, in any case; a numeral may also be a letter."""
    return _by_text().get(text.casefold(), ())


@cache
def _by_text() -> Mapping[str, tuple[Value, ...]]:
    values = (
        *(number(n) for n in range(HIGHEST + 1)),
        *WORDS,
        *WEEKDAYS,
        *MONTHS,
        *(town.name for town in towns()),
        *esperanto_words().values(),
        *esperanto_numbers().values(),
        *LETTERS,
        *ROMAN_NUMERALS,
    )
    found: dict[str, tuple[Value, ...]] = {}
    for value in values:
        key = value.text.casefold()
        found[key] = (*found.get(key, ()), value)
    return found
