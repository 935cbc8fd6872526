"""Read the messages of a Chat Completions body.

| role | becomes |
|---|---|
| system, developer | a system message; a trailing one is moved before the turn it follows |
| user | text, images and files; audio is refused |
| assistant | text, tool calls and `reasoning_content` |
| tool | a result; consecutive ones are one message |

A participant's `name` is put before the text, for workers whose API has no names. Unknown keys are
ignored. Calls and results must match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from podium.core.request import (
    Image,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    speaker_prefix,
)
from podium.server.api_error import invalid
from podium.server.dialects.content import (
    ToolCallMatcher,
    image_detail,
    image_url,
    is_empty_message,
    merge_tool_results,
    read_file,
)
from podium.server.dialects.fields import (
    Fields,
    array,
    bounded_text,
    choice,
    join_path,
    read_object,
    text,
    unexpected_value,
)

MAX_MESSAGES: Final = 10_000
MAX_PARTS: Final = 10_000
MAX_CALLS: Final = 1_000

ROLES: Final = ("system", "developer", "user", "assistant", "tool")

_TEXT: Final = ("text",)
_USER_PARTS: Final = ("text", "image_url", "file")
_TEXT_AND_REFUSALS: Final = ("text", "refusal")
_NOT_SUPPORTED_PARTS: Final = {"input_audio": "audio is not supported; send a transcript"}

_NAMED: Final = frozenset({"role", "content", "name"})
_RESULT: Final = _NAMED | {"tool_call_id"}
_ASSISTANT: Final = _NAMED | {
    *("refusal", "tool_calls", "reasoning_content", "audio", "function_call"),
    *("annotations", "parsed"),  # by the SDK
}
_CALL: Final = frozenset({"id", "type", "function", "index"})
_FUNCTION: Final = frozenset({"name", "arguments", "parsed_arguments"})
_IMAGE: Final = frozenset({"url", "detail"})
_FILE: Final = frozenset({"file_data", "file_id", "filename"})
_PARTS: Final = {
    kind: frozenset({"type", kind, "prompt_cache_breakpoint"})
    for kind in ("text", "image_url", "file", "refusal")
}
_NOT_SUPPORTED: Final = {
    "audio": "audio is not supported; send a transcript",
    "function_call": "deprecated; use tool_calls",
}

_id: Final = bounded_text(1, 1024)
_role: Final = choice(ROLES)
_name: Final = bounded_text(0, 64)


def conversation(value: object, path: str) -> tuple[Message, ...]:
    """Read all messages, in their order; a lone system message becomes the question."""
    read = _messages(value, path)
    if any(isinstance(part, ToolCall | ToolResult) for m in read for part in m.parts):
        _check_calls(read, path)
    spoken = [index for index, message in enumerate(read) if message.role != "system"]
    last = spoken[-1] if spoken else len(read) - 1
    if is_empty_message(read[last]):
        at = join_path(path, last)
        raise invalid(at, f"{at}: the last message is empty")
    if not spoken:
        return (*read[:-1], Message("user", read[-1].parts))
    return tuple(merge_tool_results(read)) if any(m.role == "tool" for m in read) else read


def _message(value: object, path: str) -> Message:
    fields = read_object(value, path)
    if fields.values.get("role") == "function":
        raise invalid(
            fields.at("role"), f"{fields.at('role')}: 'function' is deprecated; use 'tool'"
        )
    return _READERS[fields.required("role", _role)](fields)


_messages: Final = array(_message, most=MAX_MESSAGES, least=1)


def _system(fields: Fields) -> Message:
    return _with_name(fields.note_unknown(_NAMED), "system", _content(fields, _TEXT))


def _user(fields: Fields) -> Message:
    return _with_name(fields.note_unknown(_NAMED), "user", _content(fields, _USER_PARTS))


def _assistant(fields: Fields) -> Message:
    fields.note_unknown(_ASSISTANT)
    for name, why in _NOT_SUPPORTED.items():
        if fields.has(name):
            raise invalid(fields.at(name), f"{fields.at(name)}: {why}")
    thoughts = fields.optional("reasoning_content", text)
    thinking = (Thinking(thoughts),) if thoughts else ()
    if fields.has("content"):
        content = _content(fields, _TEXT_AND_REFUSALS)
    else:
        refusal = fields.optional("refusal", text)
        content = (Text(refusal),) if refusal else ()
    calls = fields.optional("tool_calls", array(_call, most=MAX_CALLS)) or ()
    if calls:  # many clients send empty text beside calls, which some workers refuse
        content = tuple(part for part in content if part != Text(""))
    return _with_name(fields, "assistant", (*content, *calls), thinking)


def _tool(fields: Fields) -> Message:
    fields.note_unknown(_RESULT)
    content = "".join(part.text for part in _content(fields, _TEXT) if isinstance(part, Text))
    return Message("tool", (ToolResult(fields.required("tool_call_id", _id), content),))


_READERS: Final[dict[str, Callable[[Fields], Message]]] = {
    "system": _system,
    "developer": _system,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
}


def _with_name(
    fields: Fields, role: Role, parts: tuple[Part, ...], thinking: tuple[Part, ...] = ()
) -> Message:
    name = fields.optional("name", _name) if "name" in fields.values else None
    if not name:
        return Message(role, (*thinking, *parts) if thinking else parts)
    return Message(role, (*thinking, Text(speaker_prefix(name)), *parts), name)


def _content(fields: Fields, kinds: tuple[str, ...]) -> tuple[Part, ...]:
    content = fields.values.get("content")
    if isinstance(content, str):
        return (Text(fields.required("content", text)),)
    if content is not None and not isinstance(content, list | tuple):
        raise unexpected_value(fields.at("content"), "a string or a list of parts", content)
    return fields.required("content", array(_part(kinds), most=MAX_PARTS, least=1))


def _part(kinds: tuple[str, ...]) -> Callable[[object, str], Part]:
    def read(value: object, path: str) -> Part:
        fields = read_object(value, path)
        kind = fields.values.get("type")
        if isinstance(kind, str) and kind in _NOT_SUPPORTED_PARTS:
            raise invalid(path, f"{path}: {_NOT_SUPPORTED_PARTS[kind]}")
        kind = fields.required("type", choice(kinds))
        fields.note_unknown(_PARTS[kind])
        if kind == "image_url":
            return fields.required("image_url", _image)
        if kind == "file":
            return read_file(fields.required("file", read_object).note_unknown(_FILE))
        return Text(fields.required(kind, text))

    return read


def _image(value: object, path: str) -> Image:
    if isinstance(value, str):
        return image_url(value, path)
    fields = read_object(value, path).note_unknown(_IMAGE)
    detail = fields.optional("detail", image_detail) or ""
    return replace(fields.required("url", image_url), detail=detail)


def _call(value: object, path: str) -> ToolCall:
    fields = read_object(value, path)
    if fields.values.get("type") == "custom":
        raise invalid(fields.at("type"), f"{fields.at('type')}: only functions are supported")
    fields.note_unknown(_CALL).optional("type", choice(("function",)))
    function = fields.required("function", read_object).note_unknown(_FUNCTION)
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
