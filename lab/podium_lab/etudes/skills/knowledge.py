"""Facts of an invented archive of towns, and Esperanto."""

from __future__ import annotations

from typing import Final

from podium_lab.etudes.skills.base import Arguments, Family, join_all, lookup
from podium_lab.etudes.values import Kind, Value, esperanto_numbers, esperanto_words, number, towns

_TO_ESPERANTO: Final = {**esperanto_words(), **esperanto_numbers()}


def _all_to_esperanto(arguments: Arguments) -> Value:
    return Value(Kind.LIST, ", ".join(_TO_ESPERANTO[argument].text for argument in arguments))


SKILLS: Final = (
    lookup(Family.FACTS, "bridges", {town.name: town.bridges for town in towns()}),
    lookup(Family.FACTS, "motto", {town.name: town.motto for town in towns()}),
    lookup(Family.FACTS, "market", {town.name: town.market for town in towns()}),
    lookup(Family.FACTS, "fair", {town.name: town.fair for town in towns()}),
    lookup(
        Family.FACTS,
        "town_by_number",
        {number(position): town.name for position, town in enumerate(towns(), start=1)},
    ),
    lookup(Family.FACTS, "town_by_motto", {town.motto: town.name for town in towns()}),
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
