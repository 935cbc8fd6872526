"""Readers of request bodies: every value is checked, and errors name its path.

A reader takes a value and its path, and returns the value's meaning or raises `ApiError`:

    body = read_object(value).note_unknown(KNOWN)             other keys are ignored, and noted
    model = body.required("model", text)
    temperature = body.optional("temperature", number(0, 2))  None if absent or null
    stop = body.optional("stop", array(text, most=4))

Readers run in linear time and never repeat a long text in a message.

Clients add keys of their own to standard objects. `collect_unknown` gathers those that
`note_unknown` meets; Podium's own objects allow only their keys (`reject_unknown`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from podium.config.problems import suggest
from podium.core.request import Effort
from podium.server.api_error import ApiError, invalid

Json = Mapping[str, Any]
Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=str)
Reader = Callable[[object, str], Value]
"""Reads a value at a path; raises `ApiError`."""

MAX_SHOWN_CHARS: Final = 40
"""A longer text might be private: messages give only its length."""

MAX_DEPTH: Final = 64
"""Maximum nesting of free JSON (schemas, plans)."""

MAX_VALUES: Final = 20_000
"""Maximum number of values in free JSON."""

MAX_NUMBER: Final = 2**64
"""JSON parsers disagree on larger integers."""

MAX_UNKNOWN: Final = 400
"""Unknown keys that are collected of one object, and about as many of one body: more than a header
can name."""

MAX_HEADER_BYTES: Final = 1024
"""In bytes."""

EFFORTS: Final[Mapping[str, Effort]] = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""Efforts that clients send, mapped to ours; `high` is the maximum."""


def join_path(path: str, name: str | int) -> str:
    return f"{path}.{name}" if path else str(name)


def unexpected_value(path: str, expected: str, value: object) -> ApiError:
    """Return the error for a value of the wrong type or range."""
    return invalid(path, f"{path or 'the body'}: expected {expected}, got {describe(value)}")


def describe(value: object) -> str:
    """Describe a value in an error message."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float() if abs(value) < MAX_NUMBER:
            return repr(value)
        case int() | float():
            return "a number out of range"
        case str() if len(value) <= MAX_SHOWN_CHARS:
            return repr(value)
        case str():
            return f"a string of {len(value)} characters"
        case list():
            return f"a list of {len(value)} items"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


class UnknownKey(NamedTuple):
    """A key of a body that has no effect, and the keys that have one there."""

    path: str
    name: str
    known: Collection[str]

    def error(self) -> ApiError:
        """Return the error where such a key is refused."""
        long = len(self.name) > MAX_SHOWN_CHARS
        name = f"{self.name[:MAX_SHOWN_CHARS]}…" if long else self.name
        name = name.encode("utf-8", "backslashreplace").decode()
        path = join_path(self.path, name)
        return invalid(path, f"unexpected option {path!r}; {suggest(name, self.known)}")


_unknown: ContextVar[list[UnknownKey] | None] = ContextVar("unknown", default=None)


def collect_unknown() -> list[UnknownKey]:
    """Collect the unknown keys of the objects that this task reads from now on."""
    found: list[UnknownKey] = []
    _unknown.set(found)
    return found


def format_unknown(keys: Iterable[UnknownKey]) -> str:
    """Return the keys' paths as a header's value; characters of other use are percent-encoded."""
    header = ""
    for path, key, _ in keys:
        shown = quote(key[:MAX_SHOWN_CHARS], safe="", errors="backslashreplace")
        name = join_path(path, shown)
        longer = f"{header}, {name}" if header else name
        if len(longer) > MAX_HEADER_BYTES - len(", ..."):
            return f"{header}, ..."
        header = longer
    return header


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of a body and its path."""

    values: Json
    path: str = ""

    def reject_unknown(self, known: Collection[str]) -> Fields:
        """Return self; raises `ApiError` for an unknown key."""
        for key in self.values:
            if key not in known:
                raise UnknownKey(self.path, key, known).error()
        return self

    def note_unknown(self, known: frozenset[str]) -> Fields:
        """Return self; unknown keys are noted, unless their value is null.

        Their values are JSON that can be repeated in a response or passed on.
        """
        if not known.issuperset(self.values):
            found = _unknown.get()
            new = {key: value for key, value in self.values.items() if key not in known}
            json_object(new, self.path)
            if found is not None and len(found) < MAX_UNKNOWN:
                keys = (key for key in new if self.has(key))
                found += (UnknownKey(self.path, key, known) for key in islice(keys, MAX_UNKNOWN))
        return self

    def at(self, name: str) -> str:
        return join_path(self.path, name)

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def required(self, name: str, reader: Reader[Value]) -> Value:
        value = self.values.get(name)
        if value is None:
            path = self.at(name)
            came = "it is null" if name in self.values else "it is missing"
            raise invalid(path, f"{path} is required, but {came}")
        return reader(value, self.at(name))

    def optional(self, name: str, reader: Reader[Value]) -> Value | None:
        """Read a field that may be absent or null."""
        value = self.values.get(name)
        return None if value is None else reader(value, self.at(name))


def read_object(value: object, path: str = "") -> Fields:
    if not isinstance(value, Mapping):
        raise unexpected_value(path, "an object", value)
    return Fields(value, path)


def text(value: object, path: str) -> str:
    """Read a text without lone surrogates."""
    if not isinstance(value, str):
        raise unexpected_value(path, "a string", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise invalid(
                path, f"{path}: the string has a lone surrogate; send valid Unicode"
            ) from None
    return value


def bounded_text(least: int = 0, most: int = 1_000_000) -> Reader[str]:
    """Return a reader of texts of so many characters."""

    def read(value: object, path: str) -> str:
        read_value = text(value, path)
        if not least <= len(read_value) <= most:
            raise unexpected_value(path, f"a string of {least} to {most} characters", value)
        return read_value

    return read


def flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise unexpected_value(path, "true or false", value)
    return value


def number(low: float, high: float) -> Reader[float]:
    """Return a reader of numbers from `low` to `high`, inclusive."""

    def read(value: object, path: str) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:  # type: ignore[operator]
            raise unexpected_value(path, f"a number {_format_range(low, high)}", value)
        return float(value)  # type: ignore[arg-type]

    return read


def integer(low: int, high: int = 2**53) -> Reader[int]:
    """Return a reader of integers from `low` to `high`, inclusive; 5.0 is one, as in JSON."""

    def read(value: object, path: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise unexpected_value(path, f"an integer {_format_range(low, high)}", value)
        return value

    return read


def _format_range(low: float, high: float) -> str:
    return f"of at least {low}" if high >= 2**53 else f"from {low} to {high}"


def choice(options: tuple[Choice, ...]) -> Reader[Choice]:
    """Return a reader of one of these strings."""

    def read(value: object, path: str) -> Choice:
        for option in options:
            if option == value:
                return option
        raise unexpected_value(path, " or ".join(repr(option) for option in options), value)

    return read


def array(reader: Reader[Value], most: int, least: int = 0) -> Reader[tuple[Value, ...]]:
    """Return a reader of lists of so many items."""

    def read(value: object, path: str) -> tuple[Value, ...]:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            raise unexpected_value(path, f"a list of {least} to {most} items", value)
        return tuple(reader(item, join_path(path, index)) for index, item in enumerate(value))

    return read


def json_object(value: object, path: str) -> dict[str, Any]:
    """Read any JSON object that is not too deep or too large to pass on."""
    if not isinstance(value, Mapping):
        raise unexpected_value(path, "an object", value)
    layer: list[Any] = [value]
    count = 0
    for _ in range(MAX_DEPTH):
        if not layer:
            return dict(value)
        count += len(layer)
        if count > MAX_VALUES:
            raise invalid(path, f"{path}: expected at most {MAX_VALUES} values in the object")
        layer = [inner for item in layer for inner in _nested_values(item, path)]
    raise invalid(path, f"{path}: expected an object that nests at most {MAX_DEPTH} deep")


def _nested_values(value: object, path: str) -> Collection[Any]:
    """Return the values one level deeper; check a single value."""
    match value:
        case Mapping():
            for key in value:
                text(key, path)
            return value.values()
        case list() | tuple():
            return value
        case str():
            text(value, path)
        case bool() | None:
            pass
        case int() | float() if abs(value) <= MAX_NUMBER:
            pass
        case _:
            raise unexpected_value(path, "plain JSON values in the object", value)
    return ()


def effort(value: object, path: str) -> Effort:
    return EFFORTS[choice(tuple(EFFORTS))(value, path)]
