"""Parts of bodies that dialects share: tools and calls, images, documents, thinking.

A document becomes text or, if it is a PDF, an `Image`. Of another one that a tool returned a note
remains, so that a conversation does not end because an agent read it; a user's own is refused.

A worker's thinking may hold opaque provider state that only the same model may read. It travels
through the client, with the name of its model, in a field that clients hand back unchanged.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from podium.core.errors import UsageError
from podium.core.json_schema import InvalidSchema, check_schema, find_schema_error
from podium.core.request import (
    ANY_OBJECT,
    PDF,
    TOOL_CHOICES,
    Detail,
    Image,
    Message,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
    document_heading,
    system,
)
from podium.server.api_error import ERRORS, ApiError, invalid
from podium.server.dialects.fields import (
    Fields,
    Reader,
    array,
    bounded_text,
    choice,
    describe,
    flag,
    join_path,
    json_object,
    read_object,
    text,
    unexpected_value,
)

_PREFIX: Final = "podium.opaque."


def encode_thinking(thinking: Iterable[Thinking]) -> str:
    """Encode thinking for a client to hand back; empty if its model is unknown."""
    kept = [[part.text, part.opaque, part.model] for part in thinking if part.model]
    if not kept:
        return ""
    encoded = json.dumps(kept, separators=(",", ":"))
    return _PREFIX + base64.b64encode(encoded.encode()).decode()


def decode_thinking(encoded: str, path: str) -> tuple[Thinking, ...]:
    """Decode thinking; another server's is dropped, as its model is unknown."""
    if not encoded.startswith(_PREFIX):
        return ()
    try:
        kept = json.loads(base64.b64decode(encoded.removeprefix(_PREFIX), validate=True))
        return tuple(_make_thinking(*entry, path=path) for entry in kept)
    except (ValueError, TypeError, RecursionError):
        raise _changed_error(path) from None


def _make_thinking(thought: object, opaque: object, model: object, *, path: str) -> Thinking:
    if not isinstance(model, str) or not model:
        raise _changed_error(path)
    return Thinking(text(thought, path), text(opaque, path), text(model, path))


def _changed_error(path: str) -> ApiError:
    return invalid(
        path, f"{path}: opaque thinking was changed; send it back unchanged, or leave it out"
    )


MAX_IMAGE_BYTES: Final = 20 * 1024 * 1024
"""In bytes, decoded."""

MAX_URL: Final = 8192

ImageType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
IMAGE_TYPES: Final[tuple[ImageType, ...]] = ("image/png", "image/jpeg", "image/gif", "image/webp")

_URL_CHARACTERS: Final = re.compile(r"[!-~]+")


def http_url(value: object, path: str) -> str:
    url = text(value, path)
    try:
        parts = urlsplit(url) if len(url) <= MAX_URL else None
    except ValueError:
        parts = None
    is_valid = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    if not is_valid or not _URL_CHARACTERS.fullmatch(url):
        raise unexpected_value(path, "an http or https URL", value)
    return url


def image_url(value: object, path: str) -> Image:
    """Read an image URL: `https://…` or `data:image/png;base64,…`."""
    url = text(value, path)
    if url[:5].lower() != "data:":
        return Image(url=http_url(url, path))
    head, comma, data = url[5:].partition(",")
    media_type, *parameters = head[:256].lower().split(";")
    if not comma or "base64" not in parameters:
        raise invalid(path, f"{path}: expected data:image/png;base64,… or an https URL")
    return base64_image(media_type, data, path)


def base64_image(media_type: object, data: object, path: str) -> Image:
    return _base64_file(choice(IMAGE_TYPES)(media_type, path), data, path)


def _base64_file(media_type: str, data: object, path: str) -> Image:
    if not isinstance(data, str):
        raise unexpected_value(path, "an image in base64", data)
    if len(data) * 3 // 4 > MAX_IMAGE_BYTES + 2:
        raise ApiError(
            "too_large",
            f"{path}: the image is larger than {MAX_IMAGE_BYTES // 2**20} MiB; send a smaller one",
            field=path,
        )
    try:
        decoded = binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise invalid(path, f"{path}: the image is not valid base64: {error}") from None
    if not decoded:
        raise invalid(path, f"{path}: the image is empty")
    return Image(media_type=media_type, data=data)


UNREAD: Final = "a document that you cannot read"

_UTF_8: Final = ("", "utf-8", "utf8", "us-ascii")
"""Charsets that UTF-8 decodes, and no charset."""

_file_name: Final = bounded_text(0, 1000)


def document_text(title: str | None, *texts: str | None) -> Text:
    body = "\n".join(item for item in texts if item)
    return Text(f"{document_heading(title)}{body}".rstrip("\n"), title) if title else Text(body)


def base64_pdf(data: object, path: str) -> Image:
    return _base64_file(PDF, data, path)


def unreadable_document(*known: str | None) -> Text:
    """Return a note about a document that workers cannot read."""
    details = ", ".join(item for item in known if item)
    return Text(f"[{UNREAD}: {details}]" if details else f"[{UNREAD}]")


def read_file(fields: Fields) -> Text | Image:
    """Read a user's file; one that workers cannot read is refused."""
    found = _readable_file(fields)
    if found is None:
        raise invalid(
            fields.path,
            f"{fields.path}: expected file_data with UTF-8 text (data:text/plain;base64,…) or a "
            f"PDF (data:application/pdf;base64,…); files are not stored, so file_id is not read",
        )
    return replace(found, text=f"{found.text}\n\n") if isinstance(found, Text) else found


def read_tools_file(fields: Fields) -> Text | Image:
    """Read a tool's file; of one that workers cannot read a note remains."""
    return _readable_file(fields) or unreadable_document(fields.optional("filename", _file_name))


def _readable_file(fields: Fields) -> Text | Image | None:
    """Return a file as text under its name, or as a PDF; None if it is neither."""
    name, data = fields.optional("filename", _file_name), fields.optional("file_data", text) or ""
    if fields.has("file_url"):
        return Image(media_type=PDF, url=fields.required("file_url", http_url))
    head, _, encoded = data.partition(",")
    if head.lower().replace(" ", "") == f"data:{PDF};base64":
        return base64_pdf(encoded, fields.at("file_data"))
    if data and head[:5].lower() != "data:" and (name or "").lower().endswith(".pdf"):
        return base64_pdf(data, fields.at("file_data"))
    words = decode_data_url(data)
    return None if words is None else document_text(name, words)


def decode_data_url(url: str) -> str | None:
    """Return the text of a `data:text/…` URL; None for others."""
    scheme, _, rest = url.partition(":")
    media_type, comma, data = rest.partition(",")
    if scheme.lower() != "data" or not comma:
        return None
    if media_type.startswith(";") or not media_type:  # as such addresses have it
        media_type = f"text/plain{media_type}"
    if "base64" in media_type.lower().split(";"):
        return decode_base64_text(media_type, data)
    return _decode(data, unquote_to_bytes) if _is_text(media_type) else None


def decode_base64_text(media_type: str, data: str) -> str | None:
    return _decode(data, _from_base64) if _is_text(media_type) else None


def _from_base64(data: str) -> bytes:
    return binascii.a2b_base64(data, strict_mode=True)


def _is_text(media_type: str) -> bool:
    kind, *parameters = media_type.lower().replace(" ", "").split(";")
    charset = next(
        (parameter[8:] for parameter in parameters if parameter.startswith("charset=")), ""
    )
    return kind.startswith("text/") and charset.strip('"') in _UTF_8


def _decode(data: str, decode_bytes: Callable[[str], bytes]) -> str | None:
    try:
        return decode_bytes(data).decode()
    except ValueError:  # neither base64 nor UTF-8, whatever it says
        return None


MAX_ID_SHOWN: Final = 80
MAX_CALLS_SHOWN: Final = 5


@dataclass(slots=True)
class ToolCallMatcher:
    """Matches tool calls with their results, and refuses a body in which they do not match.

    `hint` says what to send, `noun` what the dialect calls the calls. With `unique_ids`, an id is
    not free again once its call has a result. With `continues`, calls may be in earlier turns.
    """

    hint: str
    noun: str = "calls"
    unique_ids: bool = False
    continues: bool = False
    _waiting: dict[str, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)

    def call(self, call: ToolCall, path: str) -> None:
        if call.id in self._waiting or (self.unique_ids and call.id in self._answered):
            raise invalid(path, f"{path}: two {self.noun} have the id {_quote_id(call.id)}")
        self._waiting[call.id] = path

    def answer(self, result: ToolResult, path: str) -> None:
        """Take a tool result; `path` is that of its call id."""
        called = self._waiting.pop(result.call_id, None) is not None
        if not called and not self.continues:
            came = "already has a result" if result.call_id in self._answered else "does not exist"
            raise invalid(path, f"{path}: the call {_quote_id(result.call_id)} {came}; {self.hint}")
        self._answered.add(result.call_id)

    def settle(self, path: str | None = None) -> None:
        """Raise `ApiError` if a call has no result; `path` overrides the call's path."""
        if not self._waiting:
            return
        at = path or next(iter(self._waiting.values()))
        calls = ", ".join(_quote_id(call) for call in list(self._waiting)[:MAX_CALLS_SHOWN])
        whose = f"the call {calls} has" if len(self._waiting) == 1 else f"the calls {calls} have"
        raise invalid(at, f"{at}: {whose} no result; {self.hint}")


def _quote_id(call_id: str) -> str:
    return repr(call_id if len(call_id) <= MAX_ID_SHOWN else f"{call_id[:MAX_ID_SHOWN]}…")


def merge_tool_results(messages: Iterable[Message]) -> list[Message]:
    """Merge consecutive tool results into one message: they answer one turn."""
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
    """Put system messages before the messages."""
    return (*(system(text) for text in instructions if text), *messages)


def is_empty_message(message: Message) -> bool:
    """True if the message has no text, images or tool results."""
    return all(isinstance(part, Text) and not part.text.strip() for part in message.parts)


def strip_thinking(message: Message) -> Message:
    return Message(message.role, tuple(p for p in message.parts if not isinstance(p, Thinking)))


MAX_TOOLS: Final = 128
MAX_TOOL_NAME: Final = 128

_TOOL_NAME: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_TOOL_NAME}}}")


def output_schema(value: object, path: str) -> dict[str, Any]:
    """Read the JSON Schema of an answer; replies must be checkable against it."""
    schema = json_object(value, path)
    try:
        check_schema(schema)
    except InvalidSchema as error:
        at = join_path(path, error.path) if error.path else path
        raise invalid(at, f"{at}: {error.reason}") from error
    except UsageError as error:
        raise invalid(path, f"{path}: {error}") from error
    return schema


def _parameters(value: object, path: str) -> dict[str, Any]:
    """Read the JSON Schema of a tool's parameters; providers and clients enforce it."""
    schema = json_object(value, path)
    if found := find_schema_error(schema):
        at = join_path(path, found.path) if found.path else path
        raise invalid(at, f"{at}: {found.reason}")
    return schema


def make_tool(
    name: object,
    description: str | None,
    parameters: object,
    path: str,
    called: str = "parameters",
) -> Tool:
    """Make a client's tool; `called` is the dialect's name of the parameters."""
    tool_name = text(name, join_path(path, "name"))
    if not _TOOL_NAME.fullmatch(tool_name):
        expected = f"1 to {MAX_TOOL_NAME} letters, digits, '_' or '-'"
        raise unexpected_value(join_path(path, "name"), expected, name)
    none = {"type": "object", "properties": {}}
    form = none if parameters is None else _parameters(parameters, join_path(path, called))
    return Tool(tool_name, description or "", form)


def check_unique_names(tools: tuple[Tool, ...], path: str) -> tuple[Tool, ...]:
    """Return the tools; raises `ApiError` if two have one name."""
    seen: set[str] = set()
    for index, one in enumerate(tools):
        if one.name in seen:
            raise invalid(join_path(path, index), f"{path}: two tools are named {one.name!r}")
        seen.add(one.name)
    return tools


def find_tool(tools: tuple[Tool, ...], name: str, path: str) -> Tool:
    """Return the tool that must be called. A name like `auto` would be taken for a tool choice."""
    if name in TOOL_CHOICES:
        raise invalid(path, f"{path}: a tool named {name!r} cannot be required; rename it")
    for one in tools:
        if one.name == name:
            return one
    raise invalid(path, f"{path}: {describe(name)} is not among the tools of this request")


_WORDS: Final = ("auto", "none", "required")
_NESTED_CHOICE: Final = frozenset({"type", "function", "allowed_tools"})
_FLAT_CHOICE: Final = frozenset({"type", "name", "mode", "tools"})


def read_tool_choice(
    value: object, path: str, tools: tuple[Tool, ...], *, nested: bool
) -> tuple[str, tuple[Tool, ...]]:
    """Return the tool choice and the tools that may be called.

    `nested`: names are in objects of their own, as in Chat Completions; in Responses they are not,
    and there are custom tools.
    """
    if isinstance(value, str):
        word = choice(_WORDS)(value, path)
        if word == "required" and not tools:
            raise invalid(path, f"{path}: 'required' needs tools, and there are none")
        return word if tools else "", tools
    known = _NESTED_CHOICE if nested else _FLAT_CHOICE
    kinds = ("function",) if nested else ("function", "custom")

    def find_named(fields: Fields) -> Tool:
        inner = fields
        if nested:
            inner = fields.required("function", read_object).note_unknown(frozenset({"name"}))
        return find_tool(tools, inner.required("name", text), inner.at("name"))

    def read_allowed(value: object, path: str) -> Tool:
        fields = read_object(value, path).note_unknown(known)
        fields.required("type", choice(kinds))
        return find_named(fields)

    fields = read_object(value, path).note_unknown(known)
    kind = fields.required("type", choice((*kinds, "allowed_tools")))
    if kind != "allowed_tools":
        return find_named(fields).name, tools
    if nested:
        fields = fields.required(kind, read_object).note_unknown(frozenset({"mode", "tools"}))
    mode = fields.required("mode", choice(("auto", "required")))
    names = {
        tool.name for tool in fields.required("tools", array(read_allowed, MAX_TOOLS, least=1))
    }
    return mode, tuple(tool for tool in tools if tool.name in names)


DETAILS: Final[tuple[Detail, ...]] = ("auto", "low", "high", "original")
image_detail: Final = choice(DETAILS)

VERBOSITY: Final[Mapping[str, str]] = {
    "low": "Keep your answer short.",
    "medium": "",
    "high": "Answer at length and in detail.",
}
"""OpenAI's verbosity as an instruction to workers."""

_SCHEMA_FIELDS: Final = frozenset({"type", "name", "description", "schema", "strict"})


def verbosity(value: object, path: str) -> str:
    """Read a verbosity as an instruction; empty for the default."""
    return VERBOSITY[choice(tuple(VERBOSITY))(value, path)]


def metadata(value: object, path: str) -> dict[str, str]:
    """Read metadata: at most 16 pairs of strings."""
    pairs = read_object(value, path).values
    if len(pairs) > 16:
        raise invalid(path, f"{path}: expected at most 16 entries, got {len(pairs)}")
    for key in pairs:
        bounded_text(1, 64)(key, path)
    return {key: bounded_text(0, 512)(pairs[key], join_path(path, key)) for key in pairs}


def response_format(*, nested: bool) -> Reader[dict[str, Any] | None]:
    """Return a reader of the answer's JSON Schema; None for plain text.

    The schema's name and description become its title and description. `nested`: the schema is in
    an object of its own, as in Chat Completions.
    """
    known = frozenset({"type", "json_schema"}) if nested else _SCHEMA_FIELDS

    def read(value: object, path: str) -> dict[str, Any] | None:
        fields = read_object(value, path).note_unknown(known)
        kind = fields.required("type", choice(("text", "json_object", "json_schema")))
        if kind != "json_schema":
            return dict(ANY_OBJECT) if kind == "json_object" else None
        form = fields.required(kind, read_object).note_unknown(_SCHEMA_FIELDS) if nested else fields
        form.optional("strict", flag)
        titled = {"title": form.required("name", bounded_text(1, 64))}
        if (description := form.optional("description", text)) is not None:
            titled["description"] = description
        return titled | form.required("schema", output_schema)

    return read


def stream_options(fields: Fields, own: str, *, stream: bool) -> Fields | None:
    """Read `stream_options`; `own` is the dialect's own option."""
    options = fields.optional("stream_options", read_object)
    if options is None:
        return None
    if not stream:
        raise invalid(options.path, "stream_options requires stream: true")
    pads = options.values.get("include_obfuscation")
    return options.note_unknown(frozenset({own} if pads else {own, "include_obfuscation"}))


class UsageDetails(NamedTuple):
    """Details of input and output tokens, as far as known."""

    input: dict[str, int]
    output: dict[str, int]


def usage_details(total: Usage, orchestration: Usage) -> UsageDetails:
    """Return details of usage. The conductor's share has the fields of Sakana's Fugu API, the
    paper's product, and is left out if zero."""
    input_details = _known_counts(
        cached_tokens=total.cached_input_tokens, cache_write_tokens=total.cache_write_tokens
    )
    output_details = _known_counts(reasoning_tokens=total.reasoning_tokens)
    if orchestration.total_tokens:
        input_details |= _known_counts(
            orchestration_input_tokens=orchestration.input_tokens,
            orchestration_input_cached_tokens=orchestration.cached_input_tokens,
        )
        output_details |= _known_counts(orchestration_output_tokens=orchestration.output_tokens)
    return UsageDetails(input_details, output_details)


def _known_counts(**counts: int | None) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}


def openai_error(error: ApiError) -> dict[str, Any]:
    kind = ERRORS[error.reason]
    unknown_model = error.reason == "not_found" and error.field == "model"
    return {
        "message": str(error),
        "type": kind.openai_type,
        "param": error.field or None,
        "code": error.code or ("model_not_found" if unknown_model else kind.openai_code),
    }
