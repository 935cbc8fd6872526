"""What a whole message and a streamed one tell alike: ids, blocks, why it ended, usage, errors.

Counts that are not known are left out where Anthropic's format allows it, and are 0 where it
demands a number; the run itself keeps unknown and none apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, Literal

from podium.core.request import Effort, Finish, Thinking, ToolCall
from podium.core.usage import UNKNOWN_USAGE, Usage
from podium.server.api_error import ApiError, Reason
from podium.server.dialects.content import decode_thinking, encode_thinking
from podium.server.dialects.fields import Fields, text
from podium.server.dialects.request import ApiRequest, ApiResponse, id_stem

SHOWN: Final = "podium.shown"
"""Signs a block with nothing sealed in it: some clients drop thinking without a signature."""

LOW_THINKING: Final = 4_096
HIGH_THINKING: Final = 16_384
"""Tokens: a budget for thinking below the first is low effort, from the second on high."""


def thinking_block(thinking: tuple[Thinking, ...], *, in_words: bool) -> dict[str, Any]:
    """A block that shows the thinking, or only keeps it."""
    words = "\n\n".join(part.text for part in thinking if part.text) if in_words else ""
    return {"type": "thinking", "thinking": words, "signature": encode_thinking(thinking) or SHOWN}


def redacted_block(sealed: str) -> dict[str, Any]:
    """A block that holds a seal and shows nothing."""
    return {"type": "redacted_thinking", "data": sealed}


def read_thinking_block(block: Fields) -> tuple[Thinking, ...]:
    """What a `thinking` or `redacted_thinking` block holds for the model that thought it."""
    if block.values.get("type") == "thinking":
        block.only(("type", "thinking", "signature"))
        block.required("thinking", text)
        return decode_thinking(block.required("signature", text), block.at("signature"))
    block.only(("type", "data"))
    return decode_thinking(block.required("data", text), block.at("data"))


def thinking_effort(tokens: int | None) -> Effort | None:
    """The effort that a budget for thinking stands for."""
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
    }
)

_ERROR_TYPE: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        "invalid": "invalid_request_error",
        "unauthenticated": "authentication_error",
        "forbidden": "permission_error",
        "not_found": "not_found_error",
        "conflict": "conflict_error",
        "too_large": "request_too_large",
        "too_long": "invalid_request_error",
        "blocked": "invalid_request_error",
        "out_of_budget": "billing_error",
        "rate_limited": "rate_limit_error",
        "overloaded": "overloaded_error",
        "upstream": "api_error",
        "failed": "api_error",
    }
)

UNREADABLE: Final = "arguments"
"""Where a worker wrote arguments that are no JSON object, they are handed on as text under this
name: the client's tool will object, and the worker can correct itself."""


def message_start(request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
    """A message before anything of it is known."""
    return {
        "id": f"msg_{id_stem(request, answer.id)}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage(answer.usage, answer.orchestration),
    }


def stop_fields(answer: ApiResponse) -> dict[str, Any]:
    """Why the message ended."""
    if answer.tool_calls:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if answer.finish == "stop" and answer.stop_sequence:
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_sequence}
    return {"stop_reason": _STOP_REASON[answer.finish], "stop_sequence": None}


def tool_use(call: ToolCall) -> dict[str, Any]:
    """A block that asks for a tool."""
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": tool_input(call),
    }


def tool_input(call: ToolCall) -> dict[str, Any]:
    """The arguments as the object that Anthropic's format demands."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {UNREADABLE: call.arguments}


def keeps_thinking(request: ApiRequest) -> bool:
    """Whether the client wants thinking back at all, be it without words."""
    if request.shows_reasoning:
        return True
    thinking = request.body.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("display") == "omitted"


def usage(total: Usage, orchestration: Usage) -> dict[str, Any]:
    """Tokens over every call. Here, `input_tokens` is without what the cache read and wrote.

    The conductor's part is told by the names that Fugu has for it, as details of the counts and
    only where a conductor took part: a plain answer has Anthropic's fields alone."""
    cached, written = total.cached_input_tokens, total.cache_write_tokens
    counts: dict[str, Any] = {
        "input_tokens": max((total.input_tokens or 0) - (cached or 0) - (written or 0), 0),
        "output_tokens": total.output_tokens or 0,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
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
    """An error, as a body or as an event."""
    words = str(error)
    if error.field and error.field not in words:
        words = f"{error.field}: {words}"
    told = {"type": _ERROR_TYPE[error.reason], "message": words}
    return {"type": "error", "error": told | _details(error), "request_id": error.request_id}


def _details(error: ApiError) -> dict[str, Any]:
    """The code by which SDKs know to go on without a thread, where one was asked for."""
    if error.field != "thread":
        return {}
    return {"details": {"error_code": "thread_unsupported_request", "unsupported": []}}


Block = Literal["thinking", "text"]

_EMPTY: Final[dict[Block, dict[str, Any]]] = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
}


class AnthropicWriter:
    """Writes one stream."""

    def __init__(self, request: ApiRequest, start: ApiResponse) -> None:
        self._keeps_thinking = keeps_thinking(request)
        self._message = message_start(request, replace(start, usage=UNKNOWN_USAGE))
        self._index = 0
        self._open: Block | None = None
        self._last_thought: Literal["progress", "thinking"] | None = None

    def begin(self) -> bytes:
        """The stream opens. What it will have used is not known yet."""
        return _event("message_start", message=self._message)

    def progress(self, text: str) -> bytes:
        """A line on what is being done."""
        return self._think("progress", f"{text}\n")

    def thinking(self, text: str) -> bytes:
        """A piece of the final worker's thinking."""
        return self._think("thinking", text)

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        if not text:
            return b""
        return self._within("text") + self._delta("text_delta", text=text)

    def keep_alive(self) -> bytes:
        """Nothing new, but the connection lives."""
        return _event("ping")

    def end(self, answer: ApiResponse, rest: str = "") -> bytes:
        """The rest of the words, what has to be handed back, tool calls, why it ended, usage."""
        sealed = encode_thinking(answer.thinking) if self._keeps_thinking else ""
        written = [self.text(rest)]
        if self._open == "thinking":
            written.append(self._close(sealed or SHOWN))
        else:
            written.append(self._close())
            if sealed:
                written.append(self._block(redacted_block(sealed)))
        if not answer.text and not answer.tool_calls:
            written.append(self._block(_EMPTY["text"]))
        written.extend(self._tool_use(call) for call in answer.tool_calls)
        counts = usage(answer.usage, answer.orchestration)
        written.append(_event("message_delta", delta=stop_fields(answer), usage=counts))
        written.append(_event("message_stop"))
        return b"".join(written)

    def fail(self, error: ApiError) -> bytes:
        """The error event, after which nothing comes."""
        return _written(anthropic_error(error))

    def _think(self, kind: Literal["progress", "thinking"], text: str) -> bytes:
        if not text:
            return b""
        opened = self._within("thinking")
        if self._last_thought not in (None, kind):
            text = f"\n{text}"  # so that the lines on progress stand apart from the thinking
        self._last_thought = kind
        return opened + self._delta("thinking_delta", thinking=text)

    def _within(self, kind: Block) -> bytes:
        """Whatever it takes for the block that is open to be of this kind."""
        if self._open == kind:
            return b""
        closed = self._close()
        self._open, self._last_thought = kind, None
        return closed + self._start(_EMPTY[kind])

    def _close(self, signature: str = SHOWN) -> bytes:
        """End the block that is open, if there is one; thinking is signed."""
        if self._open is None:
            return b""
        signed = self._open == "thinking"
        written = self._delta("signature_delta", signature=signature) if signed else b""
        self._open = None
        return written + self._stop()

    def _block(self, block: dict[str, Any]) -> bytes:
        """A block that comes as a whole."""
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
        written = _event("content_block_stop", index=self._index)
        self._index += 1
        return written


def _event(kind: str, **members: Any) -> bytes:
    return _written({"type": kind, **members})


def _written(event: dict[str, Any]) -> bytes:
    """An event. Its JSON is ASCII, since some clients take any line end of Unicode for its own."""
    data = json.dumps(event, separators=(",", ":"))
    return f"event: {event['type']}\ndata: {data}\n\n".encode()
