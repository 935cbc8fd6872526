"""OpenAI: Chat Completions, or the Responses API with the option `api = "responses"`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, Final

from podium.core.pool import WorkerProfile
from podium.core.request import (
    ANY_OBJECT,
    TOOL_CHOICES,
    UNKNOWN_USAGE,
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
    Usage,
)
from podium.workers import errors, fields, translation
from podium.workers.chat import SCHEMA_NAME, CompatibleWorker
from podium.workers.endpoints import Endpoint
from podium.workers.fields import Document, MalformedReply
from podium.workers.hosted import HostedWorker, ReplyParser, Wire
from podium.workers.http import Http, HttpCall
from podium.workers.translation import is_strict

_TEXT_DELTAS: Final = ("response.output_text.delta", "response.refusal.delta")
_THINKING_DELTAS: Final = (
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
)
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")


class ResponsesWorker(HostedWorker):
    """A worker behind the Responses API."""

    wire: ClassVar[Wire | None] = "responses"
    option_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "api": ("chat", "responses"),
        "reasoning_summary": ("none", "auto", "concise", "detailed"),
    }
    reserved_fields: ClassVar[frozenset[str]] = frozenset(
        {"model", "input", "stream", "store", "background", "max_output_tokens"}
    )

    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        body = self.add_extra(self._body(request, stream=stream), request)
        return self.post_call("/responses", body, self.key_headers())

    def parse_reply(self, document: Document, request: Request) -> Reply:
        reply = read_response(document, self.profile.model, self.label)
        return _end_at_stop(reply, request.stop)

    def reply_parser(self, request: Request) -> ReplyParser:
        return ResponsesReplyParser(self.profile, self.label, request.stop)

    def _body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        translation.refuse_grammar(request, self.profile)
        translation.refuse_seed(request, self.profile)
        body: dict[str, Any] = {
            "model": self.profile.model,
            "input": [item for message in request.messages for item in self._items(message)],
            "store": False,
        }
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        body |= translation.sampling_fields(
            request, self.profile, temperature="temperature", top_p="top_p"
        )
        if "reasoning" in self.profile.capabilities:
            asked = (request.extra or {}).get("include", ())
            body["include"] = ["reasoning.encrypted_content", *asked]
            if reasoning := self._reasoning_fields(request):
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

    def _reasoning_fields(self, request: Request) -> dict[str, str]:
        reasoning = {}
        if request.effort is not None:
            reasoning["effort"] = str(request.effort)
        given = (request.extra or {}).get("reasoning", {}).get("summary")
        if (summary := given or self.setting("reasoning_summary")) != "none":
            reasoning["summary"] = summary
        return reasoning

    def _items(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield a message's items: text and images are one, everything else its own."""
        if message.role == "assistant":
            yield from self._assistant_items(message)
            return
        content = []
        for part in message.parts:
            if isinstance(part, Text):
                content.append({"type": "input_text", "text": part.text})
            elif isinstance(part, Image) and message.role != "system":
                content.append(_image(part))
            elif isinstance(part, ToolResult) and message.role != "system":
                yield {
                    "type": "function_call_output",
                    "call_id": part.call_id,
                    "output": _tool_result(part),
                }
            else:
                raise translation.unsupported_part(part, message, self.profile)
        if content:
            role = "user" if message.role == "tool" else message.role
            yield {"type": "message", "role": role, "content": content}

    def _assistant_items(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield thinking, text and tool calls, in that order."""
        for part in message.parts:
            if not isinstance(part, Text | ToolCall | Thinking):
                raise translation.unsupported_part(part, message, self.profile)
        for thinking in translation.own_thinking(message, self.profile):
            if thinking.opaque:
                opaque_item = translation.load_opaque(thinking, dict, self.profile)
                if opaque_item.get("type") != "reasoning":  # nothing else may be slipped in here
                    raise translation.thinking_changed_error(self.profile)
                yield opaque_item
        if message.text:
            yield {"type": "message", "role": "assistant", "content": message.text}
        for call in translation.parts_of_type(message, ToolCall):
            yield {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }


class ResponsesReplyParser(ReplyParser):
    """Parses a streamed response; its last event carries it whole.

    The API has no stop sequences: the reply is cut here, and read to its end for its usage.
    """

    _response: Document = MappingProxyType({})

    def __init__(self, profile: WorkerProfile, label: str, stops: tuple[str, ...] = ()) -> None:
        super().__init__(profile, label)
        self._calls: dict[int | None, Delta] = {}
        self._stops = stops
        self._held = ""
        self._has_stopped = False

    def feed(self, document: Document) -> Iterator[Delta]:
        kind = fields.get_text(document, "type")
        if self._has_stopped and kind.endswith((".delta", ".added")):
            return
        if kind in _TEXT_DELTAS:
            if text := self._before_stop(fields.get_text(document, "delta")):
                yield Delta(text)
        elif kind in _THINKING_DELTAS:
            yield Delta(fields.get_text(document, "delta"), "thinking")
        elif kind == "response.output_item.added":
            yield from self._begin_call(document)
        elif kind == "response.function_call_arguments.delta":
            call = self._calls.get(fields.get_count(document, "output_index"))
            if call is not None:
                yield replace(call, text=fields.get_text(document, "delta"))
        elif kind in _ENDS:
            self._response, self.is_complete = fields.get_object(document, "response"), True
        elif fields.get_text(document, "object") == "response":  # the server did not stream
            self._response, self.is_complete = document, True
            if text := self.finish().text:
                yield Delta(text)
        elif kind == "error" or document.get("error"):
            raise errors.error_from_stream(self.label, document.get("error") or document)

    def _before_stop(self, piece: str) -> str:
        """Return what is known to come before any stop sequence."""
        text = self._held + piece
        end, stop = _find_stop(text, self._stops)
        if not stop:
            starts = (one[:size] for one in self._stops for size in range(1, len(one)))
            end -= max((len(start) for start in starts if text.endswith(start)), default=0)
        self._has_stopped, self._held = bool(stop), text[end:]
        return text[:end]

    def _begin_call(self, document: Document) -> Iterator[Delta]:
        item = fields.get_object(document, "item")
        if item.get("type") == "function_call":
            id_, name = fields.get_text(item, "call_id"), fields.get_text(item, "name")
            call = Delta("", "tool_call", len(self._calls), id_, name)
            self._calls[fields.get_count(document, "output_index")] = call
            yield call

    def to_reply(self) -> Reply:
        reply = read_response(self._response, self.asked_model, self.label)
        return _end_at_stop(reply, self._stops)


def _find_stop(text: str, stops: tuple[str, ...]) -> tuple[int, str]:
    """Return where the first stop sequence begins, and which it is; else the text's end."""
    return min(
        ((text.index(stop), stop) for stop in stops if stop in text), default=(len(text), "")
    )


def _end_at_stop(reply: Reply, stops: tuple[str, ...]) -> Reply:
    end, stop = _find_stop(reply.text, stops)
    if not stop:
        return reply
    return replace(reply, text=reply.text[:end], finish="stop", stop_sequence=stop, tool_calls=())


def read_response(document: Document, asked_model: str, label: str) -> Reply:
    if document.get("error"):
        raise errors.error_from_stream(label, document["error"])
    status = fields.get_text(document, "status")
    if status not in ("completed", "incomplete"):
        raise MalformedReply(f"expected a completed response, got status {status!r}")
    texts: list[str] = []
    calls: list[ToolCall] = []
    thinking: list[Thinking] = []
    refused = False
    logprobs: list[Document] = []
    for item in fields.get_objects(document, "output"):
        kind = fields.get_text(item, "type")
        if kind == "message":
            for content in fields.get_objects(item, "content"):
                texts.append(fields.get_text(content, "text") + fields.get_text(content, "refusal"))
                refused = refused or content.get("type") == "refusal"
                logprobs += [content] if content.get("logprobs") else []
        elif kind == "function_call":
            name, arguments = fields.get_text(item, "name"), fields.get_text(item, "arguments")
            calls.append(ToolCall(fields.get_text(item, "call_id"), name, arguments or "{}"))
        elif kind == "reasoning":
            thinking.append(_parse_thinking(item, asked_model))
    finish: Finish = "tool" if calls else "stop"
    if status == "incomplete":
        reason = fields.get_text(fields.get_object(document, "incomplete_details"), "reason")
        finish = "refused" if reason == "content_filter" else "length"
    return Reply(
        text="".join(texts),
        usage=usage_of(fields.get_object(document, "usage")),
        finish="refused" if refused else finish,
        tool_calls=tuple(calls),
        thinking=tuple(thinking),
        model=fields.get_text(document, "model") or asked_model,
        choices=tuple(logprobs),
    )


@fields.lenient_usage
def usage_of(document: Document) -> Usage:
    """Convert the usage object; missing counts stay unknown."""
    if not document:
        return UNKNOWN_USAGE
    inputs = fields.get_object(document, "input_tokens_details")
    outputs = fields.get_object(document, "output_tokens_details")
    return Usage(
        input_tokens=fields.get_count(document, "input_tokens"),
        output_tokens=fields.get_count(document, "output_tokens"),
        cached_input_tokens=fields.get_count(inputs, "cached_tokens"),
        reasoning_tokens=fields.get_count(outputs, "reasoning_tokens"),
        cache_write_tokens=fields.get_count(inputs, "cache_write_tokens"),
    )


def _parse_thinking(item: Document, asked_model: str) -> Thinking:
    """Return a reasoning item's text, and the item itself to send back unread."""
    parts = fields.get_objects(item, "summary") + fields.get_objects(item, "content")
    opaque_item = {
        key: item[key] for key in ("type", "id", "summary", "encrypted_content") if key in item
    }
    opaque = json.dumps(opaque_item) if item.get("encrypted_content") else ""
    return Thinking(
        "\n\n".join(fields.get_text(part, "text") for part in parts), opaque, asked_model
    )


def _tool_result(result: ToolResult) -> str | list[dict[str, str]]:
    text = f"Error: {result.text}" if result.is_error else result.text
    if not result.images:
        return text
    texts = [{"type": "input_text", "text": text}] if text else []
    return [*texts, *map(_image, result.images)]


def _image(image: Image) -> dict[str, str]:
    if image.is_pdf:
        if image.url:
            return {"type": "input_file", "file_url": image.url}
        data = translation.data_url(image)
        return {"type": "input_file", "filename": translation.PDF_NAME, "file_data": data}
    detail = image.detail or "auto"
    return {"type": "input_image", "image_url": translation.data_url(image), "detail": detail}


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
    if schema == ANY_OBJECT:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "name": SCHEMA_NAME,
        "schema": schema,
        "strict": is_strict(schema),
    }


APIS: Final[Mapping[str, tuple[str, ...]]] = {"api": ("chat", "responses")}


class OpenAIWorker(CompatibleWorker):
    """A worker behind OpenAI's Chat Completions."""

    option_choices: ClassVar[Mapping[str, tuple[str, ...]]] = APIS


def openai_worker(profile: WorkerProfile, endpoint: Endpoint, http: Http) -> HostedWorker:
    if endpoint.options.get("api") == "responses":
        return ResponsesWorker(profile, endpoint, http)
    return OpenAIWorker(profile, endpoint, http)
