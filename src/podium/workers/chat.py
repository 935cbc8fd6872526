"""The Chat Completions protocol: OpenAI's, and that of everyone who is compatible with it.

Pure translation, shared by `openai`, `compatible` and `llamacpp`: requests here, replies in
`chat_reply`. Where servers differ, the difference is a field of `ChatDialect`, never a branch on
a vendor's name.
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
from podium.workers import translation as parts
from podium.workers.translation import is_strict

SCHEMA_NAME: Final = "reply"

SHOWN: Final = "The tool showed pictures, which follow."
"""The words of a result that has none of its own."""

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
"""What no option may change in a body, whichever server's name for it is used."""


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """How one server's Chat Completions differ from the others'.

    `max_tokens`, `seed` and `grammar` are those fields' names; without the last the server
    takes no grammar. `streams_usage` says that a stream must be asked for its usage. A reply
    that Podium begins goes out as a last assistant message, with `prefill_message` added to
    the message and `prefill_body` to the body; `echoes_prefill` says that the server repeats
    it. `thinking` is the field in which a model's own thinking is handed back to it;
    `cache_writes` says that the server counts what it writes to its cache, and `cache_key` that
    it takes a key by which prompts that begin alike are found there. `parallel_tools` says that
    the server can be told to have one tool called at a time, and `detail` that it can be told how
    closely to look at pictures.
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


def body_of(
    request: Request, profile: WorkerProfile, dialect: ChatDialect, *, stream: bool
) -> dict[str, Any]:
    """The request's JSON."""
    body: dict[str, Any] = {
        "model": profile.model,
        "messages": list(_messages(request, profile, dialect)),
    }
    if request.max_tokens is not None:
        body[dialect.max_tokens] = request.max_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    body |= parts.sampling_of(
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
        parts.refuse_grammar(request, profile)
    if request.cache_key and dialect.cache_key:
        body["prompt_cache_key"] = request.cache_key
    if parts.prefills(request, profile):
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
            yield from _given(message, profile, dialect)
    if parts.prefills(request, profile):
        yield {"role": "assistant", "content": request.prefill, **dialect.prefill_message}


def _given(
    message: Message, profile: WorkerProfile, dialect: ChatDialect
) -> Iterator[dict[str, Any]]:
    """What the worker is told: each tool result is a message of its own, the rest is one. A
    result is words alone here, so its pictures come after all results, as the user's."""
    content = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            text = part.text or (SHOWN if part.images else "")
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
        yield {"role": role, "content": _shortened(content)}


def _content(
    part: Part, message: Message, profile: WorkerProfile, dialect: ChatDialect
) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image) and message.role != "system":
        shown = {"url": parts.data_url(part)}
        if part.detail and dialect.detail:
            shown["detail"] = part.detail
        return {"type": "image_url", "image_url": shown}
    raise parts.unsupported(part, message, profile)


def _shortened(content: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Words alone go out as plain text, which every server understands."""
    if all(part["type"] == "text" for part in content):
        return "".join(part["text"] for part in content)
    return content


def _assistant(message: Message, profile: WorkerProfile, dialect: ChatDialect) -> dict[str, Any]:
    for part in message.parts:
        if not isinstance(part, Text | ToolCall | Thinking):
            raise parts.unsupported(part, message, profile)
    sent: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls := parts.of_kind(message, ToolCall):
        sent["content"] = message.text or None
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
    own = parts.own_thinking(message, profile)
    if dialect.thinking == "reasoning_content" and own:
        sent["reasoning_content"] = "".join(part.text for part in own)
    if dialect.thinking == "reasoning_details":
        kept = [parts.opaque_of(part, list, profile) for part in own if part.opaque]
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
