"""The input of the Responses dialect: text, or items that tell a conversation.

What the assistant did in one go (it thought, spoke, called tools) comes as several items and is
one message here; results that follow each other are one message too. Every call must have its
result, and every result its call, unless the call was made in an earlier response.

Accepted without effect, as they demand nothing: the ids, `status` and `phase` of items, cache
breakpoints, what the SDK itself adds to items that it has parsed, notes of
Codex's own, and the reasoning of models that are not behind this server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Final

from podium.request import Image, Message, Part, Role, Text, Thinking, ToolCall, ToolResult, user
from podium.server.dialects.fields import (
    Fields,
    choice,
    document,
    joined,
    listed,
    opened,
    shown,
    text,
    text_of,
)
from podium.server.dialects.openai import detail
from podium.server.dialects.pictures import image
from podium.server.dialects.responses.tools import INPUT, flat_name
from podium.server.dialects.seals import unsealed
from podium.server.dialects.turns import (
    OpenCalls,
    end_of_turn,
    is_empty,
    results_together,
    with_turn_last,
)
from podium.server.refusal import invalid

MOST_ITEMS: Final = 20_000
MOST_PARTS: Final = 2_000

_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}

_CALL_ID: Final = text_of(1, 256)
_TEXT_PARTS: Final = ("input_text", "output_text")
_TEXT_FIELDS: Final = (
    *("type", "text", "annotations", "logprobs", "prompt_cache_breakpoint"),
    "parsed",  # by the SDK
)
_ITEM_FIELDS: Final = (
    *("type", "id", "status"),
    "internal_chat_message_metadata_passthrough",  # Codex's own notes
)
_CALL_FIELDS: Final = (
    *_ITEM_FIELDS,
    *("call_id", "name", "namespace", "caller", "async"),
    "parsed_arguments",  # by the SDK
)
_RESULT_FIELDS: Final = (*_ITEM_FIELDS, "call_id", "name", "namespace", "output", "caller")


def conversation(value: object, path: str, *, goes_on: bool) -> tuple[Message, ...]:
    """The messages that an input tells; the last is the user's or holds results of tools.
    `goes_on` says that an earlier response stands before it."""
    if isinstance(value, str):
        return (user(text_of(1)(value, path)),)
    told = listed(_item, most=MOST_ITEMS, least=1)(value, path)
    _check_calls(told, path, goes_on=goes_on)
    return _with_the_turn_last(_merged(told), path)


def _item(value: object, path: str) -> Message:
    fields = opened(value, path)
    kind = fields.optional("type", text) or ("message" if "role" in fields.values else "")
    if (reader := _ITEMS.get(kind)) is not None:
        return reader(fields)
    if kind == "item_reference" or (not kind and "id" in fields.values):
        raise invalid(
            path,
            f"{path}: items are not kept one by one here; send the item itself, or "
            f"previous_response_id",
        )
    at = fields.at("type")
    raise invalid(
        at,
        f"{at}: expected one of {', '.join(_ITEMS)}; got {shown(kind or None)}. What tools of "
        f"another server did cannot be told here: begin a new conversation",
    )


def _message(fields: Fields) -> Message:
    fields.only((*_ITEM_FIELDS, "role", "content", "phase"))
    role = _ROLES[fields.required("role", choice(tuple(_ROLES)))]
    content = fields.required("content", _content)
    for index, part in enumerate(content):
        if isinstance(part, Image) and role != "user":
            at = joined(fields.at("content"), index)
            raise invalid(at, f"{at}: pictures are the user's; this message is the {role}'s")
    return Message(role, content)


def _content(value: object, path: str) -> tuple[Part, ...]:
    if isinstance(value, str):
        return (Text(text(value, path)),)
    return listed(_part, most=MOST_PARTS)(value, path)


def _part(value: object, path: str) -> Text | Image:
    fields = opened(value, path)
    kind = fields.required("type", text)
    if kind in _TEXT_PARTS:
        fields.only(_TEXT_FIELDS)
        return Text(fields.required("text", text))
    if kind == "refusal":
        return Text(fields.only(("type", "refusal")).required("refusal", text))
    if kind == "input_image":
        fields.only(("type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"))
        closely = fields.optional("detail", detail) or ""
        if fields.given("file_id"):
            at = fields.at("file_id")
            raise invalid(at, f"{at}: files are not kept here; send the picture as image_url")
        return replace(fields.required("image_url", image), detail=closely)
    at = fields.at("type")
    raise invalid(at, f"{at}: expected input_text, input_image or output_text, got {shown(kind)}")


def _function_call(fields: Fields) -> Message:
    fields.only((*_CALL_FIELDS, "arguments"))
    return _called(fields, fields.required("arguments", text))


def _custom_call(fields: Fields) -> Message:
    fields.only((*_CALL_FIELDS, "input"))
    return _called(fields, json.dumps({INPUT: fields.required("input", text)}))


def _called(fields: Fields, arguments: str) -> Message:
    name = flat_name(
        fields.optional("namespace", text_of(0, 128)), fields.required("name", text_of(1, 128))
    )
    return Message("assistant", (ToolCall(fields.required("call_id", _CALL_ID), name, arguments),))


def _result(fields: Fields) -> Message:
    """What a tool gave."""
    fields.only(_RESULT_FIELDS)
    call_id = fields.required("call_id", _CALL_ID)
    parts = fields.required("output", _content)
    words = "".join(part.text for part in parts if isinstance(part, Text))
    pictures = tuple(part for part in parts if isinstance(part, Image))
    return Message("tool", (ToolResult(call_id, words, images=pictures),))


def _reasoning(fields: Fields) -> Message:
    """The thinking that was sealed here. Its summary is for people, and may tell of Podium's
    progress as well; it is not read again."""
    fields.only((*_ITEM_FIELDS, "summary", "content", "encrypted_content"))
    for name in ("summary", "content"):
        fields.optional(name, listed(document, most=MOST_PARTS))
    sealed = fields.optional("encrypted_content", text) or ""
    return Message("assistant", unsealed(sealed, fields.at("encrypted_content")))


_ITEMS: Final[Mapping[str, Callable[[Fields], Message]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _result,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _result,
}


def _check_calls(told: tuple[Message, ...], path: str, *, goes_on: bool) -> None:
    instead = "send every call with its output after it, or previous_response_id"
    calls = OpenCalls(instead, goes_on=goes_on)
    for index, message in enumerate(told):
        at = joined(joined(path, index), "call_id")
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.call(part, at)
            elif isinstance(part, ToolResult):
                calls.answer(part, at)
    calls.settle()


def _merged(told: tuple[Message, ...]) -> list[Message]:
    """Items that belong together as one message each."""
    merged: list[Message] = []
    for role, run in groupby(results_together(told), key=lambda message: message.role):
        if role == "assistant":
            merged.append(Message(role, _one_go(run)))
        else:
            merged += run
    return [message for message in merged if message.parts]


def _one_go(items: Iterable[Message]) -> tuple[Part, ...]:
    """What the assistant did between two turns of others: thinking comes first, and the words of
    two messages are parted by a blank line."""
    thinking: list[Part] = []
    rest: list[Part] = []
    has_spoken = False
    for item in items:
        speaks = any(isinstance(part, Text) for part in item.parts)
        if speaks and has_spoken:
            rest.append(Text("\n\n"))
        has_spoken = has_spoken or speaks
        for part in item.parts:
            (thinking if isinstance(part, Thinking) else rest).append(part)
    return (*thinking, *rest)


def _with_the_turn_last(messages: list[Message], path: str) -> tuple[Message, ...]:
    """A turn is all since the user spoke."""
    end = end_of_turn(messages)
    if not end or messages[end - 1].role == "assistant":
        raise invalid(
            path,
            f"{path}: expected a message of the user, or the outputs of tools, as the last item",
        )
    if is_empty(messages[end - 1]):
        raise invalid(path, f"{path}: the last message is empty; expected a question")
    turn = next((at for at in reversed(range(end)) if messages[at].role == "user"), 0)
    return with_turn_last(messages, turn)
