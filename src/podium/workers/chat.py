"""Requests of the Chat Completions API, for OpenAI and every compatible server.

Replies are in `chat_reply`. Differences between servers are fields of `ChatDialect`, never branches
on a vendor's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from podium.core.pool import WorkerProfile
from podium.core.request import (
    TOOL_CHOICES,
    Image,
    Message,
    Part,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from podium.workers import translation
from podium.workers.translation import is_strict

SCHEMA_NAME: Final = "reply"

IMAGES_ONLY: Final = "The tool showed pictures, which follow."
"""The text of a tool result that has only images."""

OWNED: Final = frozenset(
    {
        "model",
        "messages",
        "stream",
        "stream_options",
        "n",
        "best_of",
        "max_tokens",
        "max_completion_tokens",
        "n_predict",
    }
)
"""Body fields that no option may change, under all servers' names."""


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """The differences of one server's Chat Completions.

    `max_tokens`, `seed` and `grammar` are the names of those fields; without `grammar` the server
    takes none. `streams_usage`: a stream must be asked for its usage. A prefill is sent as a last
    assistant message, with `prefill_message` added to the message and `prefill_body` to the body;
    `echoes_prefill`: the server repeats it. `thinking` is the field that returns a model's own
    thinking to it. `cache_writes`: the server counts cache writes; `cache_key`: it takes a prompt
    cache key. `parallel_tools`: it can be limited to one tool call at a time. `detail`: it takes an
    image detail.
    """

    max_tokens: str = "max_tokens"
    seed: str = "seed"
    grammar: str = ""
    streams_usage: bool = True
    prefill_message: Mapping[str, Any] = field(default_factory=dict)
    prefill_body: Mapping[str, Any] = field(default_factory=dict)
    echoes_prefill: bool = False
    thinking: Literal["", "reasoning_content", "reasoning_details"] = ""
    cache_writes: bool = False
    cache_key: bool = False
    parallel_tools: bool = False
    detail: bool = False


def build_body(
    request: Request, profile: WorkerProfile, dialect: ChatDialect, *, stream: bool
) -> dict[str, Any]:
    """Build the JSON body of a request."""
    body: dict[str, Any] = {
        "model": profile.model,
        "messages": list(_messages(request, profile, dialect)),
    }
    if request.max_tokens is not None:
        body[dialect.max_tokens] = request.max_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    body |= translation.sampling_fields(
        request, profile, temperature="temperature", top_p="top_p", seed=dialect.seed
    )
    if request.effort is not None and "reasoning" in profile.capabilities:
        body["reasoning_effort"] = request.effort
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice:
            body["tool_choice"] = _tool_choice(request.tool_choice)
        if not request.parallel_tools and dialect.parallel_tools:
            body["parallel_tool_calls"] = False
    if request.schema is not None:
        body["response_format"] = _response_format(request.schema)
    if request.grammar and dialect.grammar:
        body[dialect.grammar] = request.grammar
    else:
        translation.refuse_grammar(request, profile)
    if request.cache_key and dialect.cache_key:
        body["prompt_cache_key"] = request.cache_key
    if translation.has_prefill(request, profile):
        body |= dialect.prefill_body
    if stream:
        body["stream"] = True
        if dialect.streams_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def _messages(
    request: Request, profile: WorkerProfile, dialect: ChatDialect
) -> Iterator[dict[str, Any]]:
    for message in request.messages:
        if message.role == "assistant":
            yield _assistant(message, profile, dialect)
        else:
            yield from _input_messages(message, profile, dialect)
    if translation.has_prefill(request, profile):
        yield {"role": "assistant", "content": request.prefill, **dialect.prefill_message}


def _input_messages(
    message: Message, profile: WorkerProfile, dialect: ChatDialect
) -> Iterator[dict[str, Any]]:
    """Yield one message per tool result, then one for the rest.

    Tool results hold text only here, so their images follow as the user's.
    """
    content = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            text = part.text or (IMAGES_ONLY if part.images else "")
            text = f"Error: {text}" if part.is_error else text
            yield {"role": "tool", "tool_call_id": part.call_id, "content": text}
            if part.images:
                words = Text(f"Pictures that the tool showed for the call {part.call_id}:")
                content.append(_content(words, message, profile, dialect))
                content += [_content(image, message, profile, dialect) for image in part.images]
        else:
            content.append(_content(part, message, profile, dialect))
    if content or message.role != "tool":
        role = "user" if message.role == "tool" else message.role
        yield {"role": role, "content": _flatten(content)}


def _content(
    part: Part, message: Message, profile: WorkerProfile, dialect: ChatDialect
) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image) and message.role != "system":
        shown = {"url": translation.data_url(part)}
        if part.detail and dialect.detail:
            shown["detail"] = part.detail
        return {"type": "image_url", "image_url": shown}
    raise translation.unsupported_part(part, message, profile)


def _flatten(content: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Send text-only content as a plain string, which every server accepts."""
    if all(part["type"] == "text" for part in content):
        return "".join(part["text"] for part in content)
    return content


def _assistant(message: Message, profile: WorkerProfile, dialect: ChatDialect) -> dict[str, Any]:
    for part in message.parts:
        if not isinstance(part, Text | ToolCall | Thinking):
            raise translation.unsupported_part(part, message, profile)
    sent: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls := translation.parts_of_type(message, ToolCall):
        sent["content"] = message.text or None
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
    own = translation.own_thinking(message, profile)
    if dialect.thinking == "reasoning_content" and own:
        sent["reasoning_content"] = "".join(part.text for part in own)
    if dialect.thinking == "reasoning_details":
        kept = [translation.load_opaque(part, list, profile) for part in own if part.opaque]
        details = [detail for details in kept for detail in details]
        if details:
            sent["reasoning_details"] = details
    return sent


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def _tool_choice(choice: str) -> str | dict[str, Any]:
    if choice in TOOL_CHOICES:
        return choice
    return {"type": "function", "function": {"name": choice}}


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": SCHEMA_NAME, "schema": schema, "strict": is_strict(schema)},
    }
