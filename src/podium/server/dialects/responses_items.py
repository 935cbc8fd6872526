"""Items of the Responses API: their ids, and those of responses.

An item's id names its response, so that an `item_reference` finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from podium.core.request import Image, Message, Part, Text, ToolCall, ToolResult
from podium.server.api_error import invalid
from podium.server.dialects.request import ApiResponse, id_stem
from podium.server.dialects.responses_tools import INPUT, ClientToolName

Item = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
ItemKind = Literal["msg", "rs", "fc", "ctc"]

_RESPONSE_ID: Final = re.compile(r"resp_([A-Za-z0-9_-]{1,128})")
_ITEM_ID: Final = re.compile(r"[a-z]{2,4}_([0-9a-f]{16}(?:_[0-9]{1,9})?)(?:-i?[0-9]{1,9})?")


def response_id(id_: str) -> str:
    """Return a response's id in this dialect."""
    return f"resp_{id_stem(id_)}"


def read_response_id(id_: str, field: str = "response_id") -> str:
    """Return the id of a response, without this dialect's prefix; raises `ApiError`."""
    matched = _RESPONSE_ID.fullmatch(id_)
    if matched is None:
        raise invalid(
            field, f"Invalid '{field}': {id_[:80]!r}. Expected an ID that begins with 'resp_'."
        )
    return f"run_{matched[1]}"


def response_of_item(item_id: str) -> str:
    """Return the id of the response that an item belongs to; empty if it names none."""
    matched = _ITEM_ID.fullmatch(item_id)
    return f"run_{matched[1]}" if matched else ""


class ItemIds:
    """Ids of the items of one response. Clients collect the items of all turns by id."""

    def __init__(self, answer_id: str) -> None:
        self._stem = id_stem(answer_id)
        self._made: dict[str, int] = {}

    def new(self, kind: ItemKind) -> str:
        """Return the next id of an item of that kind."""
        count = self._made[kind] = self._made.get(kind, 0) + 1
        return f"{kind}_{self._stem}" + (f"-{count}" if count > 1 else "")


def output_text(text: str) -> Item:
    """Return a text part."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def answer_text(answer: ApiResponse) -> Item:
    """Return the answer as a text part, with log probabilities where a worker reported them."""
    parts = (choice.get("logprobs") or () for choice in answer.choices)
    return output_text(answer.text) | {"logprobs": [entry for part in parts for entry in part]}


def refusal_part(text: str) -> Item:
    """Return a refusal part."""
    return {"type": "refusal", "refusal": text}


def message_item(item_id: str, status: Status, *content: Item) -> Item:
    """Return a message of the assistant."""
    return {
        "type": "message",
        "id": item_id,
        "status": status,
        "role": "assistant",
        "content": list(content),
    }


def reasoning_item(item_id: str, summary: Iterable[str] = (), opaque: str = "") -> Item:
    """Return a reasoning item: a summary for people and opaque thinking for the model."""
    item: Item = {
        "type": "reasoning",
        "id": item_id,
        "summary": [{"type": "summary_text", "text": text} for text in summary],
    }
    return item | ({"encrypted_content": opaque} if opaque else {})


def call_item(ids: ItemIds, call: ToolCall, client_names: Mapping[str, ClientToolName]) -> Item:
    """Return a tool call under the client's name of the tool."""
    tool = client_names.get(call.name, ClientToolName(call.name))
    if tool.is_custom:
        item: Item = {"type": "custom_tool_call", "id": ids.new("ctc"), "call_id": call.id}
        item |= {"name": tool.name, "input": _free_input(call.arguments)}
    else:
        item = {"type": "function_call", "id": ids.new("fc"), "call_id": call.id}
        item |= {"name": tool.name, "arguments": call.arguments, "status": "completed"}
    return item | ({"namespace": tool.namespace} if tool.namespace else {})


def input_items(
    answer_id: str, messages: Iterable[Message], client_names: Mapping[str, ClientToolName]
) -> list[Item]:
    """Return the conversation before a response as items with ids of their own."""
    items: list[Item] = []
    custom: set[str] = set()
    for message in messages:
        texts = [_input_part(message, part) for part in message.parts]
        if content := [part for part in texts if part is not None]:
            item: Item = {"type": "message", "role": message.role, "content": content}
            items.append(item | {"status": "completed"})
        for part in message.parts:
            if isinstance(part, ToolCall):
                items.append(call_item(ItemIds(answer_id), part, client_names))
                if items[-1]["type"] == "custom_tool_call":
                    custom.add(part.id)
            elif isinstance(part, ToolResult):
                kind = "custom_tool_call" if part.call_id in custom else "function_call"
                item = {"type": f"{kind}_output", "call_id": part.call_id, "output": part.text}
                items.append(item | {"status": "completed"})
    for number, item in enumerate(items):
        item["id"] = f"{_INPUT_KINDS[item['type']]}_{id_stem(answer_id)}-i{number}"
    return items


_INPUT_KINDS: Final[Mapping[str, str]] = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "function_call_output": "fco",
    "custom_tool_call_output": "ctco",
}


def _input_part(message: Message, part: Part) -> Item | None:
    match part:
        case Text() if message.role == "assistant":
            return output_text(part.text)
        case Text():
            return {"type": "input_text", "text": part.text}
        case Image() if part.is_pdf and part.url:
            return {"type": "input_file", "file_url": part.url}
        case Image() if part.is_pdf:
            data = f"data:{part.media_type};base64,{part.data}"
            return {"type": "input_file", "filename": "document.pdf", "file_data": data}
        case Image():
            url = part.url or f"data:{part.media_type};base64,{part.data}"
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case _:
            return None


def _free_input(arguments: str) -> str:
    """Return the input of a custom tool, which workers pass as the one argument of a function."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = given.get(INPUT) if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments
