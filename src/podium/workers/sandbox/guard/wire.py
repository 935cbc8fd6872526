"""What the check and the program say to each other, each in a process of its own.

Values cross as JSON and are made anew on the other side, so what is compared there is of the
types that are built in, whatever the program's classes say of equality. What cannot cross stays
with the program and is held by a number: the check can call it, look at its attributes and go
through it, and compare what that gives.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import fractions
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

MOST_ITEMS: Final = 1_000_000
"""Of a thing without end that is gone through."""

_SEQUENCES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_BY_TEXT: Final[Mapping[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]]] = {
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
    "complex": (complex, repr, complex),
    "decimal": (decimal.Decimal, str, decimal.Decimal),
    "fraction": (fractions.Fraction, str, fractions.Fraction),
    "datetime": (
        datetime.datetime,
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "time": (datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
}


def pack(value: Any, hold: Callable[[Any], Any]) -> Any:
    """A value as JSON can say it; what has no such form goes to `hold`."""
    if value is None or type(value) in (bool, str):
        return value
    # By the types' own methods: those of a subclass are the program's.
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__mul__(value, 1.0)
    if isinstance(value, str):
        return str.__add__(value, "")
    for name, form in _SEQUENCES.items():
        if isinstance(value, form):  # type: ignore[arg-type]
            items = [pack(item, hold) for item in form.__iter__(value)]  # type: ignore[attr-defined]
            return {name: items}
    if isinstance(value, dict):
        pairs = dict.items(value)
        return {"dict": [[pack(key, hold), pack(item, hold)] for key, item in pairs]}
    for name, (form, to_text, _) in _BY_TEXT.items():
        if type(value) is form:
            return {name: to_text(value)}
    if type(value).__module__ == "numpy" and hasattr(value, "item") and not value.shape:
        return pack(value.item(), hold)
    return hold(value)


def unpack(packed: Any, held: Callable[[Any], Any]) -> Any:
    """The value again; what the other side holds comes from `held`."""
    if not isinstance(packed, dict):
        return packed
    ((name, content),) = packed.items()
    if name in _SEQUENCES:
        return _SEQUENCES[name](unpack(item, held) for item in content)
    if name == "dict":
        return {unpack(key, held): unpack(item, held) for key, item in content}
    if name in _BY_TEXT:
        return _BY_TEXT[name][2](content)
    return held(packed)


class Held:
    """The program's side: what it holds for the check, and its answers to its questions."""

    def __init__(self) -> None:
        self._things: list[Any] = []
        self._numbers: dict[int, int] = {}

    def _hold(self, thing: Any) -> dict[str, int]:
        number = self._numbers.setdefault(id(thing), len(self._things))
        if number == len(self._things):
            self._things.append(thing)
        return {"held": number}

    def _thing(self, packed: Any) -> Any:
        if "built_in" in packed:
            return getattr(builtins, packed["built_in"])
        return self._things[packed["held"]]

    def answer(self, question: dict[str, Any], names: dict[str, Any]) -> Any:
        """Do what the check asks for, and say what came of it."""
        if question["do"] == "name":
            return pack(names[question["name"]], self._hold)
        thing = self._thing(question)
        arguments = [unpack(one, self._thing) for one in question.get("arguments", ())]
        named = {name: unpack(one, self._thing) for name, one in question.get("named", {}).items()}
        match question["do"]:
            case "call":
                result = thing(*arguments, **named)
            case "attribute":
                result = getattr(thing, question["name"])
            case "set":
                setattr(thing, question["name"], arguments[0])
                result = None
            case "item":
                result = thing[arguments[0]]
            case "length":
                result = len(thing)
            case "text":
                result = str(thing)
            case _:
                result = [item for item, _ in zip(thing, range(MOST_ITEMS), strict=False)]
        return pack(result, self._hold)


def allow_large_numbers() -> None:
    """JSON writes numbers in decimal, of which Python refuses very long ones unless told."""
    sys.set_int_max_str_digits(0)
