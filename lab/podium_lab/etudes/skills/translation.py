"""Esperanto: everyday words, the calendar, and the numbers from 0 to 20."""

from __future__ import annotations

from typing import Final

from podium_lab.etudes.skills.base import Arguments, Family, join_all, lookup
from podium_lab.etudes.values import Kind, Value, esperanto_numbers, esperanto_words

_TO_ESPERANTO: Final = {**esperanto_words(), **esperanto_numbers()}


def _all_to_esperanto(arguments: Arguments) -> Value:
    return Value(Kind.LIST, ", ".join(_TO_ESPERANTO[argument].text for argument in arguments))


SKILLS: Final = (
    lookup(Family.TRANSLATION, "to_esperanto", _TO_ESPERANTO),
    lookup(
        Family.TRANSLATION,
        "from_esperanto",
        {esperanto: english for english, esperanto in esperanto_words().items()},
        refers=False,
    ),
    lookup(
        Family.TRANSLATION,
        "number_from_esperanto",
        {esperanto: number for number, esperanto in esperanto_numbers().items()},
        refers=False,
    ),
    join_all(
        Family.TRANSLATION,
        "all_to_esperanto",
        _all_to_esperanto,
        frozenset(value.kind for value in _TO_ESPERANTO),
        Kind.LIST,
        accepts=_TO_ESPERANTO.__contains__,
    ),
)
