"""What a Chat Completions client is told in the end: a completion and its usage.

Usage sums every call that the request led to, the conductor's among them. A total that a provider
did not tell is unknown, and so is the sum: `usage` is null then, which the SDK's types allow, for
a number would be made up. An unknown detail is left out. Errors are in `openai`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from podium.core.request import Finish, ToolCall
from podium.server.api_error import ApiError
from podium.server.dialects.base import Answer, ApiRequest, stem_of
from podium.server.dialects.openai import error, usage_details

FINISH_REASONS: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "length",
    "tool": "tool_calls",
    "refused": "content_filter",
}


def identity(asked: ApiRequest, answer: Answer) -> str:
    """The id of a completion, with the beginning of OpenAI's."""
    return f"chatcmpl-{stem_of(asked, answer.id)}"


def completion(asked: ApiRequest, answer: Answer) -> dict[str, Any]:
    """A `chat.completion`."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text if answer.text or not answer.tool_calls else None,
        "refusal": None,
    }
    if asked.shows_reasoning and answer.thinking:
        message["reasoning_content"] = "\n\n".join(part.text for part in answer.thinking)
    if answer.tool_calls:
        message["tool_calls"] = [tool_call(call) for call in answer.tool_calls]
    whole = {
        "id": identity(asked, answer),
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": finish_reason(answer),
            }
        ],
        "usage": usage(answer),
    }
    return whole | repeated(asked)


def repeated(asked: ApiRequest) -> dict[str, Any]:
    """What of the request the response says again."""
    body = asked.body
    told: dict[str, Any] = {}
    if body.get("metadata") is not None:
        told["metadata"] = body["metadata"]
    if body.get("service_tier") is not None:
        told["service_tier"] = "default"
    return told


def tool_call(call: ToolCall) -> dict[str, Any]:
    """A call of one of the client's tools."""
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def finish_reason(answer: Answer) -> str:
    """Why it ended, in OpenAI's words."""
    return "tool_calls" if answer.tool_calls else FINISH_REASONS[answer.finish]


def usage(answer: Answer) -> dict[str, Any] | None:
    """The tokens of everything that was done, or None where they are not all known."""
    total = answer.usage
    if total.input_tokens is None or total.output_tokens is None:
        return None
    details = usage_details(total, answer.orchestration)
    return {
        "prompt_tokens": total.input_tokens,
        "completion_tokens": total.output_tokens,
        "total_tokens": total.input_tokens + total.output_tokens,
        "prompt_tokens_details": details.read,
        "completion_tokens_details": details.written,
    }


DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment of the event stream: clients read over it."""

_GOES_ON: Final = b',"logprobs":null,"finish_reason":null}]'


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _encoded(value: object) -> bytes:
    return _encode(value).encode()


class ChatWriter:
    """One stream of `chat.completion.chunk`."""

    def __init__(self, asked: ApiRequest, opening: Answer) -> None:
        self._shows_usage = asked.shows_usage
        self._common: dict[str, Any] = {
            "id": identity(asked, opening),
            "object": "chat.completion.chunk",
            "created": opening.created,
            "model": opening.model,
        }
        tier = repeated(asked).get("service_tier")
        if tier is not None:
            self._common["service_tier"] = tier
        head = _encoded(self._common)[:-1]
        self._before = b"data: " + head + b',"choices":[{"index":0,"delta":'
        self._after = (b',"usage":null}' if asked.shows_usage else b"}") + b"\n\n"

    def begin(self) -> bytes:
        """Who speaks."""
        return self._delta({"role": "assistant", "content": ""})

    def progress(self, text: str) -> bytes:
        """A line on what is being done."""
        return self._delta({"reasoning_content": f"{text}\n"})

    def thinking(self, text: str) -> bytes:
        """A piece of the final worker's thinking."""
        return self._delta({"reasoning_content": text})

    def text(self, text: str) -> bytes:
        """A piece of the answer."""
        return self._delta({"content": text})

    def keep_alive(self) -> bytes:
        """A comment, which is no chunk."""
        return KEEP_ALIVE

    def end(self, answer: Answer, rest: str = "") -> bytes:
        """The rest of the words; tool calls whole, each in a chunk of its own; why it ended; usage,
        if asked for."""
        told = self.text(rest) if rest else b""
        calls = b"".join(
            self._delta({"tool_calls": [{"index": index} | tool_call(call)]})
            for index, call in enumerate(answer.tool_calls)
        )
        return told + calls + self._finished(answer) + self._used(answer) + DONE

    def fail(self, refusal: ApiError) -> bytes:
        """The error in place of a chunk: SDKs raise it."""
        return b"data: " + _encoded({"error": error(refusal)}) + b"\n\n" + DONE

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return self._before + _encoded(delta) + _GOES_ON + self._after

    def _finished(self, answer: Answer) -> bytes:
        ending = _encoded(finish_reason(answer))
        return self._before + b'{},"logprobs":null,"finish_reason":' + ending + b"}]" + self._after

    def _used(self, answer: Answer) -> bytes:
        if not self._shows_usage:
            return b""
        chunk = self._common | {"choices": [], "usage": usage(answer)}
        return b"data: " + _encoded(chunk) + b"\n\n"
