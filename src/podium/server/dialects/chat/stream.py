"""A Chat Completions stream, chunk by chunk.

Every chunk is the same but for its delta, so all that stays is encoded once. Progress and thinking
come as `reasoning_content`, which the SDKs hand on as it is; a line of progress ends with a line
break. A stream ends with `[DONE]`, after an error as well.
"""

from __future__ import annotations

import json
from typing import Any, Final

from podium.server.dialects.base import Answer, Asked
from podium.server.dialects.chat.answer import (
    finish_reason,
    identity,
    repeated,
    tool_call,
    usage,
)
from podium.server.dialects.openai import error
from podium.server.refusal import Refusal

DONE: Final = b"data: [DONE]\n\n"
KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment of the event stream: clients read over it."""

_GOES_ON: Final = b',"logprobs":null,"finish_reason":null}]'


_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


def _encoded(value: object) -> bytes:
    return _encode(value).encode()


class ChatWriter:
    """One stream of `chat.completion.chunk`."""

    def __init__(self, asked: Asked, opening: Answer) -> None:
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

    def fail(self, refusal: Refusal) -> bytes:
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
