"""Read the input of a Responses body: text, or items that form a conversation.

Consecutive items of the assistant (thinking, text, calls) become one message, and so do consecutive
results. Calls and results must match, unless the call is in an earlier response. Codex's own items
are tools within the input (`responses_tools`) and messages between its agents. Ids, `status`,
`phase`, cache breakpoints, fields that the SDK adds, Codex's notes and reasoning of other servers
have no effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, TypeGuard

from podium.core.request import (
    Image,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    user,
)
from podium.server.api_error import invalid
from podium.server.dialects.content import (
    ToolCallMatcher,
    decode_thinking,
    image_detail,
    image_url,
    is_empty_message,
    merge_tool_results,
    read_file,
    read_tools_file,
)
from podium.server.dialects.fields import (
    Fields,
    Reader,
    array,
    bounded_text,
    choice,
    describe,
    join_path,
    read_object,
    text,
)
from podium.server.dialects.responses_items import ADDITIONAL, INPUT, flat_name

MAX_ITEMS: Final = 20_000
MAX_PARTS: Final = 2_000

_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}

_OTHER_SERVER: Final = "Items of another server's tools are not supported: begin a new conversation"
_COMPACTION: Final = (
    "Compaction is not supported: send the messages, or a summary (Codex summarizes by itself "
    "for a custom provider: configure this server under [model_providers] in config.toml "
    "instead of openai_base_url)"
)

_CALL_ID: Final = bounded_text(1, 256)
_TEXT_PARTS: Final = ("input_text", "output_text")
_TEXT_FIELDS: Final = frozenset(
    {"type", "text", "annotations", "logprobs", "prompt_cache_breakpoint"}
    | {"parsed"}  # by the SDK
)
_IMAGE_FIELDS: Final = frozenset(
    {"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"}
)
_FILE_FIELDS: Final = frozenset({"type", "detail", "file_id", "file_url", "file_data", "filename"})
_ITEM_FIELDS: Final = frozenset(
    {"type", "id", "status"} | {"internal_chat_message_metadata_passthrough"}  # Codex's own notes
)
_MESSAGE_FIELDS: Final = _ITEM_FIELDS | {"role", "content", "phase"}
_CALL_FIELDS: Final = _ITEM_FIELDS | {
    *("call_id", "name", "namespace", "caller", "async", "arguments", "input"),
    "parsed_arguments",  # by the SDK
}
_RESULT_FIELDS: Final = _ITEM_FIELDS | {"call_id", "name", "namespace", "output", "caller"}
_REASONING_FIELDS: Final = _ITEM_FIELDS | {"summary", "content", "encrypted_content"}
_ADDITIONAL_FIELDS: Final = _ITEM_FIELDS | {"role", "tools"}
_ENCRYPTED_FIELDS: Final = frozenset({"type", "encrypted_content"})
_AGENT_FIELDS: Final = _ITEM_FIELDS | {"author", "recipient", "content"}


def conversation(value: object, path: str, *, continues: bool) -> tuple[Message, ...]:
    """Read the messages. `continues`: an earlier response comes before them."""
    if isinstance(value, str):
        return (user(bounded_text(1)(value, path)),)
    items = array(_item, most=MAX_ITEMS, least=1)(value, path)
    _check_calls(items, path, continues=continues)
    messages = _merge_items(items)
    last = next((message for message in reversed(messages) if message.role != "system"), None)
    if last is None or is_empty_message(last):
        raise invalid(path, f"{path}: the last message is empty")
    return tuple(messages)


def _item(value: object, path: str) -> Message:
    fields = read_object(value, path)
    kind = fields.optional("type", text) or ("message" if "role" in fields.values else "")
    if (reader := _ITEMS.get(kind)) is not None:
        return reader(fields)
    at = fields.at("type")
    instead = _COMPACTION if kind.startswith("compaction") else _OTHER_SERVER
    raise invalid(
        at, f"{at}: expected one of {', '.join(_ITEMS)}; got {describe(kind or None)}. {instead}"
    )


def is_reference(item: object) -> TypeGuard[dict[str, Any]]:
    """True if an item stands for a stored one. Those are resolved before the body is read."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and "role" not in item)


def _message(fields: Fields) -> Message:
    fields.note_unknown(_MESSAGE_FIELDS)
    role = _ROLES[fields.required("role", choice(tuple(_ROLES)))]
    content = fields.required("content", _parts(_part))
    for index, part in enumerate(content):
        if isinstance(part, Image) and role != "user":
            at = join_path(fields.at("content"), index)
            raise invalid(at, f"{at}: only user messages can have images, not {role} messages")
    return Message(role, content)


def _parts(part: Reader[Part]) -> Reader[tuple[Part, ...]]:
    def read(value: object, path: str) -> tuple[Part, ...]:
        if isinstance(value, str):
            return (Text(text(value, path)),)
        return array(part, most=MAX_PARTS)(value, path)

    return read


def _tool_result_part(value: object, path: str) -> Text | Image:
    """Read a part of a tool result, which may be a document."""
    fields = read_object(value, path)
    if fields.values.get("type") != "input_file":
        return _part(value, path)
    return read_tools_file(fields.note_unknown(_FILE_FIELDS))


def _part(value: object, path: str) -> Text | Image:
    fields = read_object(value, path)
    kind = fields.required("type", text)
    if kind in _TEXT_PARTS:
        fields.note_unknown(_TEXT_FIELDS)
        return Text(fields.required("text", text))
    if kind == "refusal":
        return Text(fields.required("refusal", text))
    if kind == "input_image":
        fields.note_unknown(_IMAGE_FIELDS)
        detail = fields.optional("detail", image_detail) or ""
        if fields.has("file_id"):
            at = fields.at("file_id")
            raise invalid(at, f"{at}: files are not stored; send the image as image_url")
        return replace(fields.required("image_url", image_url), detail=detail)
    if kind == "input_file":
        return read_file(fields.note_unknown(_FILE_FIELDS))
    at = fields.at("type")
    expected = "input_text, input_image, input_file or output_text"
    raise invalid(at, f"{at}: expected {expected}, got {describe(kind)}")


def _function_call(fields: Fields) -> Message:
    fields.note_unknown(_CALL_FIELDS)
    return _call_message(fields, fields.required("arguments", text))


def _custom_call(fields: Fields) -> Message:
    fields.note_unknown(_CALL_FIELDS)
    return _call_message(fields, json.dumps({INPUT: fields.required("input", text)}))


def _call_message(fields: Fields, arguments: str) -> Message:
    name = flat_name(
        fields.optional("namespace", bounded_text(0, 128)),
        fields.required("name", bounded_text(1, 128)),
    )
    return Message("assistant", (ToolCall(fields.required("call_id", _CALL_ID), name, arguments),))


def _result(fields: Fields) -> Message:
    fields.note_unknown(_RESULT_FIELDS)
    call_id = fields.required("call_id", _CALL_ID)
    parts = fields.required("output", _parts(_tool_result_part))
    content = "\n".join(part.text for part in parts if isinstance(part, Text))
    images = tuple(part for part in parts if isinstance(part, Image))
    return Message("tool", (ToolResult(call_id, content, images=images),))


def _read_reasoning(fields: Fields) -> Message:
    """Decode opaque thinking; the summary is for people and is not read again."""
    fields.note_unknown(_REASONING_FIELDS)
    encoded = fields.optional("encrypted_content", text) or ""
    return Message("assistant", decode_thinking(encoded, fields.at("encrypted_content")))


def _agent_message(fields: Fields) -> Message:
    """Read a message of another Codex agent as the user's."""
    fields.note_unknown(_AGENT_FIELDS)
    return Message("user", fields.required("content", _parts(_agent_part)))


def _agent_part(value: object, path: str) -> Text | Image:
    """Read a part; `encrypted_content` is plain text that a worker here wrote."""
    fields = read_object(value, path)
    if fields.values.get("type") != "encrypted_content":
        return _part(value, path)
    return Text(fields.note_unknown(_ENCRYPTED_FIELDS).required("encrypted_content", text))


def _additional_tools(fields: Fields) -> Message:
    """Check the item; its tools are read in `responses_tools`."""
    fields.note_unknown(_ADDITIONAL_FIELDS)
    return Message(_ROLES[fields.required("role", choice(tuple(_ROLES)))], ())


_ITEMS: Final[Mapping[str, Callable[[Fields], Message]]] = {
    "message": _message,
    "reasoning": _read_reasoning,
    "function_call": _function_call,
    "function_call_output": _result,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _result,
    ADDITIONAL: _additional_tools,
    "agent_message": _agent_message,
}


def _check_calls(items: tuple[Message, ...], path: str, *, continues: bool) -> None:
    hint = "send every call with its output after it, or previous_response_id"
    calls = ToolCallMatcher(hint, continues=continues)
    for index, message in enumerate(items):
        at = join_path(join_path(path, index), "call_id")
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.call(part, at)
            elif isinstance(part, ToolResult):
                calls.answer(part, at)
    calls.settle()


def _merge_items(items: tuple[Message, ...]) -> list[Message]:
    merged: list[Message] = []
    spoken = (message for message in items if message.parts)
    for role, run in groupby(merge_tool_results(spoken), key=lambda message: message.role):
        if role == "assistant":
            merged.append(Message(role, _join_assistant_items(run)))
        else:
            merged += run
    return merged


def _join_assistant_items(items: Iterable[Message]) -> tuple[Part, ...]:
    """Join the assistant's items: thinking first, texts separated by a blank line."""
    thinking: list[Part] = []
    rest: list[Part] = []
    has_text_before = False
    for item in items:
        has_text = any(isinstance(part, Text) for part in item.parts)
        if has_text and has_text_before:
            rest.append(Text("\n\n"))
        has_text_before = has_text_before or has_text
        for part in item.parts:
            (thinking if isinstance(part, Thinking) else rest).append(part)
    return (*thinking, *rest)
