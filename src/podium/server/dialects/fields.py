"""Reading bodies that nobody vouches for: every value is checked, and what is wrong is named.

A reader takes a value and its path in the body, and returns what it means or raises a `Refusal`
with that path. Readers are small and combine:

    body = opened(value).only(KNOWN)                     an object, and no other keys in it
    model = body.required("model", text)
    warmth = body.optional("temperature", number(0, 2))  None where absent or null
    stops = body.optional("stop", listed(text, most=4))

All of them run in time linear in the body, raise nothing but `Refusal`, and never repeat a long
text in a message. What only one dialect has is read in its own file.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from podium.config.problems import nearest
from podium.request import Detail, Effort, Image, Tool
from podium.server.dialects.base import Json, Wished
from podium.server.dialects.schemas import flaw
from podium.server.refusal import Refusal, invalid

Value = TypeVar("Value")
Word = TypeVar("Word", bound=str)
Reader = Callable[[object, str], Value]
"""A value and its path -> what it means. Raises `Refusal`."""

LONGEST_SHOWN: Final = 40
"""A longer text might be private, so a message tells its length alone."""

DEEPEST: Final = 64
"""How deep free JSON (schemas, plans) may nest."""

MOST_VALUES: Final = 20_000
"""How many values free JSON may hold."""

BIGGEST_NUMBER: Final = 2**64
"""Beyond it, JSON readers disagree on what a whole number is."""

BIGGEST_IMAGE: Final = 20 * 1024 * 1024
"""In bytes, when decoded."""

LONGEST_ADDRESS: Final = 8192

MOST_TOOLS: Final = 128
LONGEST_TOOL_NAME: Final = 128

ImageType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
IMAGE_TYPES: Final[tuple[ImageType, ...]] = ("image/png", "image/jpeg", "image/gif", "image/webp")

DETAILS: Final[tuple[Detail, ...]] = ("auto", "low", "high", "original")

BUDGET_CAPS: Final = ("calls", "tokens", "usd", "seconds", "depth")
WISHES: Final = frozenset({"budget", "exclude", "max_steps", "rounds", "workflow"})

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

VERBOSITY: Final[Mapping[str, str]] = {
    "low": "Keep your answer short.",
    "medium": "",
    "high": "Answer at length and in detail.",
}
"""How long an answer should be, as OpenAI's clients say it, in words that any worker follows."""

_TOOL_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_TOOL_NAME}}}")
_ADDRESS: Final = re.compile(r"[!-~]+")


def joined(path: str, name: str | int) -> str:
    """The path of a field within the object or list at `path`."""
    return f"{path}.{name}" if path else str(name)


def wrong(path: str, expected: str, value: object) -> Refusal:
    """What was expected there, and what came."""
    return invalid(path, f"{path or 'the body'}: expected {expected}, got {shown(value)}")


def shown(value: object) -> str:
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
                path = joined(self.path, name)
                raise invalid(path, f"unknown field {path}; {nearest(name, known)}")
        return self

    def at(self, name: str) -> str:
        """The path of a field."""
        return joined(self.path, name)

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


def opened(value: object, path: str = "") -> Fields:
    """An object."""
    if not isinstance(value, Mapping):
        raise wrong(path, "an object", value)
    return Fields(value, path)


def text(value: object, path: str) -> str:
    """Any text that can be written down: half of a surrogate pair cannot."""
    if not isinstance(value, str):
        raise wrong(path, "a text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise invalid(
                path, f"{path}: the text has half of a surrogate pair in it; send whole characters"
            ) from None
    return value


def text_of(least: int = 0, most: int = 1_000_000) -> Reader[str]:
    """A text of so many characters."""

    def read(value: object, path: str) -> str:
        words = text(value, path)
        if not least <= len(words) <= most:
            raise wrong(path, f"a text of {least} to {most} characters", value)
        return words

    return read


def flag(value: object, path: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(path, "true or false", value)
    return value


def number(low: float, high: float) -> Reader[float]:
    """A number from `low` to `high`, both included."""

    def read(value: object, path: str) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high:  # type: ignore[operator]
            raise wrong(path, f"a number {_between(low, high)}", value)
        return float(value)  # type: ignore[arg-type]

    return read


def whole(low: int, high: int = 2**53) -> Reader[int]:
    """A whole number from `low` to `high`, both included; 5.0 is one, as JSON has it."""

    def read(value: object, path: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise wrong(path, f"a whole number {_between(low, high)}", value)
        return value

    return read


def _between(low: float, high: float) -> str:
    return f"from {low} up" if high >= 2**53 else f"from {low} to {high}"


def choice(options: tuple[Word, ...]) -> Reader[Word]:
    """One of these words."""

    def read(value: object, path: str) -> Word:
        for option in options:
            if option == value:
                return option
        raise wrong(path, " or ".join(repr(option) for option in options), value)

    return read


def listed(reader: Reader[Value], most: int, least: int = 0) -> Reader[tuple[Value, ...]]:
    """A list of so many items, each as the reader reads it."""

    def read(value: object, path: str) -> tuple[Value, ...]:
        if not isinstance(value, list | tuple) or not least <= len(value) <= most:
            raise wrong(path, f"a list of {least} to {most}", value)
        return tuple(reader(item, joined(path, index)) for index, item in enumerate(value))

    return read


def document(value: object, path: str) -> dict[str, Any]:
    """Any JSON object, as long as it is not too deep or too large to pass on."""
    if not isinstance(value, Mapping):
        raise wrong(path, "an object", value)
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
            raise wrong(path, "plain JSON values in the object", value)
    return ()


def schema(value: object, path: str) -> dict[str, Any]:
    """A JSON Schema."""
    read = document(value, path)
    if found := flaw(read):
        at = joined(path, found.path) if found.path else path
        raise invalid(at, f"{at}: {found.reason}")
    return read


def address(value: object, path: str) -> str:
    """An http or https address."""
    words = text(value, path)
    try:
        parts = urlsplit(words) if len(words) <= LONGEST_ADDRESS else None
    except ValueError:
        parts = None
    sound = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    if not sound or not _ADDRESS.fullmatch(words):
        raise wrong(path, "an http or https address", value)
    return words


def image(value: object, path: str) -> Image:
    """A picture by its address: `https://…`, or `data:image/png;base64,…`."""
    words = text(value, path)
    if words[:5].lower() != "data:":
        return Image(url=address(words, path))
    head, comma, data = words[5:].partition(",")
    media_type, *parameters = head[:256].lower().split(";")
    if not comma or "base64" not in parameters:
        raise invalid(path, f"{path}: expected data:image/png;base64,… or an https address")
    return image_bytes(media_type, data, path)


def detail(value: object, path: str) -> Detail:
    """How closely to look at a picture, in OpenAI's words."""
    return choice(DETAILS)(value, path)


def image_bytes(media_type: object, data: object, path: str) -> Image:
    """A picture by its bytes in base64."""
    kind = choice(IMAGE_TYPES)(media_type, path)
    if not isinstance(data, str):
        raise wrong(path, "a picture in base64", data)
    if len(data) * 3 // 4 > BIGGEST_IMAGE + 2:
        raise Refusal(
            "too_large",
            f"{path}: the picture is over {BIGGEST_IMAGE // 2**20} MiB; send a smaller one",
            field=path,
        )
    try:
        whole_picture = binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise invalid(path, f"{path}: the picture is not in base64: {error}") from None
    if not whole_picture:
        raise invalid(path, f"{path}: the picture is empty")
    return Image(media_type=kind, data=data)


def effort(value: object, path: str) -> Effort:
    """How hard to think, in OpenAI's words."""
    return EFFORTS[choice(tuple(EFFORTS))(value, path)]


def verbosity(value: object, path: str) -> str:
    """How long the answer should be, in words for the workers; empty where it is as usual."""
    return VERBOSITY[choice(tuple(VERBOSITY))(value, path)]


def tool(
    name: object,
    description: str | None,
    parameters: object,
    path: str,
    called: str = "parameters",
) -> Tool:
    """A client's tool; without parameters, one that takes none. `path` is that of the tool, and
    `called` what the dialect calls the parameters."""
    words = text(name, joined(path, "name"))
    if not _TOOL_NAME.fullmatch(words):
        expected = f"1 to {LONGEST_TOOL_NAME} letters, digits, '_' or '-'"
        raise wrong(joined(path, "name"), expected, name)
    none = {"type": "object", "properties": {}}
    form = none if parameters is None else schema(parameters, joined(path, called))
    return Tool(words, description or "", form)


def distinct(tools: tuple[Tool, ...], path: str) -> tuple[Tool, ...]:
    """The tools, refused if two have one name."""
    seen: set[str] = set()
    for index, one in enumerate(tools):
        if one.name in seen:
            raise invalid(joined(path, index), f"{path}: two tools are named {one.name!r}")
        seen.add(one.name)
    return tools


def metadata(value: object, path: str) -> dict[str, str]:
    """OpenAI's notes of the client's own: at most 16 pairs of texts."""
    pairs = opened(value, path).values
    if len(pairs) > 16:
        raise invalid(path, f"{path}: expected at most 16 pairs, got {len(pairs)}")
    for key in pairs:
        text_of(1, 64)(key, path)
    return {key: text_of(0, 512)(pairs[key], joined(path, key)) for key in pairs}


def wished(value: object, path: str) -> Wished:
    """The `podium` object: what only Podium understands."""
    fields = opened(value, path).only(WISHES)
    exclude = fields.optional("exclude", listed(text_of(1, 200), most=1000))
    return Wished(
        budget=fields.optional("budget", _caps) or {},
        exclude=frozenset(exclude or ()),
        max_steps=fields.optional("max_steps", whole(1, 100)),
        rounds=fields.optional("rounds", whole(1, 100)),
        workflow=fields.optional("workflow", document),
    )


def _caps(value: object, path: str) -> dict[str, float]:
    fields = opened(value, path).only(BUDGET_CAPS)
    caps: dict[str, float] = {}
    for name in BUDGET_CAPS:
        read: Reader[float] = number(0, 1e12) if name in ("usd", "seconds") else whole(0)
        if (cap := fields.optional(name, read)) is not None:
            caps[name] = cap
    return caps
