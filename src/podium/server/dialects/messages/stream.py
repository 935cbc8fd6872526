"""A message being streamed, in Anthropic's events.

    message_start, then for each block of the content
        content_block_start, content_block_delta …, content_block_stop
    then message_delta and message_stop; ping anywhere between; or error, and nothing after it

Blocks follow each other and never overlap: progress and thinking as one block, the text as the
next, what has to be handed back (see `thinking`), and the calls of tools.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final, Literal

from podium.request import ToolCall
from podium.server.dialects.base import Answer, Asked
from podium.server.dialects.messages import answer as told
from podium.server.dialects.messages.thinking import SHOWN, sealed_block
from podium.server.dialects.seals import seal
from podium.server.refusal import Refusal
from podium.usage import UNKNOWN_USAGE

Block = Literal["thinking", "text"]

_EMPTY: Final[dict[Block, dict[str, Any]]] = {
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "text": {"type": "text", "text": ""},
}


class MessageWriter:
    """Writes one stream."""

    def __init__(self, asked: Asked, opening: Answer) -> None:
        self._keeps_thinking = told.keeps_thinking(asked)
        self._message = told.opening(asked, replace(opening, usage=UNKNOWN_USAGE))
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

    def end(self, answer: Answer, rest: str = "") -> bytes:
        """The rest of the words, what has to be handed back, tool calls, why it ended, usage."""
        sealed = seal(answer.thinking) if self._keeps_thinking else ""
        written = [self.text(rest)]
        if self._open == "thinking":
            written.append(self._close(sealed or SHOWN))
        else:
            written.append(self._close())
            if sealed:
                written.append(self._block(sealed_block(sealed)))
        if not answer.text and not answer.tool_calls:
            written.append(self._block(_EMPTY["text"]))
        written.extend(self._tool_use(call) for call in answer.tool_calls)
        counts = told.usage(answer.usage, answer.orchestration)
        written.append(_event("message_delta", delta=told.ending(answer), usage=counts))
        written.append(_event("message_stop"))
        return b"".join(written)

    def fail(self, refusal: Refusal) -> bytes:
        """The error event, after which nothing comes."""
        return _written(told.error(refusal))

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
        block = told.tool_use(call)
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
