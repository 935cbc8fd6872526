"""Items and tools of the Responses API.

An item's id names its response, so that an `item_reference` finds it.

Workers know only functions with plain names. A custom tool, which takes free text, becomes a
function with that text as its one argument; its grammar goes into the description, and the client
checks the input. A tool of a namespace gets the namespace as a prefix; `client_tool_names` maps
back. Codex puts tools of known models into the input as `additional_tools` items. Tools that
OpenAI runs on its own servers are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from podium.core.request import Image, Message, Part, Text, Tool, ToolCall, ToolResult
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.content import MAX_TOOLS, check_unique_names, make_tool
from podium.server.dialects.fields import (
    Fields,
    Json,
    array,
    bounded_text,
    choice,
    describe,
    flag,
    join_path,
    json_object,
    read_object,
    text,
)
from podium.server.dialects.request import ApiResponse

Item = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
ItemKind = Literal["msg", "rs", "fc", "ctc"]

_RESPONSE_ID: Final = re.compile(r"resp_([A-Za-z0-9_-]{1,128})")
_ITEM_ID: Final = re.compile(r"[a-z]{2,4}_([0-9a-f]{16}(?:_[0-9]{1,9})?)(?:-i?[0-9]{1,9})?")


def response_id(id_: str) -> str:
    return f"resp_{id_.removeprefix('run_')}"


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
        self._stem = answer_id.removeprefix("run_")
        self._made: dict[str, int] = {}

    def new(self, kind: ItemKind) -> str:
        """Return the next id of an item of that kind."""
        count = self._made[kind] = self._made.get(kind, 0) + 1
        return f"{kind}_{self._stem}" + (f"-{count}" if count > 1 else "")


def output_text(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def answer_text(answer: ApiResponse) -> Item:
    """Return the answer as a text part, with log probabilities where a worker reported them."""
    parts = (choice.get("logprobs") or () for choice in answer.choices)
    return output_text(answer.text) | {"logprobs": [entry for part in parts for entry in part]}


def refusal_part(text: str) -> Item:
    return {"type": "refusal", "refusal": text}


def message_item(item_id: str, status: Status, *content: Item) -> Item:
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
        item["id"] = f"{_INPUT_KINDS[item['type']]}_{answer_id.removeprefix('run_')}-i{number}"
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


ADDITIONAL: Final = "additional_tools"
"""Type of an item that adds tools."""

INPUT: Final = "input"
"""The one argument of the function that stands for a custom tool."""

_FREE_TEXT: Final[Json] = {
    "type": "object",
    "properties": {INPUT: {"type": "string", "description": "The whole input of the tool."}},
    "required": [INPUT],
    "additionalProperties": False,
}

_NAMED: Final = frozenset(
    {"type", "name", "description", "allowed_callers", "async", "defer_loading"}
)
_FUNCTION: Final = _NAMED | {"parameters", "strict", "output_schema"}
_CUSTOM: Final = _NAMED | {"format"}
_NAMESPACE: Final = frozenset({"type", "name", "description", "tools"})
_FORM: Final = frozenset({"type", "syntax", "definition"})

_CODEX_MODEL_HINT: Final = (
    "(Codex does so for models it does not know: set model to a name of this server, such as "
    "podium)"
)
_SEARCH: Final = 'take it out of tools (in Codex: web_search = "disabled" in config.toml)'
_UNSUPPORTED: Final[Mapping[str, str]] = {
    "web_search": _SEARCH,
    "web_search_2025_08_26": _SEARCH,
    "web_search_preview": _SEARCH,
    "web_search_preview_2025_03_11": _SEARCH,
    "image_generation": (
        "take it out of tools (in Codex: image_generation = false under [features] in config.toml)"
    ),
    "tool_search": f"send all tools in the request {_CODEX_MODEL_HINT}",
    "local_shell": f"pass a function that runs commands {_CODEX_MODEL_HINT}",
    "shell": "pass a function that runs commands",
    "apply_patch": "pass a function or a custom tool that applies patches",
    "mcp": "connect to the MCP server yourself, or configure it in podium.toml",
}
"""OpenAI's own tools, and what to do instead."""


@dataclass(frozen=True, slots=True)
class ClientToolName:
    """The client's name of a tool."""

    name: str
    namespace: str = ""
    is_custom: bool = False


def read_tools(fields: Fields) -> tuple[Tool, ...]:
    """Read the tools of the body and of its input items; the last one of a name counts."""
    every = {tool.name: tool for tool in fields.optional("tools", _tools) or ()}
    for index, item in _additions(fields.values):
        added = read_object(item, join_path("input", index))
        every |= {tool.name: tool for tool in added.required("tools", _tools)}
    if len(every) > MAX_TOOLS:
        raise invalid("input", f"input: expected at most {MAX_TOOLS} tools, got {len(every)}")
    return tuple(every.values())


def _additions(body: Json) -> Iterator[tuple[int, Json]]:
    """Yield the items that add tools, with their indices."""
    items = body.get("input")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, Mapping) and item.get("type") == ADDITIONAL:
            yield index, item


def _tools(value: object, path: str) -> tuple[Tool, ...]:
    groups = array(_entry, most=MAX_TOOLS)(value, path)
    every = tuple(one for group in groups for one in group)
    if len(every) > MAX_TOOLS:
        raise invalid(path, f"{path}: expected at most {MAX_TOOLS} tools, got {len(every)}")
    return check_unique_names(every, path)


def client_tool_names(body: Json) -> dict[str, ClientToolName]:
    """Map workers' tool names to the client's, except for plain functions, which are the same."""
    names: dict[str, ClientToolName] = {}
    added = [entry for _, item in _additions(body) for entry in item["tools"]]
    for entry in [*(body.get("tools") or ()), *added]:
        if entry["type"] == "namespace":
            for inner in entry["tools"]:
                is_custom = inner["type"] == "custom"
                name = flat_name(entry["name"], inner["name"])
                names[name] = ClientToolName(inner["name"], entry["name"], is_custom)
        elif entry["type"] == "custom":
            names[entry["name"]] = ClientToolName(entry["name"], is_custom=True)
        else:
            names.pop(entry["name"], None)
    return names


def flat_name(namespace: str | None, name: str) -> str:
    """Return the name by which workers know a tool of a namespace."""
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"


def _entry(value: object, path: str) -> tuple[Tool, ...]:
    fields = read_object(value, path)
    kind = fields.required("type", text)
    if kind == "function":
        return (_function(fields),)
    if kind == "custom":
        return (_custom(fields),)
    if kind != "namespace":
        raise _unsupported_tool(kind, fields.at("type"))
    fields.note_unknown(_NAMESPACE)
    namespace = fields.required("name", bounded_text(1, 128))
    fields.optional("description", text)

    def inner(value: object, path: str) -> Tool:
        entry = read_object(value, path)
        kind = entry.required("type", choice(("function", "custom")))
        return _function(entry, namespace) if kind == "function" else _custom(entry, namespace)

    return fields.required("tools", array(inner, most=MAX_TOOLS))


def _unsupported_tool(kind: str, path: str) -> ApiError:
    instead = _UNSUPPORTED.get(kind, "expected 'function', 'custom' or 'namespace'")
    return invalid(path, f"{path}: {describe(kind)} is not supported; {instead}")


def _function(fields: Fields, namespace: str = "") -> Tool:
    fields.note_unknown(_FUNCTION)
    fields.optional("strict", flag)
    fields.optional("output_schema", json_object)
    return _tool(fields, namespace, fields.values.get("parameters"))


def _custom(fields: Fields, namespace: str = "") -> Tool:
    fields.note_unknown(_CUSTOM)
    made = _tool(fields, namespace, _FREE_TEXT)
    form = fields.optional("format", read_object)
    if (
        form is None
        or form.note_unknown(_FORM).required("type", choice(("text", "grammar"))) == "text"
    ):
        return made
    syntax = form.required("syntax", choice(("lark", "regex")))
    grammar = form.required("definition", bounded_text(1, 100_000))
    rule = f"The input must follow this grammar ({syntax}):\n{grammar}"
    return Tool(made.name, f"{made.description}\n\n{rule}".strip(), made.parameters)


def _tool(fields: Fields, namespace: str, parameters: Any) -> Tool:
    description = fields.optional("description", text)
    for name in ("async", "defer_loading"):
        if fields.optional(name, flag):
            at = fields.at(name)
            raise invalid(at, f"{at}: true is not supported; leave it out")
    fields.optional("allowed_callers", array(choice(("direct",)), most=8))
    name = fields.required("name", bounded_text(1, 128))
    return make_tool(flat_name(namespace, name), description, parameters, fields.path)
