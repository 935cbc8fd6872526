"""Anthropic's Messages API: requests here, replies in `anthropic_reply`.

Settings in the endpoint's options, for models that differ from the current ones:

    thinking_style   "adaptive": the model decides how much to think, guided by the effort
                     "always":   the same, for models that cannot be told not to think
                     "budget":   older models, which take a number of thinking tokens
    schema_style     "format":   the API enforces the schema
                     "tool":     older models, which are made to call a tool with that schema

Everything else in the options goes into the body, such as
`cache_control = { type = "ephemeral" }` to cache prompts. Without that, prompts are cached where a
request asks for it.
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
from podium.workers import translation as parts
from podium.workers.anthropic_reply import SCHEMA_TOOL, MessageAssembly, block_of
from podium.workers.fields import Document
from podium.workers.hosted import HostedWorker
from podium.workers.http import Call
from podium.workers.translation import closed

API_VERSION: Final = "2023-06-01"

DEFAULT_MAX_TOKENS: Final = 4096
"""The API wants a limit; this is it where neither the request nor the profile names one."""

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
"""The blocks that a cache may end with; thinking is none of them."""

_TOOL_CHOICE: Final = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicWorker(HostedWorker):
    """A worker behind the Messages API."""

    settings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "thinking_style": ("adaptive", "always", "budget"),
        "schema_style": ("format", "tool"),
    }
    owned: ClassVar[frozenset[str]] = frozenset({"model", "messages", "stream", "max_tokens"})

    def call(self, request: Request, *, stream: bool) -> Call:
        """A POST to the endpoint's v1/messages."""
        headers = {"anthropic-version": API_VERSION}
        if self.endpoint.api_key:
            headers["x-api-key"] = self.endpoint.api_key
        return self.sent("/v1/messages", self._body(request, stream=stream), headers)

    def read(self, document: Document, request: Request) -> Reply:
        """The whole message."""
        return self.assembly(request).read(document)

    def assembly(self, request: Request) -> MessageAssembly:
        """Where the events of a streamed message are put together."""
        return MessageAssembly(
            self.profile.model,
            self.called,
            prefill=self._prefill(request).rstrip(),
            schema_tool=self._forces_schema(request),
        )

    def _body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        parts.refuse_grammar(request, self.profile)
        parts.refuse_seed(request, self.profile)
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
        sampling = parts.sampling_of(
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
        """How hard to think, in the words of this model's generation."""
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
        """As much as was asked for, else at most half of the output is thinking. Where that is too
        little to be accepted, or a tool is forced, or the results answer calls that came of no
        thinking of this model's, there is none."""
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
        """Whether this goes on with a turn that called tools and has no thinking to hand back."""
        for message in reversed(request.messages):
            if message.role == "assistant":
                own = parts.own_thinking(message, self.profile)
                called = parts.of_kind(message, ToolCall)
                return bool(called) and not any(thinking.opaque for thinking in own)
            if not parts.of_kind(message, ToolResult):
                return False
        return False

    def _thinks(self, thinking: Mapping[str, Any]) -> bool:
        return bool(thinking) and thinking["thinking"]["type"] != "disabled"

    def _prefill(self, request: Request) -> str:
        """How the reply begins. A model that thinks first cannot be made to begin in a way."""
        if not parts.prefills(request, self.profile) or self._thinks(self._thinking(request)):
            return ""
        return request.prefill

    def _forces_tool(self, request: Request) -> bool:
        """Whether the model must call a tool, which the API allows only without thinking."""
        named = bool(request.tools) and request.tool_choice not in ("", "auto", "none")
        return named or self._forces_schema(request)

    def _forces_schema(self, request: Request) -> bool:
        return request.schema is not None and self.setting("schema_style") == "tool"

    def _add_schema(self, body: dict[str, Any], schema: Mapping[str, Any]) -> None:
        if self.setting("schema_style") == "format":
            output = {"format": {"type": "json_schema", "schema": closed(schema)}}
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
        """The turns, alternating: what follows each other in one role is one turn."""
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
                raise parts.unsupported(part, message, self.profile)

    def _content(self, message: Message) -> Iterator[dict[str, Any]]:
        own = parts.own_thinking(message, self.profile)
        results = parts.of_kind(message, ToolResult)  # the API wants these before any words
        others = [part for part in message.parts if part not in results]
        for part in (*results, *others):
            if isinstance(part, Thinking) and message.role == "assistant":
                if part in own and part.opaque:
                    yield block_of(part, self.profile)
            elif not isinstance(part, Text) or part.text:  # the API refuses empty text
                yield self._block(part, message)

    def _block(self, part: Part, message: Message) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        if isinstance(part, ToolCall) and message.role == "assistant":
            arguments = parts.arguments_of(part, self.profile)
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        if isinstance(part, Image) and message.role != "assistant":
            return {"type": "image", "source": _source(part)}
        if isinstance(part, ToolResult) and message.role != "assistant":
            block = {"type": "tool_result", "tool_use_id": part.call_id, "content": _told(part)}
            return block | ({"is_error": True} if part.is_error else {})
        raise parts.unsupported(part, message, self.profile)


def _mark_for_the_cache(body: dict[str, Any], time: CacheTime) -> None:
    """Ask that the prompt be kept up to the end of what the system says (or of the tools), of
    what came before the last turn, and of all: from one of these the next request begins."""
    mark = {"type": "ephemeral", "ttl": time}
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": mark}]
    elif "tools" in body:
        body["tools"][-1]["cache_control"] = mark
    for turn in body["messages"][-2:]:
        block = turn["content"][-1]
        if block["type"] in _KEPT_IN_CACHE:
            block["cache_control"] = mark


def _told(result: ToolResult) -> str | list[dict[str, Any]]:
    """What a tool said, and what it showed."""
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
