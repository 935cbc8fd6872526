"""Read the messages of an Anthropic Messages body.

Accepted: text, images, documents (text or PDF), thinking that is handed back, tool calls and
results. Other blocks are refused with what to send instead, except for documents that tools return,
in a result or beside it as Claude Code sends them. Citations have no effect.

Claude Code's first system block is a billing note with a changing checksum. It is dropped, as it
would defeat prompt caches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final

from podium.core.request import (
    PDF,
    Image,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from podium.server.api_error import invalid
from podium.server.dialects.anthropic_response import read_thinking_block
from podium.server.dialects.content import (
    ToolCallMatcher,
    base64_image,
    base64_pdf,
    decode_base64_text,
    document_text,
    http_url,
    prepend_instructions,
    strip_thinking,
    unreadable_document,
)
from podium.server.dialects.fields import (
    Fields,
    Reader,
    array,
    bounded_text,
    choice,
    flag,
    json_object,
    read_object,
    text,
    unexpected_value,
)

MAX_MESSAGES: Final = 100_000
MAX_BLOCKS: Final = 10_000

_BILLING_NOTE: Final = "x-anthropic-billing-header:"

_ROLES: Final[tuple[Role, ...]] = ("user", "assistant", "system")

_identifier: Final = bounded_text(1, 256)

_MESSAGE: Final = frozenset({"role", "content"})
_BLOCK: Final = frozenset({"type", "cache_control"})
_TEXT: Final = _BLOCK | {"text", "citations"}
_IMAGE: Final = _BLOCK | {"source", "transformations"}
_TOOL_USE: Final = _BLOCK | {"id", "name", "input", "caller"}
_TOOL_RESULT: Final = _BLOCK | {"tool_use_id", "content", "is_error"}
_DOCUMENT: Final = _BLOCK | {"source", "title", "context"}

_HINTS: Final = {
    "search_result": "search results are not supported; send them as text",
    "container_upload": "containers are not supported; send the file's text",
    "tool_reference": (
        "tool search is not supported; send every tool in `tools` "
        "(in Claude Code, set ENABLE_TOOL_SEARCH=false)"
    ),
    "compaction": "compaction is not supported; send the messages, or a summary as text",
}
_DEFAULT_HINT: Final = (
    "this block is not supported; leave out what Anthropic's own tools did, or send it as text"
)


def conversation(body: Fields) -> tuple[Message, ...]:
    words = body.optional("system", _system)
    turns = _Turns()
    body.required("messages", array(turns.take, most=MAX_MESSAGES, least=1))
    turns.calls.settle()
    return prepend_instructions(tuple(turns.messages), words)


def strip_old_thinking(messages: tuple[Message, ...], turns: int) -> tuple[Message, ...]:
    """Keep the thinking of the latest turns only.

    A turn is all that the assistant did between two user messages, tool calls included.
    """
    kept: list[Message] = []
    turn, seen = 0, False
    for message in reversed(messages):
        if message.role == "user":
            turn, seen = turn + seen, False
        if message.role == "assistant":
            seen = True
            if turn >= turns:
                message = strip_thinking(message)
        if message.parts:
            kept.append(message)
    return tuple(reversed(kept))


class _Turns:
    """Reads one message after the other, and matches tool calls with results."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.calls = ToolCallMatcher(
            "send one tool_result for each tool_use, in the next user message",
            noun="tool_use blocks",
            unique_ids=True,
        )
        self._last_role: Role | None = None

    def take(self, value: object, path: str) -> None:
        fields = read_object(value, path).note_unknown(_MESSAGE)
        role = fields.required("role", choice(_ROLES))
        if role == "assistant" and self._last_role == "user":
            self.calls.settle()
        if role != "system":
            self._last_role = role
        parts = tuple(fields.required("content", _READERS[role]))
        for part, at in parts:
            if isinstance(part, ToolCall):
                self.calls.call(part, at)
            if isinstance(part, ToolResult):
                self.calls.answer(part, f"{at}.tool_use_id")
        if parts:
            self.messages.append(_message(role, tuple(part for part, _ in parts)))


def _message(role: Role, parts: tuple[Part, ...]) -> Message:
    """Make a message: thinking first, as its model expects, and tool results before other parts."""
    if role == "assistant":
        first: type[Part] = Thinking
    elif any(isinstance(part, ToolResult) for part in parts):
        role, first = "tool", ToolResult
        parts = _with_pdfs(parts)
    else:
        return Message(role, parts)
    ordered = sorted(parts, key=lambda part: not isinstance(part, first))
    return Message(role, tuple(ordered))


def _with_pdfs(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Give PDFs beside tool results to the last result: a tool read them, and a worker that cannot
    read PDFs then gets a note."""
    pdfs = tuple(part for part in parts if isinstance(part, Image) and part.is_pdf)
    if not pdfs:
        return parts
    others = [part for part in parts if part not in pdfs]
    last = max(i for i, part in enumerate(others) if isinstance(part, ToolResult))
    result = others[last]
    assert isinstance(result, ToolResult)
    others[last] = replace(result, images=(*result.images, *pdfs))
    return tuple(others)


def _system(value: object, path: str) -> str:
    if isinstance(value, str):
        return text(value, path)
    blocks = array(_text_block, most=MAX_BLOCKS)(value, path)
    return "\n\n".join(words for words in blocks if not words.startswith(_BILLING_NOTE))


PartsReader = Reader[tuple[Part, ...]]
PartAt = tuple[Part, str]
"""A part and the path of its block."""


def _user_content(value: object, path: str) -> Iterator[PartAt]:
    has_results = isinstance(value, list) and any(
        isinstance(block, Mapping) and block.get("type") == "tool_result" for block in value
    )
    return _content(value, path, _block_beside_results if has_results else _user_block)


def _assistant_content(value: object, path: str) -> Iterator[PartAt]:
    return _content(value, path, _assistant_block)


def _system_content(value: object, path: str) -> Iterator[PartAt]:
    words = _system(value, path)
    if words:
        yield Text(words), path


def _content(value: object, path: str, block: PartsReader) -> Iterator[PartAt]:
    if isinstance(value, str):
        if words := text(value, path):
            yield Text(words), path
        return

    def located(item: object, at: str) -> tuple[PartAt, ...]:
        return tuple((part, at) for part in block(item, at))

    for parts in array(located, most=MAX_BLOCKS)(value, path):
        yield from parts


_READERS: Final[dict[Role, Reader[Iterator[PartAt]]]] = {
    "user": _user_content,
    "assistant": _assistant_content,
    "system": _system_content,
}


def _block_reader(where: str, **readers: Callable[[Fields], tuple[Part, ...]]) -> PartsReader:
    *others, last = readers
    expected = f"{', '.join(others)} or {last} in {where}"

    def read(value: object, path: str) -> tuple[Part, ...]:
        block = read_object(value, path)
        kind = block.required("type", text)
        if (reader := readers.get(kind)) is not None:
            return reader(block)
        error = unexpected_value(block.at("type"), expected, kind)
        raise invalid(block.at("type"), f"{error}; {_HINTS.get(kind, _DEFAULT_HINT)}")

    return read


def _text_block(value: object, path: str) -> str:
    block = read_object(value, path).note_unknown(_TEXT)
    block.required("type", choice(("text",)))
    return block.required("text", text)


def _text_parts(block: Fields) -> tuple[Part, ...]:
    words = _text_block(block.values, block.path)
    return (Text(words),) if words else ()


def _image(block: Fields) -> tuple[Image, ...]:
    block.note_unknown(_IMAGE)
    source = block.required("source", read_object)
    if source.values.get("type") == "file":
        path = source.at("type")
        raise invalid(path, f"{path}: files are not supported; send the image as base64 or url")
    if source.required("type", choice(("base64", "url"))) == "url":
        return (Image(url=source.required("url", http_url)),)
    kind = source.required("media_type", text)
    return (base64_image(kind, source.required("data", text), source.path),)


def _tool_use(block: Fields) -> tuple[Part, ...]:
    block.note_unknown(_TOOL_USE)
    arguments = json.dumps(block.required("input", json_object))
    id_, name = block.required("id", _identifier), block.required("name", _identifier)
    return (ToolCall(id_, name, arguments),)


def _tool_result(block: Fields) -> tuple[Part, ...]:
    block.note_unknown(_TOOL_RESULT)
    words, images = _split_parts(block.optional("content", _parts(_result_block)) or ())
    id_ = block.required("tool_use_id", _identifier)
    return (ToolResult(id_, words, block.optional("is_error", flag) or False, images),)


def _parts(block: PartsReader) -> PartsReader:
    def read(value: object, path: str) -> tuple[Part, ...]:
        if isinstance(value, str):
            return (Text(text(value, path)),)
        return tuple(chain.from_iterable(array(block, most=MAX_BLOCKS)(value, path)))

    return read


def _document(block: Fields) -> tuple[Part, ...]:
    """Read a document of the user; one that workers cannot read is refused."""
    found = _readable_document(block)
    if found is None:
        path = block.at("source")
        raise invalid(
            path,
            f"{path}: expected text, or a PDF as base64 or URL; send the text, or pages as images",
        )
    return tuple(
        replace(part, text=f"{part.text}\n\n") if isinstance(part, Text) else part for part in found
    )


def _tools_document(block: Fields) -> tuple[Part, ...]:
    """Read a document of a tool; of one that workers cannot read a note remains."""
    found = _readable_document(block)
    if found is not None:
        return found
    source = block.required("source", read_object)
    kind = source.optional("media_type", _identifier)
    title, context = (block.optional(name, text) for name in ("title", "context"))
    return (unreadable_document(title, kind, context),)


def _readable_document(block: Fields) -> tuple[Part, ...] | None:
    """Return the text and images of a document; None if it is neither text nor a PDF."""
    block.note_unknown(_DOCUMENT)
    title = block.optional("title", bounded_text(0, 1000))
    context = block.optional("context", text)
    source = block.required("source", read_object)
    kind = source.optional("media_type", _identifier) or ""
    words: str | None = ""
    images: tuple[Image, ...] = ()
    match source.required("type", text):
        case "text":
            words = source.required("data", text)
        case "content":
            words, images = _split_parts(source.required("content", _parts(_document_block)))
        case "base64" if kind == PDF:
            images = (base64_pdf(source.values.get("data"), source.path),)
        case "base64":
            words = decode_base64_text(kind, source.required("data", text))
        case "url":
            images = (Image(media_type=PDF, url=source.required("url", http_url)),)
        case _:
            words = None
    if words is None:
        return None
    document = document_text(title, context, words)
    return (document, *images) if document.text else images


def _split_parts(content: tuple[Part, ...]) -> tuple[str, tuple[Image, ...]]:
    words = "\n".join(part.text for part in content if isinstance(part, Text))
    return words, tuple(part for part in content if isinstance(part, Image))


_document_block: Final = _block_reader("a document", text=_text_parts, image=_image)
_result_block: Final = _block_reader(
    "a tool_result", text=_text_parts, image=_image, document=_tools_document
)
_user_block: Final = _block_reader(
    "a user message", text=_text_parts, image=_image, document=_document, tool_result=_tool_result
)
_block_beside_results: Final = _block_reader(
    "a user message",
    text=_text_parts,
    image=_image,
    document=_tools_document,
    tool_result=_tool_result,
)
_assistant_block: Final = _block_reader(
    "an assistant message",
    text=_text_parts,
    thinking=read_thinking_block,
    redacted_thinking=read_thinking_block,
    tool_use=_tool_use,
)
