"""The messages of a Chat Completions body, read into our own.

| role | what it becomes |
|---|---|
| system, developer | a system message; one that stands last is told before the turn it follows |
| user | words and pictures; audio and files are refused |
| assistant | words, calls of tools, and `reasoning_content` where a client sends it back |
| tool | a result; those that follow each other are one message here |

A participant's `name` is told in words, before what they say. What the SDK's own helpers add to a
message that they read (`parsed`, `parsed_arguments`, `index`, `annotations`) repeats what stands
beside it, and is left aside. Calls and results must match: every result answers a call of the
assistant's turn before it, and every call has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from podium.core.request import Image, Message, Part, Text, Thinking, ToolCall, ToolResult
from podium.server.api_error import invalid
from podium.server.dialects.content import (
    ToolCallMatcher,
    find_turn_end,
    image_url,
    is_empty_message,
    merge_tool_results,
    move_turn_last,
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

_WORDS: Final = ("text",)
_WORDS_AND_PICTURES: Final = ("text", "image_url")
_WORDS_AND_REFUSALS: Final = ("text", "refusal")
_UNTAKEN: Final = {
    "input_audio": "audio is not taken here; send what was said as text",
    "file": "files are not taken here; send what they say as text, or their pages as pictures",
}

_ASSISTANT: Final = frozenset(
    {"role", "content", "name", "refusal", "tool_calls", "reasoning_content"}
    | {"audio", "function_call", "annotations", "parsed"}
)
_NOT_SERVED: Final = {
    "audio": "audio is not taken here; send what was said as text",
    "function_call": "function_call is no longer; use tool_calls",
}

_id: Final = bounded_text(1, 1024)
_name: Final = bounded_text(1, 64)


def conversation(value: object, path: str) -> tuple[Message, ...]:
    """All messages. The last one is the user's, or holds the results of tools."""
    told = array(_message, most=MOST_MESSAGES, least=1)(value, path)
    _check_calls(told, path)
    messages = _with_the_turn_last(merge_tool_results(told))
    last = messages[-1]
    heard = [place for place, message in enumerate(told) if message.role != "system"]
    at = join_path(path, heard[-1] if heard else len(told) - 1)
    if last.role not in ("user", "tool"):
        raise invalid(at, f"{at}: the last message must be the user's or a tool's result")
    if is_empty_message(last):
        raise invalid(at, f"{at}: the message is empty; say what is asked")
    return messages


def _message(value: object, path: str) -> Message:
    fields = read_object(value, path)
    if fields.values.get("role") == "function":
        raise invalid(
            fields.at("role"), f"{fields.at('role')}: 'function' is no longer; use 'tool'"
        )
    return _READERS[fields.required("role", choice(ROLES))](fields)


def _system(fields: Fields) -> Message:
    fields.only(("role", "content", "name"))
    return Message("system", (*_named(fields), *_content(fields, _WORDS)))


def _user(fields: Fields) -> Message:
    fields.only(("role", "content", "name"))
    return Message("user", (*_named(fields), *_content(fields, _WORDS_AND_PICTURES)))


def _assistant(fields: Fields) -> Message:
    fields.only(_ASSISTANT)
    for name, why in _NOT_SERVED.items():
        if fields.given(name):
            raise invalid(fields.at(name), f"{fields.at(name)}: {why}")
    parts: list[Part] = []
    if thoughts := fields.optional("reasoning_content", text):
        parts.append(Thinking(thoughts))
    parts += _named(fields)
    if fields.given("content"):
        parts += _content(fields, _WORDS_AND_REFUSALS)
    elif refusal := fields.optional("refusal", text):
        parts.append(Text(refusal))
    elif not fields.values.get("tool_calls"):
        raise invalid(fields.at("content"), f"{fields.at('content')}: no words and no calls")
    parts += fields.optional("tool_calls", array(_call, most=MOST_CALLS)) or ()
    return Message("assistant", tuple(parts))


def _tool(fields: Fields) -> Message:
    fields.only(("role", "content", "tool_call_id", "name"))
    fields.optional("name", _name)
    words = "".join(part.text for part in _content(fields, _WORDS) if isinstance(part, Text))
    return Message("tool", (ToolResult(fields.required("tool_call_id", _id), words),))


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
    """A text, or parts of these kinds."""

    def read(value: object, path: str) -> tuple[Part, ...]:
        if isinstance(value, str):
            return (Text(text(value, path)),)
        if not isinstance(value, list | tuple):
            raise unexpected(path, "a text or a list of parts", value)
        return array(_part(kinds), most=MOST_PARTS, least=1)(value, path)

    return fields.required("content", read)


def _part(kinds: tuple[str, ...]) -> Callable[[object, str], Part]:
    def read(value: object, path: str) -> Part:
        fields = read_object(value, path)
        kind = fields.values.get("type")
        if isinstance(kind, str) and kind in _UNTAKEN:
            raise invalid(path, f"{path}: {_UNTAKEN[kind]}")
        kind = fields.required("type", choice(kinds))
        fields.only(("type", kind, "prompt_cache_breakpoint"))
        fields.optional("prompt_cache_breakpoint", _breakpoint)
        if kind == "image_url":
            return fields.required("image_url", _image)
        return Text(fields.required(kind, text))

    return read


def _image(value: object, path: str) -> Image:
    fields = read_object(value, path).only(("url", "detail"))
    closely = fields.optional("detail", image_detail) or ""
    return replace(fields.required("url", image_url), detail=closely)


def _breakpoint(value: object, path: str) -> None:
    """A hint at what to keep in a provider's cache: checked, and no answer depends on it."""
    fields = read_object(value, path).only(("mode", "ttl"))
    fields.required("mode", choice(("explicit",)))
    fields.optional("ttl", choice(("30m", "12h")))


def _call(value: object, path: str) -> ToolCall:
    fields = read_object(value, path)
    if fields.values.get("type") == "custom":
        raise invalid(fields.at("type"), f"{fields.at('type')}: only functions are served")
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


def _with_the_turn_last(messages: list[Message]) -> tuple[Message, ...]:
    """Results belong to a turn with the calls before them. Where nobody but the system spoke, its
    last words are the question."""
    end = find_turn_end(messages)
    if not end:
        return (*messages[:-1], Message("user", messages[-1].parts))
    return move_turn_last(messages, end - (2 if messages[end - 1].role == "tool" else 1))
