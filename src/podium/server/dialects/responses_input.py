"""The input of the Responses dialect: text, or items that tell a conversation.

What the assistant did in one go (it thought, spoke, called tools) comes as several items and is
one message here; results that follow each other are one message too. Every call must have its
result, and every result its call, unless the call was made in an earlier response.

Two kinds of items are Codex's own: tools that it adds within the input (see `tools`), and what its
agents say to each other, which is a turn of the user's.

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
    decode_data_url,
    decode_thinking,
    document_text,
    find_turn_end,
    image_url,
    is_empty_message,
    merge_tool_results,
    move_turn_last,
    unreadable_document,
)
from podium.server.dialects.fields import (
    Fields,
    Reader,
    array,
    bounded_text,
    choice,
    describe,
    join_path,
    json_object,
    read_object,
    text,
)
from podium.server.dialects.openai import image_detail
from podium.server.dialects.responses_tools import ADDITIONAL, INPUT, flat_name

MOST_ITEMS: Final = 20_000
MOST_PARTS: Final = 2_000

_ROLES: Final[Mapping[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}

_ELSEWHERE: Final = "What tools of another server did cannot be told here: begin a new conversation"
_COMPACTING: Final = (
    "Conversations are not compacted here: send the messages, or a summary of them (Codex makes "
    "one itself for a provider of one's own: name this server under [model_providers] in "
    "config.toml, instead of openai_base_url)"
)

_CALL_ID: Final = bounded_text(1, 256)
_TEXT_PARTS: Final = ("input_text", "output_text")
_TEXT_FIELDS: Final = (
    *("type", "text", "annotations", "logprobs", "prompt_cache_breakpoint"),
    "parsed",  # by the SDK
)
_FILE_FIELDS: Final = ("type", "detail", "file_id", "file_url", "file_data", "filename")
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
        return (user(bounded_text(1)(value, path)),)
    told = array(_item, most=MOST_ITEMS, least=1)(value, path)
    _check_calls(told, path, goes_on=goes_on)
    return _with_the_turn_last(_merged(told), path)


def _item(value: object, path: str) -> Message:
    fields = read_object(value, path)
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
    instead = _COMPACTING if kind.startswith("compaction") else _ELSEWHERE
    raise invalid(
        at, f"{at}: expected one of {', '.join(_ITEMS)}; got {describe(kind or None)}. {instead}"
    )


def _message(fields: Fields) -> Message:
    fields.only((*_ITEM_FIELDS, "role", "content", "phase"))
    role = _ROLES[fields.required("role", choice(tuple(_ROLES)))]
    content = fields.required("content", _content)
    for index, part in enumerate(content):
        if isinstance(part, Image) and role != "user":
            at = join_path(fields.at("content"), index)
            raise invalid(at, f"{at}: pictures are the user's; this message is the {role}'s")
    return Message(role, content)


def _content(value: object, path: str) -> tuple[Part, ...]:
    return _parts(value, path, _part)


def _shown(value: object, path: str) -> tuple[Part, ...]:
    return _parts(value, path, _shown_part)


def _parts(value: object, path: str, part: Reader[Part]) -> tuple[Part, ...]:
    if isinstance(value, str):
        return (Text(text(value, path)),)
    return array(part, most=MOST_PARTS)(value, path)


def _shown_part(value: object, path: str) -> Text | Image:
    """A part of what a tool showed, which may be a document."""
    fields = read_object(value, path)
    if fields.values.get("type") != "input_file":
        return _part(value, path)
    fields.only(_FILE_FIELDS)
    name = fields.optional("filename", bounded_text(0, 1000))
    words = decode_data_url(fields.optional("file_data", text) or "")
    return unreadable_document(name) if words is None else document_text(name, words)


def _part(value: object, path: str) -> Text | Image:
    fields = read_object(value, path)
    kind = fields.required("type", text)
    if kind in _TEXT_PARTS:
        fields.only(_TEXT_FIELDS)
        return Text(fields.required("text", text))
    if kind == "refusal":
        return Text(fields.only(("type", "refusal")).required("refusal", text))
    if kind == "input_image":
        fields.only(("type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"))
        closely = fields.optional("detail", image_detail) or ""
        if fields.given("file_id"):
            at = fields.at("file_id")
            raise invalid(at, f"{at}: files are not kept here; send the picture as image_url")
        return replace(fields.required("image_url", image_url), detail=closely)
    at = fields.at("type")
    told = f"{at}: expected input_text, input_image or output_text, got {describe(kind)}"
    if kind == "input_file":
        told += "; send what the file says as text, or its pages as pictures"
    raise invalid(at, told)


def _function_call(fields: Fields) -> Message:
    fields.only((*_CALL_FIELDS, "arguments"))
    return _called(fields, fields.required("arguments", text))


def _custom_call(fields: Fields) -> Message:
    fields.only((*_CALL_FIELDS, "input"))
    return _called(fields, json.dumps({INPUT: fields.required("input", text)}))


def _called(fields: Fields, arguments: str) -> Message:
    name = flat_name(
        fields.optional("namespace", bounded_text(0, 128)),
        fields.required("name", bounded_text(1, 128)),
    )
    return Message("assistant", (ToolCall(fields.required("call_id", _CALL_ID), name, arguments),))


def _result(fields: Fields) -> Message:
    """What a tool gave."""
    fields.only(_RESULT_FIELDS)
    call_id = fields.required("call_id", _CALL_ID)
    parts = fields.required("output", _shown)
    words = "\n".join(part.text for part in parts if isinstance(part, Text))
    pictures = tuple(part for part in parts if isinstance(part, Image))
    return Message("tool", (ToolResult(call_id, words, images=pictures),))


def _reasoning(fields: Fields) -> Message:
    """The thinking that was sealed here. Its summary is for people, and may tell of Podium's
    progress as well; it is not read again."""
    fields.only((*_ITEM_FIELDS, "summary", "content", "encrypted_content"))
    for name in ("summary", "content"):
        fields.optional(name, array(json_object, most=MOST_PARTS))
    sealed = fields.optional("encrypted_content", text) or ""
    return Message("assistant", decode_thinking(sealed, fields.at("encrypted_content")))


def _agent_message(fields: Fields) -> Message:
    """What another of Codex's agents says, in a turn of the user's."""
    fields.only((*_ITEM_FIELDS, "author", "recipient", "content"))
    for name in ("author", "recipient"):
        fields.optional(name, text)
    return Message("user", fields.required("content", _said_by_an_agent))


def _said_by_an_agent(value: object, path: str) -> tuple[Part, ...]:
    return _parts(value, path, _part_by_an_agent)


def _part_by_an_agent(value: object, path: str) -> Text | Image:
    """A part that is called encrypted was an argument of a tool that Codex wants encrypted; a
    worker here wrote it in plain words, and so it comes back."""
    fields = read_object(value, path)
    if fields.values.get("type") != "encrypted_content":
        return _part(value, path)
    return Text(fields.only(("type", "encrypted_content")).required("encrypted_content", text))


def _additional_tools(fields: Fields) -> Message:
    """Tools, which are read in `tools`; nothing is said by them."""
    fields.only((*_ITEM_FIELDS, "role", "tools"))
    return Message(_ROLES[fields.required("role", choice(tuple(_ROLES)))], ())


_ITEMS: Final[Mapping[str, Callable[[Fields], Message]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _result,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _result,
    ADDITIONAL: _additional_tools,
    "agent_message": _agent_message,
}


def _check_calls(told: tuple[Message, ...], path: str, *, goes_on: bool) -> None:
    instead = "send every call with its output after it, or previous_response_id"
    calls = ToolCallMatcher(instead, goes_on=goes_on)
    for index, message in enumerate(told):
        at = join_path(join_path(path, index), "call_id")
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.call(part, at)
            elif isinstance(part, ToolResult):
                calls.answer(part, at)
    calls.settle()


def _merged(told: tuple[Message, ...]) -> list[Message]:
    """Items that belong together as one message each."""
    merged: list[Message] = []
    said = (message for message in told if message.parts)
    for role, run in groupby(merge_tool_results(said), key=lambda message: message.role):
        if role == "assistant":
            merged.append(Message(role, _one_go(run)))
        else:
            merged += run
    return merged


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
    end = find_turn_end(messages)
    if not end or messages[end - 1].role == "assistant":
        raise invalid(
            path,
            f"{path}: expected a message of the user, or the outputs of tools, as the last item",
        )
    if is_empty_message(messages[end - 1]):
        raise invalid(path, f"{path}: the last message is empty; expected a question")
    turn = next((at for at in reversed(range(end)) if messages[at].role == "user"), 0)
    return move_turn_last(messages, turn)
