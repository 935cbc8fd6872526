"""Read the messages of a Chat Completions body.

| role | becomes |
|---|---|
| system, developer | a system message; a trailing one is moved before the turn it follows |
| user | text and images; audio and files are refused |
| assistant | text, tool calls and `reasoning_content` |
| tool | a result; consecutive ones are one message |

A participant's `name` is put before the text. Fields that the SDK adds to parsed messages
(`parsed`, `parsed_arguments`, `index`, `annotations`) are ignored. Calls and results must match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from podium.core.request import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from podium.server.api_error import invalid
from podium.server.dialects.content import (
    ToolCallMatcher,
    image_url,
    is_empty_message,
    merge_tool_results,
)
from podium.server.dialects.fields import (
    Fields,
    array,
    bounded_text,
    choice,
    join_path,
    read_object,
    text,
    unexpected,
)
from podium.server.dialects.openai import image_detail

MOST_MESSAGES: Final = 10_000
MOST_PARTS: Final = 10_000
MOST_CALLS: Final = 1_000

ROLES: Final = ("system", "developer", "user", "assistant", "tool")

_TEXT: Final = ("text",)
_TEXT_AND_IMAGES: Final = ("text", "image_url")
_TEXT_AND_REFUSALS: Final = ("text", "refusal")
_NOT_SUPPORTED_PARTS: Final = {
    "input_audio": "audio is not supported; send a transcript",
    "file": "files are not supported; send their text, or their pages as images",
}

_ASSISTANT: Final = frozenset(
    {"role", "content", "name", "refusal", "tool_calls", "reasoning_content"}
    | {"audio", "function_call", "annotations", "parsed"}
)
_NOT_SUPPORTED: Final = {
    "audio": "audio is not supported; send a transcript",
    "function_call": "deprecated; use tool_calls",
}

_id: Final = bounded_text(1, 1024)
_role: Final = choice(ROLES)
_name: Final = bounded_text(1, 64)


def conversation(value: object, path: str) -> tuple[Message, ...]:
    """Read all messages, in their order; a lone system message becomes the question."""
    read = array(_message, most=MOST_MESSAGES, least=1)(value, path)
    _check_calls(read, path)
    spoken = [index for index, message in enumerate(read) if message.role != "system"]
    last = spoken[-1] if spoken else len(read) - 1
    if is_empty_message(read[last]):
        at = join_path(path, last)
        raise invalid(at, f"{at}: the last message is empty")
    if not spoken:
        return (*read[:-1], Message("user", read[-1].parts))
    return tuple(merge_tool_results(read))


def _message(value: object, path: str) -> Message:
    fields = read_object(value, path)
    if fields.values.get("role") == "function":
        raise invalid(
            fields.at("role"), f"{fields.at('role')}: 'function' is deprecated; use 'tool'"
        )
    return _READERS[fields.required("role", _role)](fields)


def _system(fields: Fields) -> Message:
    fields.only(("role", "content", "name"))
    return Message("system", (*_named(fields), *_content(fields, _TEXT)))


def _user(fields: Fields) -> Message:
    fields.only(("role", "content", "name"))
    return Message("user", (*_named(fields), *_content(fields, _TEXT_AND_IMAGES)))


def _assistant(fields: Fields) -> Message:
    fields.only(_ASSISTANT)
    for name, why in _NOT_SUPPORTED.items():
        if fields.has(name):
            raise invalid(fields.at(name), f"{fields.at(name)}: {why}")
    parts: list[Part] = []
    if thoughts := fields.optional("reasoning_content", text):
        parts.append(Thinking(thoughts))
    parts += _named(fields)
    if fields.has("content"):
        parts += _content(fields, _TEXT_AND_REFUSALS)
    elif refusal := fields.optional("refusal", text):
        parts.append(Text(refusal))
    elif not fields.values.get("tool_calls"):
        raise invalid(
            fields.at("content"), f"{fields.at('content')}: expected content or tool_calls"
        )
    parts += fields.optional("tool_calls", array(_call, most=MOST_CALLS)) or ()
    return Message("assistant", tuple(parts))


def _tool(fields: Fields) -> Message:
    fields.only(("role", "content", "tool_call_id", "name"))
    fields.optional("name", _name)
    content = "".join(part.text for part in _content(fields, _TEXT) if isinstance(part, Text))
    return Message("tool", (ToolResult(fields.required("tool_call_id", _id), content),))


_READERS: Final[dict[str, Callable[[Fields], Message]]] = {
    "system": _system,
    "developer": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
}


def _named(fields: Fields) -> tuple[Part, ...]:
    name = fields.optional("name", _name)
    return () if name is None else (Text(f"{name}: "),)


def _content(fields: Fields, kinds: tuple[str, ...]) -> tuple[Part, ...]:

    def read(value: object, path: str) -> tuple[Part, ...]:
        if isinstance(value, str):
            return (Text(text(value, path)),)
        if not isinstance(value, list | tuple):
            raise unexpected(path, "a string or a list of parts", value)
        return array(_part(kinds), most=MOST_PARTS, least=1)(value, path)

    return fields.required("content", read)


def _part(kinds: tuple[str, ...]) -> Callable[[object, str], Part]:
    def read(value: object, path: str) -> Part:
        fields = read_object(value, path)
        kind = fields.values.get("type")
        if isinstance(kind, str) and kind in _NOT_SUPPORTED_PARTS:
            raise invalid(path, f"{path}: {_NOT_SUPPORTED_PARTS[kind]}")
        kind = fields.required("type", choice(kinds))
        fields.only(("type", kind, "prompt_cache_breakpoint"))
        fields.optional("prompt_cache_breakpoint", _breakpoint)
        if kind == "image_url":
            return fields.required("image_url", _image)
        return Text(fields.required(kind, text))

    return read


def _image(value: object, path: str) -> Image:
    fields = read_object(value, path).only(("url", "detail"))
    detail = fields.optional("detail", image_detail) or ""
    return replace(fields.required("url", image_url), detail=detail)


def _breakpoint(value: object, path: str) -> None:
    """Check a hint for prompt caches; no answer depends on it."""
    fields = read_object(value, path).only(("mode", "ttl"))
    fields.required("mode", choice(("explicit",)))
    fields.optional("ttl", choice(("30m", "12h")))


def _call(value: object, path: str) -> ToolCall:
    fields = read_object(value, path)
    if fields.values.get("type") == "custom":
        raise invalid(fields.at("type"), f"{fields.at('type')}: only functions are supported")
    fields.only(("id", "type", "function", "index"))
    fields.required("type", choice(("function",)))
    function = fields.required("function", read_object)
    function.only(("name", "arguments", "parsed_arguments"))
    return ToolCall(
        fields.required("id", _id),
        function.required("name", _id),
        function.required("arguments", text),
    )


def _check_calls(messages: Iterable[Message], path: str) -> None:
    calls = ToolCallMatcher("send one message of role 'tool' for each call, right after the calls")
    at = path
    for index, message in enumerate(messages):
        at = join_path(path, index)
        if message.role != "tool":
            calls.settle(at)
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.call(part, at)
            elif isinstance(part, ToolResult):
                calls.answer(part, join_path(at, "tool_call_id"))
    calls.settle(at)
