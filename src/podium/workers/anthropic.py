"""Anthropic's Messages API: requests here, replies in `anthropic_reply`.

Settings in the endpoint's options, for models that differ from the current ones:

    thinking_style   "adaptive": the model decides how much to think, guided by the effort
                     "always":   the same, for models that cannot turn thinking off
                     "budget":   older models, which take a number of thinking tokens
    schema_style     "format":   the API enforces the schema
                     "tool":     older models, which are forced to call a tool with that schema

All other options go into the body, such as `cache_control = { type = "ephemeral" }`. Without that,
prompts are cached if the request asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from podium.core.errors import RequestRefused
from podium.core.request import (
    CacheTime,
    Effort,
    Image,
    Message,
    Part,
    Reply,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from podium.workers import translation
from podium.workers.anthropic_reply import SCHEMA_TOOL, MessageReplyParser, thinking_block
from podium.workers.fields import Document
from podium.workers.hosted import HostedWorker
from podium.workers.http import HttpCall
from podium.workers.translation import close_schema

API_VERSION: Final = "2023-06-01"

DEFAULT_MAX_TOKENS: Final = 4096
"""The limit, which the API requires, if neither request nor profile has one."""

LEAST_THINKING_TOKENS: Final = 1024
"""The API refuses a smaller thinking budget."""

_EFFORT: Final[Mapping[Effort, str]] = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
}

_THINKING_BUDGET: Final[Mapping[Effort, int]] = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 24576,
}

_KEPT_IN_CACHE: Final = ("text", "image", "tool_use", "tool_result")
"""Blocks that may carry a cache mark; thinking blocks may not."""

_TOOL_CHOICE: Final = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicWorker(HostedWorker):
    """A worker behind the Messages API."""

    settings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "thinking_style": ("adaptive", "always", "budget"),
        "schema_style": ("format", "tool"),
    }
    owned: ClassVar[frozenset[str]] = frozenset({"model", "messages", "stream", "max_tokens"})

    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        """Build a POST to v1/messages."""
        headers = {"anthropic-version": API_VERSION}
        if self.endpoint.api_key:
            headers["x-api-key"] = self.endpoint.api_key
        return self.post_call("/v1/messages", self._body(request, stream=stream), headers)

    def parse_reply(self, document: Document, request: Request) -> Reply:
        """Parse a whole message."""
        return self.reply_parser(request).parse_reply(document)

    def reply_parser(self, request: Request) -> MessageReplyParser:
        """Return a parser for a streamed message."""
        return MessageReplyParser(
            self.profile.model,
            self.label,
            prefill=self._prefill(request).rstrip(),
            schema_tool=self._forces_schema(request),
        )

    def _body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        translation.refuse_grammar(request, self.profile)
        translation.refuse_seed(request, self.profile)
        body: dict[str, Any] = {
            "model": self.profile.model,
            "max_tokens": self._max_tokens(request),
            "messages": self._messages(request),
        }
        system = [message.text for message in request.messages if message.role == "system"]
        if text := "\n\n".join(filter(None, system)):
            body["system"] = text
        if request.stop:
            body["stop_sequences"] = list(request.stop)
        thinking = self._thinking(request)
        body |= thinking
        sampling = translation.sampling_fields(
            request, self.profile, temperature="temperature", top_p="top_p"
        )
        if not self._thinks(thinking):
            body |= sampling
        elif set(sampling.values()) - {1}:
            raise RequestRefused(
                f"worker {self.profile.name!r} takes no {' and no '.join(sampling)} while it "
                f"thinks; leave that out, or the effort"
            )
        body |= _tools(request)
        if request.schema is not None:
            self._add_schema(body, request.schema)
        if request.cache_time and "cache_control" not in self.endpoint.options:
            _mark_for_the_cache(body, request.cache_time)
        if stream:
            body["stream"] = True
        return body

    def _max_tokens(self, request: Request) -> int:
        limit = self.profile.limits.max_output_tokens
        return request.max_tokens or limit or DEFAULT_MAX_TOKENS

    def _thinking(self, request: Request) -> dict[str, Any]:
        """Return the thinking fields for this model's generation."""
        effort = request.effort
        if effort is None or "reasoning" not in self.profile.capabilities:
            return {}
        style = self.setting("thinking_style")
        if style == "budget":
            return self._thinking_budget(request, effort)
        if style == "adaptive" and (effort == "none" or self._forces_tool(request)):
            return {"thinking": {"type": "disabled"}}
        return {
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": _EFFORT[effort]},
        }

    def _thinking_budget(self, request: Request, effort: Effort) -> dict[str, Any]:
        """Use the requested tokens, else at most half of the output.

        Do not think if that is too little for the API, if a tool is forced, or if the tool results
        answer calls without thinking of this model.
        """
        if request.thinking_tokens is not None and effort != "none":
            budget = min(request.thinking_tokens, self._max_tokens(request) - 1)
        else:
            budget = min(_THINKING_BUDGET[effort], self._max_tokens(request) // 2)
        if budget < LEAST_THINKING_TOKENS or self._forces_tool(request):
            return {}
        if self._goes_on_without_thinking(request):
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}

    def _goes_on_without_thinking(self, request: Request) -> bool:
        """True if the last assistant turn called tools and has no thinking to send back."""
        for message in reversed(request.messages):
            if message.role == "assistant":
                own = translation.own_thinking(message, self.profile)
                called = translation.parts_of_type(message, ToolCall)
                return bool(called) and not any(thinking.opaque for thinking in own)
            if not translation.parts_of_type(message, ToolResult):
                return False
        return False

    def _thinks(self, thinking: Mapping[str, Any]) -> bool:
        return bool(thinking) and thinking["thinking"]["type"] != "disabled"

    def _prefill(self, request: Request) -> str:
        """Return the prefill; a model that thinks cannot have one."""
        if not translation.has_prefill(request, self.profile) or self._thinks(
            self._thinking(request)
        ):
            return ""
        return request.prefill

    def _forces_tool(self, request: Request) -> bool:
        """True if the model must call a tool, which the API allows only without thinking."""
        named = bool(request.tools) and request.tool_choice not in ("", "auto", "none")
        return named or self._forces_schema(request)

    def _forces_schema(self, request: Request) -> bool:
        return request.schema is not None and self.setting("schema_style") == "tool"

    def _add_schema(self, body: dict[str, Any], schema: Mapping[str, Any]) -> None:
        if self.setting("schema_style") == "format":
            output = {"format": {"type": "json_schema", "schema": close_schema(schema)}}
            body["output_config"] = body.get("output_config", {}) | output
            return
        if "tools" in body:
            raise RequestRefused(
                f"worker {self.profile.name!r} cannot be sent both tools and a schema; "
                f'leave one out, or set schema_style = "format" if the model allows it'
            )
        body["tools"] = [
            {
                "name": SCHEMA_TOOL,
                "description": "Give your reply by calling this tool.",
                "input_schema": schema,
            }
        ]
        body["tool_choice"] = {"type": "tool", "name": SCHEMA_TOOL}

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        """Build alternating turns; messages of one role in a row become one turn."""
        turns: list[dict[str, Any]] = []
        for message in request.messages:
            if message.role == "system":
                self._check_system(message)
                continue
            role = "assistant" if message.role == "assistant" else "user"
            content = list(self._content(message))
            if turns and turns[-1]["role"] == role:
                turns[-1]["content"] += content
            elif content:
                turns.append({"role": role, "content": content})
        if prefill := self._prefill(request).rstrip():  # trailing space would be refused
            turns.append({"role": "assistant", "content": [{"type": "text", "text": prefill}]})
        return turns

    def _check_system(self, message: Message) -> None:
        for part in message.parts:
            if not isinstance(part, Text):
                raise translation.unsupported_part(part, message, self.profile)

    def _content(self, message: Message) -> Iterator[dict[str, Any]]:
        own = translation.own_thinking(message, self.profile)
        results = translation.parts_of_type(
            message, ToolResult
        )  # the API wants these before any words
        others = [part for part in message.parts if part not in results]
        for part in (*results, *others):
            if isinstance(part, Thinking) and message.role == "assistant":
                if part in own and part.opaque:
                    yield thinking_block(part, self.profile)
            elif not isinstance(part, Text) or part.text:  # the API refuses empty text
                yield self._block(part, message)

    def _block(self, part: Part, message: Message) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        if isinstance(part, ToolCall) and message.role == "assistant":
            arguments = translation.parse_arguments(part, self.profile)
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        if isinstance(part, Image) and message.role != "assistant":
            return {"type": "image", "source": _source(part)}
        if isinstance(part, ToolResult) and message.role != "assistant":
            block = {
                "type": "tool_result",
                "tool_use_id": part.call_id,
                "content": _tool_result(part),
            }
            return block | ({"is_error": True} if part.is_error else {})
        raise translation.unsupported_part(part, message, self.profile)


def _mark_for_the_cache(body: dict[str, Any], time: CacheTime) -> None:
    """Mark the ends of the system prompt (or tools), of the earlier turns and of the whole."""
    mark = {"type": "ephemeral", "ttl": time}
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": mark}]
    elif "tools" in body:
        body["tools"][-1]["cache_control"] = mark
    for turn in body["messages"][-2:]:
        block = turn["content"][-1]
        if block["type"] in _KEPT_IN_CACHE:
            block["cache_control"] = mark


def _tool_result(result: ToolResult) -> str | list[dict[str, Any]]:
    if not result.images:
        return result.text
    words = [{"type": "text", "text": result.text}] if result.text else []
    return [*words, *({"type": "image", "source": _source(image)} for image in result.images)]


def _source(image: Image) -> dict[str, str]:
    if image.url:
        return {"type": "url", "url": image.url}
    return {"type": "base64", "media_type": image.media_type, "data": image.data}


def _tools(request: Request) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools: dict[str, Any] = {
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.parameters,
            }
            for tool in request.tools
        ]
    }
    if choice := request.tool_choice:
        named = {"type": "tool", "name": choice}
        tools["tool_choice"] = {"type": _TOOL_CHOICE[choice]} if choice in _TOOL_CHOICE else named
    if not request.parallel_tools and choice != "none":
        chosen = tools.get("tool_choice", {"type": "auto"})
        tools["tool_choice"] = chosen | {"disable_parallel_tool_use": True}
    return tools
