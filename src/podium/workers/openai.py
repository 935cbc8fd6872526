"""OpenAI: Chat Completions, or Responses where the endpoint's options say `wire = "responses"`.

Chat Completions are those of every compatible endpoint, with OpenAI's own dialect. Responses
are in `openai_responses`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from podium.core.errors import RequestRefused
from podium.core.pool import WorkerProfile
from podium.core.request import (
    TOOL_CHOICES,
    Delta,
    Finish,
    Image,
    Message,
    Reply,
    Request,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from podium.core.usage import UNKNOWN_USAGE, Usage
from podium.workers import errors as faults
from podium.workers import fields
from podium.workers import translation as parts
from podium.workers.chat import SCHEMA_NAME
from podium.workers.compatible import CompatibleWorker
from podium.workers.endpoints import Endpoint
from podium.workers.fields import Document, Malformed
from podium.workers.hosted import HostedWorker
from podium.workers.http import Call, Http
from podium.workers.translation import is_strict

_TEXT_DELTAS: Final = ("response.output_text.delta", "response.refusal.delta")
_THINKING_DELTAS: Final = (
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
)
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


class ResponsesWorker(HostedWorker):
    """A worker behind the Responses API."""

    settings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "wire": ("chat", "responses"),
        "reasoning_summary": ("none", "auto", "concise", "detailed"),
    }
    owned: ClassVar[frozenset[str]] = frozenset(
        {"model", "input", "stream", "store", "background", "max_output_tokens"}
    )

    def call(self, request: Request, *, stream: bool) -> Call:
        """A POST to the endpoint's responses."""
        key = self.endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return self.sent("/responses", self._body(request, stream=stream), headers)

    def read(self, document: Document, request: Request) -> Reply:
        """The whole response."""
        return read_response(document, self.profile.model, self.called)

    def assembly(self, request: Request) -> ResponseAssembly:
        """Where the events of a streamed response are put together."""
        return ResponseAssembly(self.profile.model, self.called)

    def _body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        parts.refuse_grammar(request, self.profile)
        parts.refuse_seed(request, self.profile)
        if request.stop:
            raise RequestRefused(
                f"worker {self.profile.name!r} has no stop sequences on this wire; leave them "
                f'out, or set wire = "chat"'
            )
        body: dict[str, Any] = {
            "model": self.profile.model,
            "input": [item for message in request.messages for item in self._items(message)],
            "store": False,
        }
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        body |= parts.sampling_of(request, self.profile, temperature="temperature", top_p="top_p")
        if "reasoning" in self.profile.capabilities:
            body["include"] = ["reasoning.encrypted_content"]
            if reasoning := self._reasoning(request):
                body["reasoning"] = reasoning
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            if request.tool_choice:
                body["tool_choice"] = _tool_choice(request.tool_choice)
            if not request.parallel_tools:
                body["parallel_tool_calls"] = False
        if request.schema is not None:
            body["text"] = {"format": _format(request.schema)}
        if request.cache_key:
            body["prompt_cache_key"] = request.cache_key
        if stream:
            body["stream"] = True
        return body

    def _reasoning(self, request: Request) -> dict[str, str]:
        reasoning = {}
        if request.effort is not None:
            reasoning["effort"] = str(request.effort)
        if (summary := self.setting("reasoning_summary")) != "none":
            reasoning["summary"] = summary
        return reasoning

    def _items(self, message: Message) -> Iterator[dict[str, Any]]:
        """A message's items: its words and pictures are one, everything else is its own."""
        if message.role == "assistant":
            yield from self._said(message)
            return
        content = []
        for part in message.parts:
            if isinstance(part, Text):
                content.append({"type": "input_text", "text": part.text})
            elif isinstance(part, Image) and message.role != "system":
                content.append(_picture(part))
            elif isinstance(part, ToolResult) and message.role != "system":
                yield {
                    "type": "function_call_output",
                    "call_id": part.call_id,
                    "output": _told(part),
                }
            else:
                raise parts.unsupported(part, message, self.profile)
        if content:
            role = "user" if message.role == "tool" else message.role
            yield {"type": "message", "role": role, "content": content}

    def _said(self, message: Message) -> Iterator[dict[str, Any]]:
        """What the assistant thought, said and called, in that order."""
        for part in message.parts:
            if not isinstance(part, Text | ToolCall | Thinking):
                raise parts.unsupported(part, message, self.profile)
        for thinking in parts.own_thinking(message, self.profile):
            if thinking.opaque:
                kept = parts.opaque_of(thinking, dict, self.profile)
                if kept.get("type") != "reasoning":  # nothing else may be slipped in here
                    raise parts.changed_thinking(self.profile)
                yield kept
        if message.text:
            yield {"type": "message", "role": "assistant", "content": message.text}
        for call in parts.of_kind(message, ToolCall):
            yield {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }


class ResponseAssembly:
    """Puts one streamed response together: its last event carries it whole."""

    def __init__(self, model: str, called: str) -> None:
        self._asked_model = model
        self._called = called
        self._response: Document | None = None

    def feed(self, event: str, document: Document) -> Iterator[Delta]:
        """Take the next event; the pieces of the answer that it brings."""
        kind = fields.text(document, "type")
        if kind in _TEXT_DELTAS:
            yield Delta(fields.text(document, "delta"))
        elif kind in _THINKING_DELTAS:
            yield Delta(fields.text(document, "delta"), "thinking")
        elif kind in _ENDS:
            self._response = fields.member(document, "response")
        elif fields.text(document, "object") == "response":  # the server did not stream
            self._response = document
            if text := self.finish().text:
                yield Delta(text)
        elif kind == "error" or document.get("error"):
            raise faults.from_stream(self._called, document.get("error") or document)

    @property
    def finished(self) -> bool:
        """Whether the event that carries the whole response has come."""
        return self._response is not None

    def finish(self) -> Reply:
        """The whole reply; a stream without its last event was broken off."""
        if self._response is None:
            raise faults.broken_off(self._called)
        return read_response(self._response, self._asked_model, self._called)


def read_response(document: Document, asked_model: str, called: str) -> Reply:
    """The reply in a response object."""
    if document.get("error"):
        raise faults.from_stream(called, document["error"])
    status = fields.text(document, "status")
    if status not in ("completed", "incomplete"):
        raise Malformed(f"expected a completed response, got status {status!r}")
    words: list[str] = []
    calls: list[ToolCall] = []
    thinking: list[Thinking] = []
    refused = False
    for item in fields.members(document, "output"):
        kind = fields.text(item, "type")
        if kind == "message":
            for content in fields.members(item, "content"):
                words.append(fields.text(content, "text") + fields.text(content, "refusal"))
                refused = refused or content.get("type") == "refusal"
        elif kind == "function_call":
            name, arguments = fields.text(item, "name"), fields.text(item, "arguments")
            calls.append(ToolCall(fields.text(item, "call_id"), name, arguments or "{}"))
        elif kind == "reasoning":
            thinking.append(_thinking(item, asked_model))
    finish: Finish = "tool" if calls else "stop"
    if status == "incomplete":
        reason = fields.text(fields.member(document, "incomplete_details"), "reason")
        finish = "refused" if reason == "content_filter" else "length"
    return Reply(
        text="".join(words),
        usage=usage_of(fields.member(document, "usage")),
        finish="refused" if refused else finish,
        tool_calls=tuple(calls),
        thinking=tuple(thinking),
        model=fields.text(document, "model") or asked_model,
    )


@fields.counted
def usage_of(document: Document) -> Usage:
    """The usage object as Podium counts. What did not come stays unknown."""
    if not document:
        return UNKNOWN_USAGE
    inputs = fields.member(document, "input_tokens_details")
    outputs = fields.member(document, "output_tokens_details")
    return Usage(
        input_tokens=fields.count(document, "input_tokens"),
        output_tokens=fields.count(document, "output_tokens"),
        cached_input_tokens=fields.count(inputs, "cached_tokens"),
        reasoning_tokens=fields.count(outputs, "reasoning_tokens"),
        cache_write_tokens=fields.count(inputs, "cache_write_tokens"),
    )


def _thinking(item: Document, asked_model: str) -> Thinking:
    """A reasoning item: its words, and the item itself to be handed back unread."""
    said = fields.members(item, "summary") + fields.members(item, "content")
    kept = {key: item[key] for key in ("type", "id", "summary", "encrypted_content") if key in item}
    opaque = json.dumps(kept) if item.get("encrypted_content") else ""
    return Thinking("\n\n".join(fields.text(part, "text") for part in said), opaque, asked_model)


def _told(result: ToolResult) -> str | list[dict[str, str]]:
    """What a tool said, and what it showed."""
    text = f"Error: {result.text}" if result.is_error else result.text
    if not result.images:
        return text
    words = [{"type": "input_text", "text": text}] if text else []
    return [*words, *map(_picture, result.images)]


def _picture(image: Image) -> dict[str, str]:
    detail = image.detail or "auto"
    return {"type": "input_image", "image_url": parts.data_url(image), "detail": detail}


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": is_strict(tool.parameters),
    }


def _tool_choice(choice: str) -> str | dict[str, str]:
    return choice if choice in TOOL_CHOICES else {"type": "function", "name": choice}


def _format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "name": SCHEMA_NAME,
        "schema": schema,
        "strict": is_strict(schema),
    }


WIRES: Final[Mapping[str, tuple[str, ...]]] = {"wire": ("chat", "responses")}


class OpenAIWorker(CompatibleWorker):
    """A worker behind OpenAI's Chat Completions."""

    settings: ClassVar[Mapping[str, tuple[str, ...]]] = WIRES


def openai_worker(profile: WorkerProfile, endpoint: Endpoint, http: Http) -> HostedWorker:
    """The worker that speaks the wire which the endpoint's options name."""
    if endpoint.options.get("wire") == "responses":
        return ResponsesWorker(profile, endpoint, http)
    return OpenAIWorker(profile, endpoint, http)
