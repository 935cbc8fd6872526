"""Reading bodies that nobody vouches for: every value is checked, and what is wrong is named.

A reader takes a value and its path in the body, and returns what it means or raises a `ApiError`
with that path. Readers are small and combine:

    body = opened(value).only(KNOWN)                     an object, and no other keys in it
    model = body.required("model", text)
    warmth = body.optional("temperature", number(0, 2))  None where absent or null
    stops = body.optional("stop", listed(text, most=4))

All of them run in time linear in the body, raise nothing but `ApiError`, and never repeat a long
text in a message. Pictures are read in `pictures`, tools and schemas in `tools`, what OpenAI's two
dialects share in `openai`, and what only one dialect has in its own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from podium.config.problems import suggest
from podium.core.request import Effort
from podium.server.api_error import ApiError, invalid

Json = Mapping[str, Any]
Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=str)
Reader = Callable[[object, str], Value]
"""A value and its path -> what it means. Raises `ApiError`."""

LONGEST_SHOWN: Final = 40
"""A longer text might be private, so a message tells its length alone."""

DEEPEST: Final = 64
"""How deep free JSON (schemas, plans) may nest."""

MOST_VALUES: Final = 20_000
"""How many values free JSON may hold."""

BIGGEST_NUMBER: Final = 2**64
"""Beyond it, JSON readers disagree on what a whole number is."""

EFFORTS: Final[Mapping[str, Effort]] = {
    "none": "none",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""What clients write, and what it comes to: `high` is the most that there is here."""


def join_path(path: str, name: str | int) -> str:
    """The path of a field within the object or list at `path`."""
    return f"{path}.{name}" if path else str(name)


def unexpected(path: str, expected: str, value: object) -> ApiError:
    """What was expected there, and what came."""
    return invalid(path, f"{path or 'the body'}: expected {expected}, got {describe(value)}")


def describe(value: object) -> str:
    """A value as a message may tell it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float() if abs(value) < BIGGEST_NUMBER:
            return repr(value)
        case int() | float():
            return "a number out of all range"
        case str() if len(value) <= LONGEST_SHOWN:
            return f"the text {value!r}"
        case str():
            return f"a text of {len(value)} characters"
        case list():
            return f"a list of {len(value)}"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of a body, and where in the body it stands."""

    values: Json
    path: str = ""

    def only(self, known: Collection[str]) -> Fields:
        """The same object, refused if it has a key that is not among these."""
        for key in self.values:
            if key not in known:
                name = key if len(key) <= LONGEST_SHOWN else f"{key[:LONGEST_SHOWN]}…"
                name = name.encode("utf-8", "backslashreplace").decode()
                path = join_path(self.path, name)
                raise invalid(path, f"unknown field {path}; {suggest(name, known)}")
        return self

    def at(self, name: str) -> str:
        """The path of a field."""
        return join_path(self.path, name)

    def given(self, name: str) -> bool:
        """Whether the field is there, and not null."""
        return self.values.get(name) is not None

    def required(self, name: str, reader: Reader[Value]) -> Value:
        """A field that must be there."""
        value = self.values.get(name)
        if value is None:
            path = self.at(name)
            came = "it is null" if name in self.values else "it is missing"
            raise invalid(path, f"{path} is required, and {came}")
        return reader(value, self.at(name))

    def optional(self, name: str, reader: Reader[Value]) -> Value | None:
        """A field that may be absent or null."""
        value = self.values.get(name)
        return None if value is None else reader(value, self.at(name))


def read_object(value: object, path: str = "") -> Fields:
    """An object."""
    if not isinstance(value, Mapping):
        raise unexpected(path, "an object", value)
    return Fields(value, path)


def text(value: object, path: str) -> str:
    """Any text that can be written down: half of a surrogate pair cannot."""
    if not isinstance(value, str):
        raise unexpected(path, "a text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise invalid(
                path, f"{path}: the text has half of a surrogate pair in it; send whole characters"
            ) from None
    return value


def bounded_text(least: int = 0, most: int = 1_000_000) -> Reader[str]:
    """A text of so many characters."""

    def read(value: object, path: str) -> str:
        words = text(value, path)
        if not least <= len(words) <= most:
            raise unexpected(path, f"a text of {least} to {most} characters", value)
        return words

    return read


def flag(value: object, path: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise unexpected(path, "true or false", value)
    return value


def number(low: float, high: float) -> Reader[float]:
    """A number from `low` to `high`, both included."""

    def read(value: object, path: str) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:  # type: ignore[operator]
            raise unexpected(path, f"a number {_between(low, high)}", value)
        return float(value)  # type: ignore[arg-type]

    return read


def integer(low: int, high: int = 2**53) -> Reader[int]:
    """A whole number from `low` to `high`, both included; 5.0 is one, as JSON has it."""

    def read(value: object, path: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise unexpected(path, f"a whole number {_between(low, high)}", value)
        return value

    return read


def _between(low: float, high: float) -> str:
    return f"from {low} up" if high >= 2**53 else f"from {low} to {high}"


def choice(options: tuple[Choice, ...]) -> Reader[Choice]:
    """One of these words."""

    def read(value: object, path: str) -> Choice:
        for option in options:
            if option == value:
                return option
        raise unexpected(path, " or ".join(repr(option) for option in options), value)

    return read


def array(reader: Reader[Value], most: int, least: int = 0) -> Reader[tuple[Value, ...]]:
    """A list of so many items, each as the reader reads it."""

    def read(value: object, path: str) -> tuple[Value, ...]:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            raise unexpected(path, f"a list of {least} to {most}", value)
        return tuple(reader(item, join_path(path, index)) for index, item in enumerate(value))

    return read


def json_object(value: object, path: str) -> dict[str, Any]:
    """Any JSON object, as long as it is not too deep or too large to pass on."""
    if not isinstance(value, Mapping):
        raise unexpected(path, "an object", value)
    layer: list[Any] = [value]
    count = 0
    for _ in range(DEEPEST):
        if not layer:
            return dict(value)
        count += len(layer)
        if count > MOST_VALUES:
            raise invalid(path, f"{path}: expected at most {MOST_VALUES} values in the object")
        layer = [inner for item in layer for inner in _inside(item, path)]
    raise invalid(path, f"{path}: expected an object that nests at most {DEEPEST} deep")


def _inside(value: object, path: str) -> Collection[Any]:
    """What stands one level deeper; a single value is checked."""
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
        case int() | float() if abs(value) <= BIGGEST_NUMBER:
            pass
        case _:
            raise unexpected(path, "plain JSON values in the object", value)
    return ()


def effort(value: object, path: str) -> Effort:
    """How hard to think, in OpenAI's words."""
    return EFFORTS[choice(tuple(EFFORTS))(value, path)]
