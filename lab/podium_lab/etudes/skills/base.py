"""What a skill is: one thing that one specialist can do, exact and checkable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from podium_lab.etudes.values import Kind, Value

Arguments = tuple[Value, ...]


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

    `slots` are the names by which phrases call the arguments, in order. `leaf` says whether the
    skill may begin a question, with literal arguments alone; `refers` are the places that one
    earlier result may fill while the others are literal; `joins` says how many earlier results
    may fill every place. `takes` are the kinds that fit a place and `accepts` tells whether a
    value does; `draw` adds literals to the values that are given, and `solve` is the answer, or
    None where there is none.

    `operands` names the hash by which arguments are kept apart between the splits; None where
    the skill is a table to be learned by heart.
    """

    family: Family
    name: str
    slots: tuple[str, ...]
    takes: tuple[frozenset[Kind], ...]
    accepts: Callable[[int, Value], bool]
    draw: Callable[[Random, Mapping[int, Value]], Arguments]
    solve: Callable[[Arguments], Value | None]
    results: frozenset[Kind]
    leaf: bool = True
    refers: tuple[int, ...] = (0,)
    joins: tuple[int, ...] = ()
    operands: str | None = None

    def kinds(self, position: int) -> frozenset[Kind]:
        """The kinds that fit that place; the items of a list are all of the same kinds."""
        return self.takes[min(position, len(self.takes) - 1)]


def lookup(
    family: Family,
    name: str,
    table: Mapping[Value, Value],
    *,
    slot: str = "a",
    refers: bool = True,
) -> Skill:
    """A skill that is a table: one key in, its value out."""
    keys = tuple(table)

    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        return (given[0] if 0 in given else rng.choice(keys),)

    return Skill(
        family,
        name,
        (slot,),
        (frozenset(key.kind for key in keys),),
        accepts=lambda position, value: value in table,
        draw=draw,
        solve=lambda arguments: table.get(arguments[0]),
        results=frozenset(value.kind for value in table.values()),
        refers=(0,) if refers else (),
    )


def join_all(
    family: Family,
    name: str,
    solve: Callable[[Arguments], Value | None],
    takes: frozenset[Kind],
    results: Kind,
    *,
    accepts: Callable[[Value], bool] = lambda value: True,
    sizes: tuple[int, ...] = (2, 3),
    operands: str | None = None,
) -> Skill:
    """A skill that takes nothing but earlier results, all at once."""

    def draw(rng: Random, given: Mapping[int, Value]) -> Arguments:
        return tuple(given[position] for position in sorted(given))

    return Skill(
        family,
        name,
        (ITEMS,),
        (takes,),
        accepts=lambda position, value: value.kind in takes and accepts(value),
        draw=draw,
        solve=solve,
        results=frozenset({results}),
        leaf=False,
        refers=(),
        joins=sizes,
        operands=operands,
    )


def is_number(value: Value, lowest: int, highest: int) -> bool:
    """Whether the value is a number within the bounds."""
    return value.kind is Kind.NUMBER and lowest <= int(value.text) <= highest
