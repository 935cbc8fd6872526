"""Write Anthropic messages, whole or streamed.

Unknown counts are left out where the format allows it, and 0 where it requires a number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal

from podium.core.request import (
    NO_USAGE,
    UNKNOWN_USAGE,
    Delta,
    Effort,
    Finish,
    Thinking,
    ToolCall,
    Usage,
)
from podium.server.api_error import ERRORS, ApiError
from podium.server.dialects.content import decode_thinking, encode_thinking
from podium.server.dialects.fields import Fields, text
from podium.server.dialects.request import ApiRequest, ApiResponse, unsent_calls

NO_SIGNATURE: Final = "podium.shown"
"""Signature of a block without opaque state: some clients drop thinking without a signature."""

LOW_THINKING: Final = 4_096
HIGH_THINKING: Final = 16_384
"""Tokens: a thinking budget below the first is low effort, from the second on high."""


_THINKING: Final = frozenset({"type", "thinking", "signature"})
_REDACTED: Final = frozenset({"type", "data"})


def thinking_block(thinking: tuple[Thinking, ...], *, in_words: bool) -> dict[str, Any]:
    """Return a thinking block; without `in_words` it only keeps the opaque state."""
    words = "\n\n".join(part.text for part in thinking if part.text) if in_words else ""
    return {
        "type": "thinking",
        "thinking": words,
        "signature": encode_thinking(thinking) or NO_SIGNATURE,
    }


def redacted_block(encoded: str) -> dict[str, Any]:
    return {"type": "redacted_thinking", "data": encoded}


def read_thinking_block(block: Fields) -> tuple[Thinking, ...]:
    if block.values.get("type") == "thinking":
        block.note_unknown(_THINKING)
        block.required("thinking", text)
        return decode_thinking(block.required("signature", text), block.at("signature"))
    block.note_unknown(_REDACTED)
    return decode_thinking(block.required("data", text), block.at("data"))


def thinking_effort(tokens: int | None) -> Effort | None:
    if tokens is None:
        return None
    if tokens < LOW_THINKING:
        return "low"
    return "medium" if tokens < HIGH_THINKING else "high"


_STOP_REASON: Final[Mapping[Finish, str]] = MappingProxyType(
    {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool": "tool_use",
        "refused": "refusal",
        "error": "end_turn",
    }
)

RAW_ARGUMENTS_KEY: Final = "arguments"
"""Arguments that are not a JSON object are passed on as text under this name: the client's tool
objects, and the worker can correct itself."""


def message_start(request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
    """Return the message before its content is known."""
    return {
        "id": f"msg_{answer.id.removeprefix('run_')}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage(answer.usage, answer.orchestration),
    }


def stop_fields(answer: ApiResponse) -> dict[str, Any]:
    if answer.tool_calls:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if answer.finish == "stop" and answer.stop_sequence:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_sequence}
    return {"stop_reason": _STOP_REASON[answer.finish], "stop_sequence": None}


def tool_use(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": tool_input(call),
    }


def tool_input(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as an object."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {RAW_ARGUMENTS_KEY: call.arguments}


def keeps_thinking(request: ApiRequest) -> bool:
    """True if the client wants thinking back, even without text."""
    if request.shows_reasoning:
        return True
    thinking = request.raw_body.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("display") == "omitted"


def usage(total: Usage, orchestration: Usage) -> dict[str, Any]:
    """Return the tokens of all calls; `input_tokens` excludes what the cache read and wrote.

    The conductor's share has the fields of Sakana's Fugu API, and is left out if there was none.
    """
    cached, cache_writes = total.cached_input_tokens, total.cache_write_tokens
    counts: dict[str, Any] = {
        "input_tokens": max((total.input_tokens or 0) - (cached or 0) - (cache_writes or 0), 0),
        "output_tokens": total.output_tokens or 0,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": cache_writes,
    }
    if total.reasoning_tokens is not None or orchestration.total_tokens:
        counts["output_tokens_details"] = {"thinking_tokens": total.reasoning_tokens or 0}
    if orchestration.total_tokens:
        counts["input_tokens_details"] = {
            "orchestration_input_tokens": orchestration.input_tokens,
            "orchestration_input_cached_tokens": orchestration.cached_input_tokens,
        }
        counts["output_tokens_details"] |= {
            "orchestration_output_tokens": orchestration.output_tokens,
        }
    return counts


def anthropic_error(error: ApiError) -> dict[str, Any]:
    message = str(error)
    if error.field and error.field not in message:
        message = f"{error.field}: {message}"
    fields = {"type": ERRORS[error.reason].anthropic_type, "message": message}
    return {"type": "error", "error": fields | _details(error), "request_id": error.request_id}


def _details(error: ApiError) -> dict[str, Any]:
    """Return the code by which SDKs continue without a thread."""
    if error.field != "thread":
        return {}
    return {"details": {"error_code": "thread_unsupported_request", "unsupported": []}}


Block = Literal["thinking", "text", "tool_use"]

_EMPTY: Final[dict[str, dict[str, Any]]] = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
}


class AnthropicWriter:
    """Writes one stream."""

    def __init__(self, request: ApiRequest, start: ApiResponse) -> None:
        self._keeps_thinking = keeps_thinking(request)
        known = UNKNOWN_USAGE if start.usage is NO_USAGE else start.usage
        self._message = message_start(request, replace(start, usage=known))
        self._index = 0
        self._open: Block | None = None
        self._calls = 0
        self._last_thought: Literal["progress", "thinking"] | None = None

    def begin(self) -> bytes:
        """Write `message_start`, with the usage that is known by then."""
        return _event("message_start", message=self._message)

    def progress(self, text: str) -> bytes:
        return self._think("progress", f"{text}\n")

    def thinking(self, text: str) -> bytes:
        return self._think("thinking", text)

    def text(self, text: str) -> bytes:
        if not text:
            return b""
        return self._open_block("text") + self._delta("text_delta", text=text)

    def streams_call(self, name: str) -> bool:
        return True

    def tool_call(self, delta: Delta) -> bytes:
        """Write a piece of a tool call; the first one opens its block."""
        events = b""
        if delta.call == self._calls:
            self._calls += 1
            events = self._close()
            self._open = "tool_use"
            events += self._start(tool_use(ToolCall(delta.id, delta.name, "")))
        if delta.text:
            events += self._delta("input_json_delta", partial_json=delta.text)
        return events

    def keep_alive(self) -> bytes:
        return _event("ping")

    def end(self, answer: ApiResponse, rest: str = "", calls: Sequence[str] = ()) -> bytes:
        encoded = encode_thinking(answer.thinking) if self._keeps_thinking else ""
        begun, others = answer.tool_calls[: len(calls)], answer.tool_calls[len(calls) :]
        events = [*map(self.tool_call, unsent_calls(begun, calls)), self.text(rest)]
        if self._open == "thinking":
            events.append(self._close(encoded or NO_SIGNATURE))
        else:
            events.append(self._close())
            if encoded:
                events.append(self._block(redacted_block(encoded)))
        if not answer.text and not answer.tool_calls:
            events.append(self._block(_EMPTY["text"]))
        events.extend(map(self._tool_use, others))
        counts = usage(answer.usage, answer.orchestration)
        events.append(_event("message_delta", delta=stop_fields(answer), usage=counts))
        events.append(_event("message_stop"))
        return b"".join(events)

    def fail(self, error: ApiError) -> bytes:
        return _encode_event(anthropic_error(error))

    def _think(self, kind: Literal["progress", "thinking"], text: str) -> bytes:
        if not text:
            return b""
        opened = self._open_block("thinking")
        if self._last_thought not in (None, kind):
            text = f"\n{text}"  # so that the lines on progress stand apart from the thinking
        self._last_thought = kind
        return opened + self._delta("thinking_delta", thinking=text)

    def _open_block(self, kind: Block) -> bytes:
        if self._open == kind:
            return b""
        closed = self._close()
        self._open, self._last_thought = kind, None
        return closed + self._start(_EMPTY[kind])

    def _close(self, signature: str = NO_SIGNATURE) -> bytes:
        """Close the open block, if any; thinking is signed."""
        if self._open is None:
            return b""
        signed = self._open == "thinking"
        events = self._delta("signature_delta", signature=signature) if signed else b""
        self._open = None
        return events + self._stop()

    def _block(self, block: dict[str, Any]) -> bytes:
        return self._start(block) + self._stop()

    def _tool_use(self, call: ToolCall) -> bytes:
        block = tool_use(call)
        arguments = json.dumps(block["input"])
        opened = self._start(block | {"input": {}})
        return opened + self._delta("input_json_delta", partial_json=arguments) + self._stop()

    def _start(self, block: dict[str, Any]) -> bytes:
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, kind: str, **piece: str) -> bytes:
        return _event("content_block_delta", index=self._index, delta={"type": kind, **piece})

    def _stop(self) -> bytes:
        events = _event("content_block_stop", index=self._index)
        self._index += 1
        return events


def _event(kind: str, **members: Any) -> bytes:
    return _encode_event({"type": kind, **members})


def _encode_event(event: dict[str, Any]) -> bytes:
    """Encode as ASCII: some clients take Unicode line separators for line ends."""
    data = json.dumps(event, separators=(",", ":"))
    return f"event: {event['type']}\ndata: {data}\n\n".encode()
