"""Amazon Bedrock: Converse and ConverseStream.

Converse has the parts of Anthropic's Messages under other names, for the models of every maker. So
`AnthropicWorker` builds the request and reads the reply, and this module renames both ways. Its
settings in the endpoint's options hold here too, with these besides:

    thinking_style   "effort": models that take `reasoning_effort`, such as gpt-oss
    cache_points     "auto":   prompts are cached by Claude and Nova, if the request asks for it
                     "on":     by this model too;  "off": by none

All other options go into the body, such as `guardrailConfig`; `additionalModelRequestFields` is
merged with Podium's own. Not in Converse, and different from Messages: a tool choice of none, so
that calls and results become text; image URLs, which are refused; one tool call at a time.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import quote

from podium.core.errors import BadReply, RequestRefused
from podium.core.pool import WorkerProfile
from podium.core.request import (
    Delta,
    Message,
    Reply,
    Request,
    Text,
    ToolCall,
    ToolResult,
    document_heading,
    images_in,
)
from podium.workers import errors, fields, translation
from podium.workers.anthropic import SCHEMA_TOOL, AnthropicWorker, MessageReplyParser
from podium.workers.credentials import require_extra
from podium.workers.endpoints import Endpoint
from podium.workers.fields import Document, MalformedReply
from podium.workers.hosted import ReplyParser
from podium.workers.http import EventReader, Http, HttpCall, ServerEvent

NO_OUTPUT: Final = "(no output)"
"""The text of an empty tool result, which Converse refuses."""

_MALFORMED_CALL_REASONS: Final = ("malformed_model_output", "malformed_tool_use")
"""Stop reasons of output that the API itself could not read."""

_CACHING: Final = re.compile(r"\banthropic\.|\bamazon\.nova")
"""In the names of models that take cache points."""

_REFUSED: Final = ("guardrail_intervened", "content_filtered")

_STATUS: Final[Mapping[str, int]] = {
    "throttlingException": 429,
    "validationException": 400,
    "internalServerException": 500,
    "modelStreamErrorException": 502,
    "serviceUnavailableException": 503,
}
"""The status codes of exceptions in a stream."""

_COUNTS: Final[Mapping[str, str]] = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheWriteInputTokens": "cache_creation_input_tokens",
}


class AwsEventReader(EventReader):
    """Splits AWS's binary event stream; each event's document is under its type."""

    def __init__(self) -> None:
        from botocore.eventstream import EventStreamBuffer

        super().__init__()
        self._buffer = EventStreamBuffer()

    def feed(self, piece: bytes) -> list[ServerEvent]:
        from botocore.eventstream import ParserError

        self._buffer.add_data(piece)
        try:
            return [_event(message) for message in self._buffer]
        except ParserError as error:
            raise MalformedReply(f"expected AWS's event stream: {error}") from error


def _event(message: Any) -> ServerEvent:
    kind = message.headers.get(":event-type") or message.headers.get(":exception-type")
    if not kind:  # an error outside the service's own model
        kind = "internalServerException"
        payload = json.dumps({"message": message.headers.get(":error-message", "unknown error")})
    else:
        payload = message.payload.decode() or "{}"
    return ServerEvent(kind, f"{{{json.dumps(kind)}:{payload}}}")


class ConverseReplyParser(ReplyParser):
    """Parses one reply: its events and blocks are those of a message under other names."""

    def __init__(self, profile: WorkerProfile, label: str, message: MessageReplyParser) -> None:
        super().__init__(profile, label)
        self._message = message
        self._started: set[int] = set()
        self._has_stopped = False

    def parse(self, document: Document) -> Reply:
        reason = fields.get_text(document, "stopReason")
        content = fields.get_object(fields.get_object(document, "output"), "message")
        stopped = {
            "content": [_from_block(block) for block in fields.get_objects(content, "content")],
            "stop_reason": self._stop_reason(reason),
            "usage": _usage(fields.get_object(document, "usage")),
        }
        return self._message.parse(stopped)

    def feed(self, document: Document) -> Iterator[Delta]:
        for kind, event in document.items():
            details = fields.require_object(event, kind)
            if kind.endswith("Exception"):
                said = {"code": _STATUS.get(kind, 500), "message": details.get("message") or kind}
                raise errors.error_from_stream(self.label, said)
            yield from self._take_event(kind, details)

    def _take_event(self, kind: str, event: Document) -> Iterator[Delta]:
        index = fields.get_count(event, "contentBlockIndex") or 0
        if kind == "contentBlockStart":
            yield from self._start(index, _from_block(fields.get_object(event, "start")))
        elif kind == "contentBlockDelta":
            delta = fields.get_object(event, "delta")
            if index not in self._started:  # text and thinking begin without a start
                yield from self._start(index, _empty_block(delta))
            yield from self._send("content_block_delta", index=index, delta=_from_delta(delta))
        elif kind == "messageStop":
            self._has_stopped = True
            reason = self._stop_reason(fields.get_text(event, "stopReason"))
            yield from self._send("message_delta", delta={"stop_reason": reason})
        elif kind == "metadata":
            self.is_complete = self._has_stopped
            yield from self._send("message_delta", usage=_usage(fields.get_object(event, "usage")))

    def finish(self) -> Reply:
        """Return the reply after the stream; the usage comes after its end and may be missing."""
        self.is_complete = self._has_stopped
        return super().finish()

    def to_reply(self) -> Reply:
        return self._message.to_reply()

    def _start(self, index: int, block: Document) -> Iterator[Delta]:
        self._started.add(index)
        return self._send("content_block_start", index=index, content_block=block)

    def _send(self, kind: str, **event: Any) -> Iterator[Delta]:
        return self._message.feed({"type": kind, **event})

    def _stop_reason(self, reason: str) -> str:
        if reason in _MALFORMED_CALL_REASONS:
            raise BadReply(f"{self.label} wrote invalid output: {reason}")
        return "refusal" if reason in _REFUSED else reason


def _from_block(block: Document) -> dict[str, Any]:
    if tool := fields.get_object(block, "toolUse"):
        return {
            "type": "tool_use",
            "id": tool.get("toolUseId"),
            "name": tool.get("name"),
            "input": tool.get("input"),
        }
    if reasoning := fields.get_object(block, "reasoningContent"):
        if "redactedContent" in reasoning:
            return {"type": "redacted_thinking", "data": reasoning["redactedContent"]}
        said = fields.get_object(reasoning, "reasoningText")
        thinking, signature = said.get("text"), said.get("signature")
        return {"type": "thinking", "thinking": thinking, "signature": signature}
    return {"type": "text", "text": block.get("text")}


def _empty_block(delta: Document) -> dict[str, Any]:
    reasoning = fields.get_object(delta, "reasoningContent")
    if "redactedContent" in reasoning:
        return {"type": "redacted_thinking", "data": reasoning["redactedContent"]}
    return {"type": "thinking" if reasoning else "text"}


def _from_delta(delta: Document) -> dict[str, Any]:
    reasoning = fields.get_object(delta, "reasoningContent")
    return {
        "text": delta.get("text"),
        "partial_json": fields.get_object(delta, "toolUse").get("input"),
        "thinking": reasoning.get("text"),
        "signature": reasoning.get("signature"),
    }


def _usage(usage: Document) -> dict[str, Any]:
    """Rename the counts; like Messages, Converse counts cached input apart, and omits zeros."""
    if not usage:
        return {}
    return {theirs: usage.get(ours) for ours, theirs in _COUNTS.items()}


class BedrockWorker(AnthropicWorker):
    """A worker behind Converse."""

    wire = None
    option_choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "thinking_style": ("adaptive", "always", "budget", "effort"),
        "schema_style": ("format", "tool"),
        "cache_points": ("auto", "on", "off"),
    }
    reserved_fields: ClassVar[frozenset[str]] = frozenset(
        {"modelId", "messages", "system", "toolConfig"}
    )
    reserved_in_merged_fields: ClassVar[Mapping[str, frozenset[str]]] = {
        "additionalModelRequestFields": frozenset(),
        "inferenceConfig": frozenset({"maxTokens"}),
    }

    def __init__(self, profile: WorkerProfile, endpoint: Endpoint, http: Http) -> None:
        require_extra("bedrock", "botocore")
        super().__init__(profile, endpoint, http)

    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        method = "converse-stream" if stream else "converse"
        # An ARN is one segment. Its colons stay, as the HTTP client would undo their encoding after
        # the signature.
        path = f"/model/{quote(self.profile.model, safe=':')}/{method}"
        call = self.post_call(path, self._converse(request), self.key_headers())
        return replace(call, reader=AwsEventReader)

    def reply_parser(self, request: Request) -> ReplyParser:
        message = MessageReplyParser(
            self.profile,
            self.label,
            prefill=self._prefill(request).rstrip(),
            schema_tool=self._forces_schema(request),
        )
        return ConverseReplyParser(self.profile, self.label, message)

    def _thinking_fields(self, request: Request) -> dict[str, Any]:
        return (
            {} if self.setting("thinking_style") == "effort" else super()._thinking_fields(request)
        )

    def _converse(self, request: Request) -> dict[str, Any]:
        if any(image.url for image in images_in(request.messages)):
            raise RequestRefused(
                f"worker {self.profile.name!r} takes no image URLs; send the image itself"
            )
        if request.tool_choice == "none" or not request.tools:
            messages = tuple(map(_without_tools, request.messages))
            request = replace(request, messages=messages, tools=(), tool_choice="")
        if not self._caches():
            request = replace(request, cache_ttl="")
        body = self._body(request, stream=False)
        converse: dict[str, Any] = {
            "messages": [
                {"role": turn["role"], "content": list(_to_blocks(turn["content"]))}
                for turn in body["messages"]
            ],
            "inferenceConfig": _present(
                maxTokens=request.max_tokens or self.profile.limits.max_output_tokens,
                temperature=body.get("temperature"),
                topP=body.get("top_p"),
                stopSequences=body.get("stop_sequences"),
            ),
        }
        system = body.get("system", [])
        if system:
            blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
            converse["system"] = list(_to_blocks(blocks))
        if tools := body.get("tools"):
            converse["toolConfig"] = _tool_config(tools, body.get("tool_choice"))
        output = dict(body.get("output_config", {}))
        if schema := output.pop("format", None):
            converse["outputConfig"] = _output_config(schema["schema"])
        more = _present(thinking=body.get("thinking"), output_config=output or None)
        if self.setting("thinking_style") == "effort" and "reasoning" in self.profile.capabilities:
            more |= _present(reasoning_effort=request.effort)
        if more:
            converse["additionalModelRequestFields"] = more
        return converse

    def _caches(self) -> bool:
        """True if the model takes cache points; others refuse them."""
        wanted, model = self.setting("cache_points"), self.profile.model
        return wanted == "on" or (wanted == "auto" and bool(_CACHING.search(model)))


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _without_tools(message: Message) -> Message:
    """Write calls and results as text: Converse takes them only together with tools."""
    parts = tuple(
        Text(f"[Called {part.name} with {part.arguments or '{}'}]")
        if isinstance(part, ToolCall)
        else Text(f"[Result{' (error)' if part.is_error else ''}: {part.text}]")
        if isinstance(part, ToolResult)
        else part
        for part in message.parts
    )
    images = images_in([message]) if translation.parts_of_type(message, ToolResult) else ()
    return replace(message, parts=(*parts, *images)) if parts != message.parts else message


def _to_blocks(blocks: Iterable[Document]) -> Iterator[dict[str, Any]]:
    """Yield content blocks of Messages as blocks of Converse, with their cache points.

    Text of spaces alone is left out: Converse refuses it.
    """
    for block in blocks:
        if block["type"] != "text" or block["text"].strip():
            yield _to_block(block)
        if mark := block.get("cache_control"):
            yield {"cachePoint": {"type": "default", "ttl": mark["ttl"]}}


def _to_block(block: Document) -> dict[str, Any]:
    match block["type"]:
        case "document" if block["source"]["type"] == "text":
            return {"text": document_heading(block["title"]) + block["source"]["data"]}
        case "document":
            data = block["source"]["data"]
            name = f"document {zlib.crc32(data.encode())}"  # names in one request must differ
            return {"document": {"format": "pdf", "name": name, "source": {"bytes": data}}}
        case "image":
            source = block["source"]
            kind = source["media_type"].rpartition("/")[2].replace("jpg", "jpeg")
            return {"image": {"format": kind, "source": {"bytes": source["data"]}}}
        case "tool_use":
            called = {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}
            return {"toolUse": called}
        case "tool_result":
            content = block["content"]
            if isinstance(content, str):
                content = [{"type": "text", "text": content if content.strip() else NO_OUTPUT}]
            result = {"toolUseId": block["tool_use_id"], "content": list(_to_blocks(content))}
            return {"toolResult": result | ({"status": "error"} if block.get("is_error") else {})}
        case "thinking":
            said = {"text": block["thinking"], "signature": block["signature"]}
            return {"reasoningContent": {"reasoningText": said}}
        case "redacted_thinking":
            return {"reasoningContent": {"redactedContent": block["data"]}}
        case _:
            return {"text": block["text"]}


def _tool_config(tools: Iterable[Document], choice: Document | None) -> dict[str, Any]:
    config: dict[str, Any] = {"tools": []}
    for tool in tools:
        spec = {"name": tool["name"], "inputSchema": {"json": tool["input_schema"]}}
        if tool["description"]:
            spec["description"] = tool["description"]
        config["tools"].append({"toolSpec": spec})
        if mark := tool.get("cache_control"):
            config["tools"].append({"cachePoint": {"type": "default", "ttl": mark["ttl"]}})
    if choice is not None:
        kind = choice["type"]
        config["toolChoice"] = {kind: {"name": choice["name"]} if kind == "tool" else {}}
    return config


def _output_config(schema: Mapping[str, Any]) -> dict[str, Any]:
    written = json.dumps(schema, default=dict)
    structure = {"jsonSchema": {"schema": written, "name": SCHEMA_TOOL}}
    return {"textFormat": {"type": "json_schema", "structure": structure}}
