"""The Chat Completions protocol: OpenAI's, and that of everyone who is compatible with it.

Pure translation, shared by `openai`, `compatible` and `llamacpp`: requests here, replies in
`chat_reply`. Where servers differ, the difference is a field of `ChatDialect`, never a branch on
a vendor's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from podium.errors import RequestRefused
from podium.pool import WorkerProfile
from podium.request import (
    TOOL_CHOICES,
    Image,
    Message,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)

SCHEMA_NAME: Final = "reply"


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """How one server's Chat Completions differ from the others'.

    `max_tokens` is that field's name. `grammar` is the field that takes a GBNF grammar, if any.
    A reply that Podium begins goes out as a last assistant message, with `prefill_message`
    added to the message and `prefill_body` to the body; `echoes_prefill` says that the server
    repeats it. `thinking` is the field in which a model's own thinking is handed back to it;
    `cache_writes` says that the server charges for writing its cache.
    """

    max_tokens: str = "max_tokens"
    grammar: str = ""
    prefill_message: Mapping[str, Any] = field(default_factory=dict)
    prefill_body: Mapping[str, Any] = field(default_factory=dict)
    echoes_prefill: bool = False
    thinking: Literal["", "reasoning_content", "reasoning_details"] = ""
    cache_writes: bool = False


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
    if "sampling" in profile.capabilities:
        sampling = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": request.seed,
        }
        body.update({name: value for name, value in sampling.items() if value is not None})
    if request.effort is not None and "reasoning" in profile.capabilities:
        body["reasoning_effort"] = request.effort
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice:
            body["tool_choice"] = _tool_choice(request.tool_choice)
    if request.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": SCHEMA_NAME,
                "schema": request.schema,
                "strict": is_strict(request.schema),
            },
        }
    if request.grammar:
        if not dialect.grammar:
            raise RequestRefused(
                f"worker {profile.name!r} cannot follow a grammar; only local models can"
            )
        body[dialect.grammar] = request.grammar
    if prefills(request, profile):
        body.update(dialect.prefill_body)
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def prefills(request: Request, profile: WorkerProfile) -> bool:
    """Whether Podium begins this reply itself."""
    return bool(request.prefill) and "prefill" in profile.capabilities


def is_strict(schema: Any) -> bool:
    """Whether a schema is of the closed kind that OpenAI can enforce to the letter: every
    object names all its members, requires them all and allows no others."""
    if isinstance(schema, Mapping):
        if "properties" in schema or schema.get("type") == "object":
            names = set(schema.get("properties", ()))
            closed = schema.get("additionalProperties") is False
            if not closed or names != set(schema.get("required", ())):
                return False
        return all(is_strict(value) for value in schema.values())
    if isinstance(schema, list | tuple):
        return all(is_strict(value) for value in schema)
    return True


def data_url(image: Image) -> str:
    """The picture's address, or the picture itself written as one."""
    return image.url or f"data:{image.media_type};base64,{image.data}"


def _messages(
    request: Request, profile: WorkerProfile, dialect: ChatDialect
) -> Iterator[dict[str, Any]]:
    for message in request.messages:
        if message.role == "assistant":
            yield _assistant(message, profile, dialect)
            continue
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        for result in results:
            text = f"Error: {result.text}" if result.is_error else result.text
            yield {"role": "tool", "tool_call_id": result.call_id, "content": text}
        content = [
            _content(part, message, profile) for part in message.parts if part not in results
        ]
        if content or not results:
            role = "user" if message.role == "tool" else message.role
            yield {"role": role, "content": _shortened(content)}
    if prefills(request, profile):
        yield {"role": "assistant", "content": request.prefill, **dialect.prefill_message}


def _content(part: object, message: Message, profile: WorkerProfile) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image) and message.role == "user":
        return {"type": "image_url", "image_url": {"url": data_url(part)}}
    raise RequestRefused(
        f"worker {profile.name!r} cannot be sent a {type(part).__name__} in a {message.role} "
        f"message; leave it out"
    )


def _shortened(content: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Words alone go out as plain text, which every server understands."""
    if all(part["type"] == "text" for part in content):
        return "".join(part["text"] for part in content)
    return content


def _assistant(message: Message, profile: WorkerProfile, dialect: ChatDialect) -> dict[str, Any]:
    if any(isinstance(part, Image | ToolResult) for part in message.parts):
        raise RequestRefused(
            f"worker {profile.name!r} cannot be sent pictures or tool results as an assistant's "
            f"words; put them into a user message"
        )
    calls = [
        {
            "id": part.id,
            "type": "function",
            "function": {"name": part.name, "arguments": part.arguments},
        }
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    sent: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls:
        sent |= {"content": message.text or None, "tool_calls": calls}
    own = [
        part for part in message.parts if isinstance(part, Thinking) and part.model == profile.model
    ]
    if dialect.thinking == "reasoning_content" and own:
        sent["reasoning_content"] = "".join(part.text for part in own)
    if dialect.thinking == "reasoning_details":
        details = [detail for part in own if part.opaque for detail in json.loads(part.opaque)]
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
