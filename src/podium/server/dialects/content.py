"""The client's tools in a body, and the JSON Schemas of their parameters and of answers.

How a tool is written down, and how one is named, is each dialect's own.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes, urlsplit

from podium.core.errors import UsageError
from podium.core.json_schema import InvalidSchema, check_schema, find_schema_error
from podium.core.request import (
    TOOL_CHOICES,
    Image,
    Message,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    system,
)
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.fields import choice, describe, join_path, json_object, text, unexpected

_SEAL: Final = "podium.seal."


def encode_thinking(thinking: Iterable[Thinking]) -> str:
    """The thinking, for a client to hand back as it is; empty where no model's name is known."""
    kept = [[part.text, part.opaque, part.model] for part in thinking if part.model]
    if not kept:
        return ""
    json_object = json.dumps(kept, separators=(",", ":"))
    return _SEAL + base64.b64encode(json_object.encode()).decode()


def decode_thinking(words: str, path: str) -> tuple[Thinking, ...]:
    """What is in a seal. What was sealed elsewhere holds nothing: there is no knowing which
    model it could be handed to."""
    if not words.startswith(_SEAL):
        return ()
    try:
        kept = json.loads(base64.b64decode(words.removeprefix(_SEAL), validate=True))
        return tuple(_thinking(*entry, path=path) for entry in kept)
    except (ValueError, TypeError, RecursionError):
        raise _changed(path) from None


def _thinking(words: object, opaque: object, model: object, *, path: str) -> Thinking:
    if not isinstance(model, str) or not model:
        raise _changed(path)
    return Thinking(text(words, path), text(opaque, path), text(model, path))


def _changed(path: str) -> ApiError:
    return invalid(
        path, f"{path}: this is not as Podium gave it; hand it back unchanged, or leave it out"
    )


BIGGEST_IMAGE: Final = 20 * 1024 * 1024
"""In bytes, when decoded."""

LONGEST_ADDRESS: Final = 8192

ImageType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
IMAGE_TYPES: Final[tuple[ImageType, ...]] = ("image/png", "image/jpeg", "image/gif", "image/webp")

_ADDRESS: Final = re.compile(r"[!-~]+")


def http_url(value: object, path: str) -> str:
    """An http or https address."""
    words = text(value, path)
    try:
        parts = urlsplit(words) if len(words) <= LONGEST_ADDRESS else None
    except ValueError:
        parts = None
    sound = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    if not sound or not _ADDRESS.fullmatch(words):
        raise unexpected(path, "an http or https address", value)
    return words


def image_url(value: object, path: str) -> Image:
    """A picture by its address: `https://…`, or `data:image/png;base64,…`."""
    words = text(value, path)
    if words[:5].lower() != "data:":
        return Image(url=http_url(words, path))
    head, comma, data = words[5:].partition(",")
    media_type, *parameters = head[:256].lower().split(";")
    if not comma or "base64" not in parameters:
        raise invalid(path, f"{path}: expected data:image/png;base64,… or an https address")
    return base64_image(media_type, data, path)


def base64_image(media_type: object, data: object, path: str) -> Image:
    """A picture by its bytes in base64."""
    kind = choice(IMAGE_TYPES)(media_type, path)
    if not isinstance(data, str):
        raise unexpected(path, "a picture in base64", data)
    if len(data) * 3 // 4 > BIGGEST_IMAGE + 2:
        raise ApiError(
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


UNREAD: Final = "a document that you cannot read"

_UTF_8: Final = ("", "utf-8", "utf8", "us-ascii")
"""The charsets that UTF-8 reads, and that of a text which names none."""


def document_text(title: str | None, *words: str | None) -> Text:
    """What a document says, under its title, where it has one."""
    heading = f"[document: {title}]" if title else None
    return Text("\n".join(each for each in (heading, *words) if each))


def unreadable_document(*known: str | None) -> Text:
    """That there was a document, with what is known of it, such as its title."""
    told = ", ".join(each for each in known if each)
    return Text(f"[{UNREAD}: {told}]" if told else f"[{UNREAD}]")


def decode_data_url(http_url: str) -> str | None:
    """What an address `data:text/plain;base64,…` says; None where it is not one, or not of text."""
    scheme, _, rest = http_url.partition(":")
    media_type, comma, data = rest.partition(",")
    if scheme.lower() != "data" or not comma:
        return None
    if media_type.startswith(";") or not media_type:  # as such addresses have it
        media_type = f"text/plain{media_type}"
    if "base64" in media_type.lower().split(";"):
        return decode_base64_text(media_type, data)
    return _decoded(data, unquote_to_bytes) if _is_text(media_type) else None


def decode_base64_text(media_type: str, data: str) -> str | None:
    """What a text in base64 says; None where it is something else, or no text after all."""
    return _decoded(data, _from_base64) if _is_text(media_type) else None


def _from_base64(data: str) -> bytes:
    return binascii.a2b_base64(data, strict_mode=True)


def _is_text(media_type: str) -> bool:
    """Whether it is `text/…`, in UTF-8 as far as it says."""
    kind, *parameters = media_type.lower().replace(" ", "").split(";")
    charset = next((each[8:] for each in parameters if each.startswith("charset=")), "")
    return kind.startswith("text/") and charset.strip('"') in _UTF_8


def _decoded(data: str, unpacked: Callable[[str], bytes]) -> str | None:
    try:
        return unpacked(data).decode()
    except ValueError:  # neither base64 nor UTF-8, whatever it says
        return None


LONGEST_ID_SHOWN: Final = 80
MOST_CALLS_SHOWN: Final = 5


@dataclass(slots=True)
class ToolCallMatcher:
    """Takes calls and results in their order, each with its path in the body, and refuses what
    does not match. `instead` says in the dialect's words what to send, and `named` what it calls
    calls. `once` says that no two calls of the conversation may have one id; else an id is free
    again when its call is answered. `goes_on` says that calls may have been made before all that
    is told here."""

    instead: str
    named: str = "calls"
    once: bool = False
    goes_on: bool = False
    _waiting: dict[str, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)

    def call(self, call: ToolCall, path: str) -> None:
        """The assistant calls a tool."""
        if call.id in self._waiting or (self.once and call.id in self._answered):
            raise invalid(path, f"{path}: two {self.named} have the id {_shown(call.id)}")
        self._waiting[call.id] = path

    def answer(self, result: ToolResult, path: str) -> None:
        """A tool has answered; `path` is that of the call's id beside the result."""
        called = self._waiting.pop(result.call_id, None) is not None
        if not called and not self.goes_on:
            came = "was answered before" if result.call_id in self._answered else "is not known"
            raise invalid(path, f"{path}: the call {_shown(result.call_id)} {came}; {self.instead}")
        self._answered.add(result.call_id)

    def settle(self, path: str | None = None) -> None:
        """Every call must have its result by now. `path` is where it is missed, if that is not
        where the call stands."""
        if not self._waiting:
            return
        at = path or next(iter(self._waiting.values()))
        calls = ", ".join(_shown(call) for call in list(self._waiting)[:MOST_CALLS_SHOWN])
        whose = f"the call {calls} has" if len(self._waiting) == 1 else f"the calls {calls} have"
        raise invalid(at, f"{at}: {whose} no result; {self.instead}")


def _shown(call_id: str) -> str:
    return repr(call_id if len(call_id) <= LONGEST_ID_SHOWN else f"{call_id[:LONGEST_ID_SHOWN]}…")


def merge_tool_results(messages: Iterable[Message]) -> list[Message]:
    """Results that follow each other as one message: they answer one turn."""
    together: list[Message] = []
    for role, run in groupby(messages, key=lambda message: message.role):
        if role == "tool":
            together.append(Message(role, tuple(part for result in run for part in result.parts)))
        else:
            together += run
    return together


def prepend_instructions(
    messages: tuple[Message, ...], *instructions: str | None
) -> tuple[Message, ...]:
    """The messages after what the system says first, if it says anything."""
    return (*(system(words) for words in instructions if words), *messages)


def find_turn_end(messages: Sequence[Message]) -> int:
    """Where the last turn ends: after it there are only words of the system."""
    end = len(messages)
    while end and messages[end - 1].role == "system":
        end -= 1
    return end


def move_turn_last(messages: Sequence[Message], begins: int) -> tuple[Message, ...]:
    """The messages with what the system says last put before the turn that begins there, so that
    this turn ends the conversation."""
    end = find_turn_end(messages)
    return (*messages[:begins], *messages[end:], *messages[begins:end])


def is_empty_message(message: Message) -> bool:
    """Whether it is without words, pictures and results of tools."""
    return all(isinstance(part, Text) and not part.text.strip() for part in message.parts)


def strip_thinking(message: Message) -> Message:
    """What was said and done alone."""
    return Message(message.role, tuple(p for p in message.parts if not isinstance(p, Thinking)))


MOST_TOOLS: Final = 128
LONGEST_TOOL_NAME: Final = 128

_TOOL_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_TOOL_NAME}}}")


def output_schema(value: object, path: str) -> dict[str, Any]:
    """The JSON Schema of an answer, which must be one that replies can be held against."""
    document_text = json_object(value, path)
    try:
        check_schema(document_text)
    except InvalidSchema as error:
        at = join_path(path, error.path) if error.path else path
        raise invalid(at, f"{at}: {error.reason}") from error
    except UsageError as error:
        raise invalid(path, f"{path}: {error}") from error
    return document_text


def _parameters(value: object, path: str) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters. Nothing is held against it here, so it need only
    have the form of one: what more it asks is for the provider and the client."""
    document_text = json_object(value, path)
    if found := find_schema_error(document_text):
        at = join_path(path, found.path) if found.path else path
        raise invalid(at, f"{at}: {found.reason}")
    return document_text


def make_tool(
    name: object,
    description: str | None,
    parameters: object,
    path: str,
    called: str = "parameters",
) -> Tool:
    """A client's tool; without parameters, one that takes none. `path` is that of the tool, and
    `called` what the dialect calls the parameters."""
    words = text(name, join_path(path, "name"))
    if not _TOOL_NAME.fullmatch(words):
        expected = f"1 to {LONGEST_TOOL_NAME} letters, digits, '_' or '-'"
        raise unexpected(join_path(path, "name"), expected, name)
    none = {"type": "object", "properties": {}}
    form = none if parameters is None else _parameters(parameters, join_path(path, called))
    return Tool(words, description or "", form)


def check_unique_names(tools: tuple[Tool, ...], path: str) -> tuple[Tool, ...]:
    """The tools, refused if two have one name."""
    seen: set[str] = set()
    for index, one in enumerate(tools):
        if one.name in seen:
            raise invalid(join_path(path, index), f"{path}: two tools are named {one.name!r}")
        seen.add(one.name)
    return tools


def find_tool(tools: tuple[Tool, ...], name: str, path: str) -> Tool:
    """The tool of that name, which is to be called. A name that is a word for a choice among tools
    would be taken for that choice."""
    if name in TOOL_CHOICES:
        raise invalid(path, f"{path}: a tool named {name!r} cannot be demanded; rename the tool")
    for one in tools:
        if one.name == name:
            return one
    raise invalid(path, f"{path}: {describe(name)} is not among the tools of this request")
