"""Replies of Anthropic's Messages API, whole or streamed.

A streamed message is a whole one cut into content blocks and deltas, so `MessageReplyParser` reads
both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Finish, Reply, Thinking, ToolCall
from podium.core.usage import UNKNOWN_USAGE, Usage, plausible_usage
from podium.workers import errors, fields, translation
from podium.workers.fields import Document, MalformedReply

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
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def append(self, name: str, piece: str) -> None:
        if piece:
            self.pieces.setdefault(name, []).append(piece)

    def joined(self, name: str) -> str:
        return "".join(self.pieces.get(name, ()))


class MessageReplyParser:
    """Parses one message.

    `label` names the worker in errors. `prefill` is the beginning of the reply, which the API does
    not repeat.
    """

    def __init__(self, model: str, label: str, *, prefill: str, schema_tool: bool) -> None:
        self._asked_model = model
        self._label = label
        self._unsent_prefill = prefill
        self._schema_tool = schema_tool
        self._blocks: dict[int, _Block] = {}
        self._counts: dict[str, int | None] = {}
        self._is_miscounted = False
        self._stop_reason = ""
        self._stop_sequence = ""
        self._explanation = ""
        self._model = model
        self._stopped = False

    def parse_reply(self, message: Document) -> Reply:
        """Parse a whole message."""
        for _ in self._take_message(message):
            pass
        return self._to_reply()

    def feed(self, event: str, document: Document) -> Iterator[Delta]:
        """Take the next event and yield its deltas."""
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
            self._stopped = True
        elif kind == "error" or document.get("error"):
            raise errors.error_from_stream(self._label, document.get("error"))

    @property
    def is_complete(self) -> bool:
        """True after the message's last event."""
        return self._stopped

    def finish(self) -> Reply:
        """Return the reply; raise if the stream ended before its last event."""
        if not self._stopped:
            raise errors.truncated_stream(self._label)
        return self._to_reply()

    def _take_message(self, message: Document) -> Iterator[Delta]:
        if message.get("error"):
            raise errors.error_from_stream(self._label, message["error"])
        self._start(message)
        for index, block in enumerate(fields.get_objects(message, "content")):
            yield from self._start_block(index, block)
        self._take_end(message)
        if not self._stop_reason:
            raise MalformedReply("expected a message with a stop_reason, got none")
        self._stopped = True

    def _start(self, message: Document) -> None:
        self._model = fields.get_text(message, "model") or self._model
        self._take_usage(fields.get_object(message, "usage"))

    def _start_block(self, index: int, block: Document) -> Iterator[Delta]:
        kind, id_, name, data = (
            fields.get_text(block, key) for key in ("type", "id", "name", "data")
        )
        self._blocks[index] = _Block(kind, id_, name, data)
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
        thinking = fields.get_count(
            fields.get_object(usage, "output_tokens_details"), "thinking_tokens"
        )
        if thinking is not None:
            self._counts["thinking_tokens"] = thinking

    def _to_reply(self) -> Reply:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = self._unsent_prefill + "".join(
            block.joined("input" if self._is_schema(block) else "text") for block in blocks
        )
        calls = tuple(
            ToolCall(block.id, block.name, block.joined("input") or "{}")
            for block in blocks
            if block.kind == "tool_use" and not self._is_schema(block)
        )
        finish = _FINISH.get(self._stop_reason, "stop")
        return Reply(
            text=text or (self._explanation if finish == "refused" else ""),
            usage=self._usage(),
            finish="stop" if finish == "tool" and not calls else finish,
            tool_calls=calls,
            thinking=tuple(self._thinking(block) for block in blocks if "thinking" in block.kind),
            model=self._model,
            stop_sequence=self._stop_sequence,
        )

    def _thinking(self, block: _Block) -> Thinking:
        if block.kind == "redacted_thinking":
            return Thinking("", json.dumps({"data": block.data}), self._asked_model)
        signature = block.joined("signature")
        opaque = json.dumps({"signature": signature}) if signature else ""
        return Thinking(block.joined("thinking"), opaque, self._asked_model)

    def _usage(self) -> Usage:
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
        )
        return plausible_usage(usage)
