"""Replies of Google's Gemini API. A stream is a list of replies, each with the next piece."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from podium.errors import BadReply
from podium.providers import faults, parts, wire
from podium.providers.wire import Document, Malformed
from podium.request import Delta, Finish, Reply, Thinking, ToolCall
from podium.usage import UNKNOWN_USAGE, Usage

_FINISH: Final[Mapping[str, Finish]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "LANGUAGE": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "IMAGE_SAFETY": "refused",
    "OTHER": "refused",
}

_BOTCHED: Final = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"}
)
"""The model wrote something that the API itself could not read."""


class ContentAssembly:
    """Puts one reply together. `called` is how error messages name the worker."""

    def __init__(self, model: str, called: str) -> None:
        self._asked_model = model
        self._called = called
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []
        self._signatures: dict[str, str] = {}
        self._usage = UNKNOWN_USAGE
        self._finish: Finish | None = None
        self._model = model

    def feed(self, event: str, document: Document) -> Iterator[Delta]:
        """Take the next chunk, or the whole reply; the pieces of the answer that it brings."""
        if document.get("error"):
            raise faults.from_stream(self._called, document["error"])
        self._model = wire.text(document, "modelVersion") or self._model
        if usage := wire.member(document, "usageMetadata"):
            self._usage = usage_of(usage)
        if blocked := wire.text(wire.member(document, "promptFeedback"), "blockReason"):
            self._finish = "refused"
            self._text.append(f"The prompt was blocked: {blocked}.")
            yield Delta(self._text[-1])
        for candidate in wire.members(document, "candidates")[:1]:
            for part in wire.members(wire.member(candidate, "content"), "parts"):
                yield from self._take(part)
            self._take_end(candidate)

    @property
    def finished(self) -> bool:
        """Whether a chunk has said why the reply ends."""
        return self._finish is not None

    def finish(self) -> Reply:
        """The whole reply; a stream that never said why it ended was broken off."""
        if self._finish is None:
            raise faults.broken_off(self._called)
        return self.whole()

    def whole(self) -> Reply:
        """What has arrived so far, as a reply."""
        if self._finish is None:
            raise Malformed("expected a candidate with a finishReason, got none")
        return Reply(
            text="".join(self._text),
            usage=self._usage,
            finish="tool" if self._calls and self._finish == "stop" else self._finish,
            tool_calls=tuple(self._calls),
            thinking=self._whole_thinking(),
            model=self._model,
        )

    def _take(self, part: Document) -> Iterator[Delta]:
        text = wire.text(part, "text")
        place = ""
        if part.get("thought") is True:
            if text:
                self._thinking.append(text)
                yield Delta(text, "thinking")
        elif call := wire.member(part, "functionCall"):
            place = wire.text(call, "id") or parts.new_call_id()
            arguments = json.dumps(wire.member(call, "args"))
            self._calls.append(ToolCall(place, wire.text(call, "name"), arguments))
        elif text:
            self._text.append(text)
            yield Delta(text)
        if signature := wire.text(part, "thoughtSignature"):
            self._signatures[place] = signature

    def _take_end(self, candidate: Document) -> None:
        reason = wire.text(candidate, "finishReason")
        if reason in _BOTCHED:
            said = wire.text(candidate, "finishMessage") or reason
            raise BadReply(f"{self._called} botched its reply: {said}")
        if reason:
            self._finish = _FINISH.get(reason, "stop")

    def _whole_thinking(self) -> tuple[Thinking, ...]:
        """The signatures by the id of the call that each came with; "" is the words'."""
        opaque = json.dumps(self._signatures) if self._signatures else ""
        if not self._thinking and not opaque:
            return ()
        return (Thinking("".join(self._thinking), opaque, self._asked_model),)


@wire.counted
def usage_of(document: Document) -> Usage:
    """The usage as Podium counts. A zero is left out on this wire, so a missing count is one;
    thoughts are counted beside the candidates, not in them."""

    def count(name: str) -> int:
        return wire.count(document, name) or 0

    return Usage(
        input_tokens=count("promptTokenCount") + count("toolUsePromptTokenCount"),
        output_tokens=count("candidatesTokenCount") + count("thoughtsTokenCount"),
        cached_input_tokens=count("cachedContentTokenCount"),
        reasoning_tokens=count("thoughtsTokenCount"),
        cache_write_tokens=0,
    )
