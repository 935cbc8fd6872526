"""Anthropic's Messages API.

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

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from podium.core.errors import RequestRefused
from podium.core.pool import WorkerProfile
from podium.core.request import (
    ANY_OBJECT,
    UNKNOWN_USAGE,
    CacheTtl,
    Delta,
    Effort,
    Finish,
    Image,
    Message,
    Part,
    Reply,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    document_heading,
    plausible_usage,
)
from podium.workers import errors, fields, translation
from podium.workers.fields import Document, MalformedReply
from podium.workers.hosted import HostedWorker, ReplyParser, Wire
from podium.workers.http import HttpCall
from podium.workers.translation import to_strict_schema

SCHEMA_TOOL: Final = "reply"
"""The tool whose arguments are the structured output of an older model."""

_FINISH: Final[Mapping[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "tool_use": "tool",
    "refusal": "refused",
}

_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_PARTS: Final = (
    ("output_tokens_details", "thinking_tokens"),
    ("cache_creation", "ephemeral_1h_input_tokens"),
)
"""Counts inside an object of the usage."""


def thinking_block(thinking: Thinking, profile: WorkerProfile) -> dict[str, Any]:
    """Return a thinking block exactly as the API sent it.

    Raises `RequestRefused` if the client changed it.
    """
    match translation.load_opaque(thinking, dict, profile):
        case {"data": str(data)}:
            return {"type": "redacted_thinking", "data": data}
        case {"signature": str(signature)}:
            return {"type": "thinking", "thinking": thinking.text, "signature": signature}
        case _:
            raise translation.thinking_changed_error(profile)


@dataclass(slots=True)
class _Block:
    """A growing content block; its pieces are joined once at the end, in linear time."""

    kind: str
    id: str = ""
    name: str = ""
    data: str = ""
    number: int = 0
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def append(self, name: str, piece: str) -> None:
        if piece:
            self.pieces.setdefault(name, []).append(piece)

    def join(self, name: str) -> str:
        return "".join(self.pieces.get(name, ()))


class MessageReplyParser(ReplyParser):
    """Parses one message; `prefill` is its beginning, which the API does not repeat."""

    def __init__(
        self, profile: WorkerProfile, label: str, *, prefill: str, schema_tool: bool
    ) -> None:
        super().__init__(profile, label)
        self._unsent_prefill = prefill
        self._schema_tool = schema_tool
        self._blocks: dict[int, _Block] = {}
        self._counts: dict[str, int | None] = {}
        self._is_miscounted = False
        self._stop_reason = ""
        self._stop_sequence = ""
        self._explanation = ""

    def parse(self, document: Document) -> Reply:
        for _ in self._take_message(document):
            pass
        return self.to_reply()

    def feed(self, document: Document) -> Iterator[Delta]:
        kind = fields.get_text(document, "type")
        if kind == "message":  # the server did not stream
            yield from self._take_message(document)
        elif kind == "message_start":
            self._start(fields.get_object(document, "message"))
        elif kind == "content_block_start":
            block = fields.get_object(document, "content_block")
            yield from self._start_block(fields.get_count(document, "index") or 0, block)
        elif kind == "content_block_delta":
            index = fields.get_count(document, "index") or 0
            yield from self._extend_block(index, fields.get_object(document, "delta"))
        elif kind == "message_delta":
            self._take_end(fields.get_object(document, "delta"))
            self._take_usage(fields.get_object(document, "usage"))
        elif kind == "message_stop":
            self.is_complete = True
        elif kind == "error" or document.get("error"):
            raise errors.error_from_stream(self.label, document.get("error"))

    def _take_message(self, message: Document) -> Iterator[Delta]:
        if message.get("error"):
            raise errors.error_from_stream(self.label, message["error"])
        self._start(message)
        for index, block in enumerate(fields.get_objects(message, "content")):
            yield from self._start_block(index, block)
        self._take_end(message)
        if not self._stop_reason:
            raise MalformedReply("expected a message with a stop_reason, got none")
        self.is_complete = True

    def _start(self, message: Document) -> None:
        self.model = fields.get_text(message, "model") or self.model
        self._take_usage(fields.get_object(message, "usage"))

    def _start_block(self, index: int, block: Document) -> Iterator[Delta]:
        kind, id_, name, data = (
            fields.get_text(block, key) for key in ("type", "id", "name", "data")
        )
        number = sum(known.kind == "tool_use" for known in self._blocks.values())
        self._blocks[index] = started = _Block(kind, id_, name, data, number)
        if kind == "tool_use" and not self._is_schema(started):
            yield Delta("", "tool_call", number, id_, name)
        for key in ("text", "thinking", "signature"):
            yield from self._append(index, key, fields.get_text(block, key))
        if arguments := block.get("input"):
            yield from self._append(index, "input", json.dumps(arguments))

    def _extend_block(self, index: int, delta: Document) -> Iterator[Delta]:
        if index not in self._blocks:
            raise MalformedReply(f"expected content block {index} to start before its delta")
        for key in ("text", "thinking", "signature"):
            yield from self._append(index, key, fields.get_text(delta, key))
        yield from self._append(index, "input", fields.get_text(delta, "partial_json"))

    def _append(self, index: int, key: str, piece: str) -> Iterator[Delta]:
        block = self._blocks[index]
        is_text = key == "text" or (key == "input" and self._is_schema(block))
        if is_text and piece:
            piece, self._unsent_prefill = self._unsent_prefill + piece, ""
        block.append(key, piece)
        if piece and is_text:
            yield Delta(piece)
        elif piece and key == "thinking":
            yield Delta(piece, "thinking")
        elif piece and key == "input":
            yield Delta(piece, "tool_call", block.number, block.id, block.name)

    def _is_schema(self, block: _Block) -> bool:
        return self._schema_tool and block.kind == "tool_use" and block.name == SCHEMA_TOOL

    def _take_end(self, end: Document) -> None:
        self._stop_reason = fields.get_text(end, "stop_reason") or self._stop_reason
        self._stop_sequence = fields.get_text(end, "stop_sequence") or self._stop_sequence
        self._explanation = fields.get_text(fields.get_object(end, "stop_details"), "explanation")

    def _take_usage(self, usage: Document) -> None:
        """Update the cumulative counts; impossible ones make the usage unknown."""
        try:
            self._take_counts(usage)
        except MalformedReply:
            self._is_miscounted = True

    def _take_counts(self, usage: Document) -> None:
        for name in _COUNTS:
            if name in usage:
                # The API writes null for a cache that was not used.
                self._counts[name] = fields.get_count(usage, name) or 0
        for part, name in _PARTS:
            count = fields.get_count(fields.get_object(usage, part), name)
            if count is not None:
                self._counts[name] = count

    def to_reply(self) -> Reply:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        nothing = "{}" if self._stop_reason == "tool_use" else ""
        text = self._unsent_prefill + "".join(
            block.join("input") or nothing if self._is_schema(block) else block.join("text")
            for block in blocks
        )
        calls = tuple(
            ToolCall(block.id, block.name, block.join("input") or "{}")
            for block in blocks
            if block.kind == "tool_use" and not self._is_schema(block)
        )
        finish = _FINISH.get(self._stop_reason, "stop")
        return Reply(
            text=text or (self._explanation if finish == "refused" else ""),
            usage=self._total_usage(),
            finish="stop" if finish == "tool" and not calls else finish,
            tool_calls=calls,
            thinking=tuple(
                self._parse_thinking(block) for block in blocks if "thinking" in block.kind
            ),
            model=self.model,
            stop_sequence=self._stop_sequence,
        )

    def _parse_thinking(self, block: _Block) -> Thinking:
        if block.kind == "redacted_thinking":
            return Thinking("", json.dumps({"data": block.data}), self.asked_model)
        signature = block.join("signature")
        opaque = json.dumps({"signature": signature}) if signature else ""
        return Thinking(block.join("thinking"), opaque, self.asked_model)

    @property
    def known_usage(self) -> Usage:
        return self._total_usage()

    def _total_usage(self) -> Usage:
        """Return Podium's counts; the API's input_tokens exclude cached tokens."""
        if not self._counts or self._is_miscounted:
            return UNKNOWN_USAGE
        fresh = self._counts.get("input_tokens")
        cached = self._counts.get("cache_read_input_tokens")
        written = self._counts.get("cache_creation_input_tokens")
        usage = Usage(
            input_tokens=None if fresh is None else fresh + (cached or 0) + (written or 0),
            output_tokens=self._counts.get("output_tokens"),
            cached_input_tokens=cached,
            reasoning_tokens=self._counts.get("thinking_tokens"),
            cache_write_tokens=written,
            cache_write_1h_tokens=self._counts.get("ephemeral_1h_input_tokens", 0),
        )
        return plausible_usage(usage)


API_VERSION: Final = "2023-06-01"

DEFAULT_MAX_TOKENS: Final = 4096
"""The limit, which the API requires, if neither request nor profile has one."""

MIN_THINKING_TOKENS: Final = 1024
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

_CACHEABLE: Final = ("text", "image", "document", "tool_use", "tool_result")
"""Blocks that may carry a cache mark; thinking blocks may not."""

_TOOL_CHOICE: Final = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicWorker(HostedWorker):
    """A worker behind the Messages API."""

    wire: ClassVar[Wire | None] = "messages"
    option_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "thinking_style": ("adaptive", "always", "budget"),
        "schema_style": ("format", "tool"),
    }
    reserved_fields: ClassVar[frozenset[str]] = frozenset(
        {"model", "messages", "stream", "max_tokens"}
    )

    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        headers = {"anthropic-version": API_VERSION, **self.key_headers("x-api-key")}
        body = self.add_extra(self._body(request, stream=stream), request)
        return self.post_call("/v1/messages", body, headers)

    def reply_parser(self, request: Request) -> ReplyParser:
        return MessageReplyParser(
            self.profile,
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
        thinking = self._thinking_fields(request)
        body |= thinking
        sampling = translation.sampling_fields(
            request, self.profile, temperature="temperature", top_p="top_p"
        )
        if not self._thinks(thinking):
            body |= sampling
        elif set(sampling.values()) - {1}:
            raise RequestRefused(
                f"worker {self.profile.name!r} does not accept {' or '.join(sampling)} while it "
                f"thinks; leave it out, or the effort"
            )
        body |= _tools(request)
        if request.schema is not None:
            self._add_schema(body, request.schema, as_tool=self._forces_schema(request))
        if request.cache_ttl and "cache_control" not in self.endpoint.options:
            _mark_cache_points(body, request.cache_ttl)
        if stream:
            body["stream"] = True
        return body

    def _max_tokens(self, request: Request) -> int:
        limit = self.profile.limits.max_output_tokens
        return request.max_tokens or limit or DEFAULT_MAX_TOKENS

    def _thinking_fields(self, request: Request) -> dict[str, Any]:
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
        if budget < MIN_THINKING_TOKENS or self._forces_tool(request):
            return {}
        if self._continues_without_thinking(request):
            return {}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}

    def _continues_without_thinking(self, request: Request) -> bool:
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
            self._thinking_fields(request)
        ):
            return ""
        return request.prefill

    def _forces_tool(self, request: Request) -> bool:
        """True if the model must call a tool, which the API allows only without thinking."""
        named = bool(request.tools) and request.tool_choice not in ("", "auto", "none")
        return named or self._forces_schema(request)

    def _forces_schema(self, request: Request) -> bool:
        """True if the schema becomes a forced tool: no format allows just any object."""
        if request.schema == ANY_OBJECT:
            return not request.tools and self.setting("thinking_style") != "always"
        return request.schema is not None and self.setting("schema_style") == "tool"

    def _add_schema(
        self, body: dict[str, Any], schema: Mapping[str, Any], *, as_tool: bool
    ) -> None:
        if schema == ANY_OBJECT and not as_tool:
            return  # the reply is checked in any case
        if not as_tool:
            output = {"format": {"type": "json_schema", "schema": to_strict_schema(schema)}}
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
        others.sort(key=lambda part: not isinstance(part, Thinking))  # and thinking before calls
        for part in (*results, *others):
            if isinstance(part, Thinking) and message.role == "assistant":
                if part in own and part.opaque:
                    yield thinking_block(part, self.profile)
            elif not isinstance(part, Text) or part.text:  # the API refuses empty text
                yield self._block(part, message)

    def _block(self, part: Part, message: Message) -> dict[str, Any]:
        if isinstance(part, Text):
            return _text_block(part)
        if isinstance(part, ToolCall) and message.role == "assistant":
            arguments = translation.parse_arguments(part, self.profile)
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        if isinstance(part, Image) and message.role != "assistant":
            return _image_block(part)
        if isinstance(part, ToolResult) and message.role != "assistant":
            block = {
                "type": "tool_result",
                "tool_use_id": part.call_id,
                "content": _tool_result(part),
            }
            return block | ({"is_error": True} if part.is_error else {})
        raise translation.unsupported_part(part, message, self.profile)


def _mark_cache_points(body: dict[str, Any], ttl: CacheTtl) -> None:
    """Mark the ends of the system prompt (or tools), of the earlier turns and of the whole."""
    mark = {"type": "ephemeral", "ttl": ttl}
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": mark}]
    elif "tools" in body:
        body["tools"][-1]["cache_control"] = mark
    for turn in body["messages"][-2:]:
        block = turn["content"][-1]
        if block["type"] in _CACHEABLE:
            block["cache_control"] = mark


def _tool_result(result: ToolResult) -> str | list[dict[str, Any]]:
    if not result.images:
        return result.text
    words = [{"type": "text", "text": result.text}] if result.text else []
    return [*words, *map(_image_block, result.images)]


def _text_block(part: Text) -> dict[str, Any]:
    heading = document_heading(part.title)
    data = part.text.removeprefix(heading).rstrip("\n")
    if not (part.title and data and part.text.startswith(heading)):  # changed by a guardrail
        return {"type": "text", "text": part.text}
    source = {"type": "text", "media_type": "text/plain", "data": data}
    return {"type": "document", "source": source, "title": part.title}


def _image_block(image: Image) -> dict[str, Any]:
    kind = "document" if image.is_pdf else "image"
    if image.url:
        return {"type": kind, "source": {"type": "url", "url": image.url}}
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": kind, "source": source}


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
