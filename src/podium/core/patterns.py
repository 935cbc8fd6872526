"""Regular expressions of anybody's, searched for in time that is bounded.

Python's `re` backtracks: a pattern such as `(a+)+$` can keep it busy for ever, and with it the
whole process. Here a pattern is a machine that is in all of its possible states at once, so a
search takes steps in proportion to the pattern times the text, and no more than its `Patience`
allows. What needs backtracking (looking around, back references, atomic groups) is refused, and so
are inline flags. Everything else means what it means in `re`, whose own parser reads it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from podium.core.errors import UsageError

MOST_STATES: Final = 2000
"""Of one pattern. A counted repetition is as many states as it counts."""

MOST_STEPS: Final = 500_000
"""Of all searches that share their patience: under a second."""

MOST_RANGES: Final = 64
"""Of one set of characters, beside single ones."""

_parser: Final[Any] = import_module("re._parser")  # as `re` itself imports it

_CATEGORIES: Final[dict[str, Callable[[str], bool]]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_NOT_DIGIT": lambda c: not c.isdecimal(),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda c: not c.isspace(),
    "CATEGORY_WORD": lambda c: _is_word(c),
    "CATEGORY_NOT_WORD": lambda c: not _is_word(c),
}


class PatienceLost(Exception):
    """The searches took more steps than are allowed."""


@dataclass(slots=True)
class Patience:
    """The steps that are left."""

    steps: int = MOST_STEPS

    def take(self, steps: int) -> None:
        """Use up steps; raises `PatienceLost` where there are not so many."""
        self.steps -= steps
        if self.steps < 0:
            raise PatienceLost


@dataclass(slots=True)
class _State:
    """A state of the machine. It goes on to `then`: at once, or where `holds` is set, only at a
    place where that holds, or where `takes` is set, past a character that it takes."""

    then: list[int] = field(default_factory=list)
    takes: Callable[[str], bool] | None = None
    holds: Callable[[str, int], bool] | None = None


@contextmanager
def nobody_warned() -> Iterator[None]:
    """A block in which Python does not warn of patterns that it may one day read otherwise: they
    are clients', and what is written where the server runs is not for them to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


class Pattern:
    """A pattern, ready to be searched for; raises `UsageError` for one that cannot be."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._states: list[_State] = []
        if len(pattern) > MOST_STATES:
            raise self._too_large()
        try:
            with nobody_warned():
                parsed = _parser.parse(pattern)
        except (re.error, OverflowError) as error:
            raise UsageError(f"{pattern[:80]!r} is not a regular expression: {error}") from error
        if parsed.state.flags & ~re.UNICODE:
            raise self._refused("flags")
        self._start = self._new()
        self._end = self._sequence(parsed, self._start)

    def search(self, text: str, patience: Patience) -> bool:
        """Whether the pattern is anywhere in the text; raises `PatienceLost`."""
        waiting: set[int] = set()
        for place in range(len(text) + 1):
            reached = self._reached(waiting | {self._start}, text, place)
            patience.take(len(reached))
            if self._end in reached:
                return True
            if place < len(text):
                waiting = self._past(reached, text[place])
        return False

    def _reached(self, states: set[int], text: str, place: int) -> set[int]:
        """All states that can be gone on to without another character."""
        reached = set(states)
        open_ = list(states)
        while open_:
            state = self._states[open_.pop()]
            if state.takes is not None or (state.holds and not state.holds(text, place)):
                continue
            for following in state.then:
                if following not in reached:
                    reached.add(following)
                    open_.append(following)
        return reached

    def _past(self, states: set[int], character: str) -> set[int]:
        past: set[int] = set()
        for number in states:
            state = self._states[number]
            if state.takes is not None and state.takes(character):
                past.update(state.then)
        return past

    def _new(self) -> int:
        if len(self._states) >= MOST_STATES:
            raise self._too_large()
        self._states.append(_State())
        return len(self._states) - 1

    def _sequence(self, nodes: Any, start: int) -> int:
        """Add what the nodes say, one after the other; the state in which it ends."""
        for kind, value in nodes:
            start = self._add(str(kind), value, start)
        return start

    def _add(self, kind: str, value: Any, start: int) -> int:
        match kind:
            case "LITERAL" | "NOT_LITERAL" | "ANY":
                self._states[start].takes = _taking(kind, value)
            case "IN":
                self._states[start].takes = self._taking_any_of(value)
            case "AT":
                self._states[start].holds = _PLACES[str(value)]
            case "SUBPATTERN":
                _, added, removed, inner = value
                if added or removed:
                    raise self._refused("flags")
                return self._sequence(inner, start)
            case "BRANCH":
                return self._branch(value[1], start)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(start, *value)
            case _:
                raise self._refused("looking around, back references or atomic groups")
        end = self._new()
        self._states[start].then.append(end)
        return end

    def _branch(self, ways: Any, start: int) -> int:
        end = self._new()
        for way in ways:
            begin = self._new()
            self._states[start].then.append(begin)
            self._states[self._sequence(way, begin)].then.append(end)
        return end

    def _repeat(self, start: int, least: Any, most: Any, nodes: Any) -> int:
        for _ in range(int(least)):
            start = self._sequence(nodes, self._step(start))
        end = self._new()
        if most is _parser.MAXREPEAT:
            begin = self._step(start)
            again = self._sequence(nodes, self._step(begin))
            self._states[again].then.append(begin)
            self._states[begin].then.append(end)
            return end
        for _ in range(int(most) - int(least)):
            skip = start = self._step(start)
            start = self._sequence(nodes, self._step(start))
            self._states[skip].then.append(end)
        self._states[self._step(start)].then.append(end)
        return end

    def _step(self, start: int) -> int:
        """A fresh state right after that one."""
        fresh = self._new()
        self._states[start].then.append(fresh)
        return fresh

    def _taking_any_of(self, items: Any) -> Callable[[str], bool]:
        """Which characters a set takes."""
        ranges: list[Callable[[str], bool]] = []
        single: set[str] = set()
        negated = False
        for kind, value in items:
            match str(kind):
                case "NEGATE":
                    negated = True
                case "LITERAL":
                    single.add(chr(value))
                case "RANGE":
                    ranges.append(_between(*value))
                case _:
                    ranges.append(_CATEGORIES[str(value)])
        if len(ranges) > MOST_RANGES:
            raise self._too_large()
        return lambda c: (c in single or any(takes(c) for takes in ranges)) is not negated

    def _too_large(self) -> UsageError:
        return UsageError(
            f"the pattern {self._pattern[:80]!r} is too large to be checked; shorten it, or count "
            f"less in it"
        )

    def _refused(self, what: str) -> UsageError:
        return UsageError(
            f"the pattern {self._pattern[:80]!r} has {what}, and patterns are checked without; "
            f"write it without, or leave it out"
        )


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Pattern:
    """The pattern, ready to be searched for; raises `UsageError` for one that cannot be."""
    return Pattern(pattern)


def _taking(kind: str, value: Any) -> Callable[[str], bool]:
    """Which characters a node takes."""
    if kind == "ANY":
        return lambda c: c != "\n"
    return chr(value).__eq__ if kind == "LITERAL" else chr(value).__ne__


def _between(low: int, high: int) -> Callable[[str], bool]:
    return lambda c: low <= ord(c) <= high


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_boundary(text: str, place: int) -> bool:
    before = place > 0 and _is_word(text[place - 1])
    return before != (place < len(text) and _is_word(text[place]))


def _is_end(text: str, place: int) -> bool:
    return place == len(text) or (place == len(text) - 1 and text[place] == "\n")


_PLACES: Final[dict[str, Callable[[str, int], bool]]] = {
    "AT_BEGINNING": lambda _, place: place == 0,
    "AT_BEGINNING_STRING": lambda _, place: place == 0,
    "AT_END": _is_end,
    "AT_END_STRING": lambda text, place: place == len(text),
    "AT_BOUNDARY": _is_boundary,
    "AT_NON_BOUNDARY": lambda text, place: not _is_boundary(text, place),
}
