"""Replies of Anthropic's Messages API, whole or streamed.

A streamed message is a whole one cut into its content blocks and those into deltas, so
`MessageAssembly` reads both: a whole block is a block that starts complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Finish, Reply, Thinking, ToolCall
from podium.core.usage import UNKNOWN_USAGE, Usage, plausible_usage
from podium.workers import errors as faults
from podium.workers import fields
from podium.workers import translation as parts
from podium.workers.fields import Document, Malformed

SCHEMA_TOOL: Final = "reply"
"""The tool by whose arguments an older model gives a reply that fits a schema."""

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


def block_of(thinking: Thinking, profile: WorkerProfile) -> dict[str, Any]:
    """A thinking block, handed back exactly as it came; raises `RequestRefused` where it cannot
    have come so."""
    match parts.opaque_of(thinking, dict, profile):
        case {"data": str(data)}:
            return {"type": "redacted_thinking", "data": data}
        case {"signature": str(signature)}:
            return {"type": "thinking", "thinking": thinking.text, "signature": signature}
        case _:
            raise parts.changed_thinking(profile)


@dataclass(slots=True)
class _Block:
    """A content block as it grows. The pieces are joined only at the end, so that time is
    linear in the reply's length."""

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


class MessageAssembly:
    """Puts one message together. `called` is how error messages name the worker; `prefill` is
    how Podium began the reply, which the API does not repeat."""

    def __init__(self, model: str, called: str, *, prefill: str, schema_tool: bool) -> None:
        self._asked_model = model
        self._called = called
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

    def read(self, message: Document) -> Reply:
        """A message that came as one document."""
        for _ in self._take_message(message):
            pass
        return self._whole()

    def feed(self, event: str, document: Document) -> Iterator[Delta]:
        """Take the next event; the pieces of the answer that it brings."""
        kind = fields.text(document, "type")
        if kind == "message":  # the server did not stream
            yield from self._take_message(document)
        elif kind == "message_start":
            self._start(fields.member(document, "message"))
        elif kind == "content_block_start":
            block = fields.member(document, "content_block")
            yield from self._start_block(fields.count(document, "index") or 0, block)
        elif kind == "content_block_delta":
            index = fields.count(document, "index") or 0
            yield from self._extend_block(index, fields.member(document, "delta"))
        elif kind == "message_delta":
            self._take_end(fields.member(document, "delta"))
            self._take_usage(fields.member(document, "usage"))
        elif kind == "message_stop":
            self._stopped = True
        elif kind == "error" or document.get("error"):
            raise faults.from_stream(self._called, document.get("error"))

    @property
    def finished(self) -> bool:
        """Whether the message has said that it stops."""
        return self._stopped

    def finish(self) -> Reply:
        """The whole reply; a stream without its last event was broken off."""
        if not self._stopped:
            raise faults.broken_off(self._called)
        return self._whole()

    def _take_message(self, message: Document) -> Iterator[Delta]:
        """A message that came as one document."""
        if message.get("error"):
            raise faults.from_stream(self._called, message["error"])
        self._start(message)
        for index, block in enumerate(fields.members(message, "content")):
            yield from self._start_block(index, block)
        self._take_end(message)
        if not self._stop_reason:
            raise Malformed("expected a message with a stop_reason, got none")
        self._stopped = True

    def _start(self, message: Document) -> None:
        self._model = fields.text(message, "model") or self._model
        self._take_usage(fields.member(message, "usage"))

    def _start_block(self, index: int, block: Document) -> Iterator[Delta]:
        kind, id_, name, data = (fields.text(block, key) for key in ("type", "id", "name", "data"))
        self._blocks[index] = _Block(kind, id_, name, data)
        for key in ("text", "thinking", "signature"):
            yield from self._append(index, key, fields.text(block, key))
        if arguments := block.get("input"):
            yield from self._append(index, "input", json.dumps(arguments))

    def _extend_block(self, index: int, delta: Document) -> Iterator[Delta]:
        if index not in self._blocks:
            raise Malformed(f"expected content block {index} to start before its delta")
        for key in ("text", "thinking", "signature"):
            yield from self._append(index, key, fields.text(delta, key))
        yield from self._append(index, "input", fields.text(delta, "partial_json"))

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
        self._stop_reason = fields.text(end, "stop_reason") or self._stop_reason
        self._stop_sequence = fields.text(end, "stop_sequence") or self._stop_sequence
        self._explanation = fields.text(fields.member(end, "stop_details"), "explanation")

    def _take_usage(self, usage: Document) -> None:
        """Counts are cumulative: a later one replaces an earlier one. Counts that cannot be make
        all of them unknown, and the reply no worse."""
        try:
            self._take_counts(usage)
        except Malformed:
            self._is_miscounted = True

    def _take_counts(self, usage: Document) -> None:
        for name in _COUNTS:
            if name in usage:
                # The API writes null for a cache that was not used.
                self._counts[name] = fields.count(usage, name) or 0
        thinking = fields.count(fields.member(usage, "output_tokens_details"), "thinking_tokens")
        if thinking is not None:
            self._counts["thinking_tokens"] = thinking

    def _whole(self) -> Reply:
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
        """As Podium counts: the API's input_tokens leave out what the cache read and wrote."""
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
