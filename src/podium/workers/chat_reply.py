"""Replies of the Chat Completions API, whole or streamed.

A chunk and a whole reply have the same shape, with `delta` or `message`, so `ChatReplyParser` reads
both. It accepts what real servers send: usage in the last chunk, in each or nowhere, thinking under
several names, tool calls without an index or an id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Finish, Reply, Request, Thinking, ToolCall
from podium.core.usage import UNKNOWN_USAGE, Usage
from podium.workers import errors, fields, translation
from podium.workers.chat import ChatDialect
from podium.workers.fields import Document, MalformedReply

_FINISH: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool",
    "function_call": "tool",
    "content_filter": "refused",
}

_THINKING_FIELDS: Final = ("reasoning_content", "reasoning")

_GROWING: Final = ("text", "summary", "data")
"""Fields of a reasoning detail that arrive in fragments."""


def read_reply(
    document: Document, request: Request, profile: WorkerProfile, dialect: ChatDialect, label: str
) -> Reply:
    """Parse a whole reply."""
    parser = ChatReplyParser(request, profile, dialect, label)
    for _ in parser.feed("", document):
        pass
    return parser.to_reply()


@dataclass(slots=True)
class _PartialCall:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class ChatReplyParser:
    """Parses one reply; `label` names the worker in errors."""

    def __init__(
        self, request: Request, profile: WorkerProfile, dialect: ChatDialect, label: str
    ) -> None:
        self._profile = profile
        self._dialect = dialect
        self._label = label
        self._text: list[str] = []
        self._unsent_prefill = (
            request.prefill
            if translation.has_prefill(request, profile) and not dialect.echoes_prefill
            else ""
        )
        self._thinking: list[str] = []
        self._details: list[Document] = []
        self._calls: list[_PartialCall] = []
        self._call_at: dict[int | str, _PartialCall] = {}
        self._usage = UNKNOWN_USAGE
        self._finish: Finish | None = None
        self._stops = request.stop
        self._stop_sequence = ""
        self._refused = False
        self._model = profile.model

    def feed(self, event: str, document: Document) -> Iterator[Delta]:
        """Take the next chunk, or the whole reply, and yield its deltas."""
        if document.get("error"):
            raise errors.error_from_stream(self._label, document["error"])
        self._model = fields.get_text(document, "model") or self._model
        self._note_usage(document)
        for choice in fields.get_objects(document, "choices")[:1]:
            self._note_usage(choice)
            yield from self._take(
                fields.get_object(choice, "delta") or fields.get_object(choice, "message")
            )
            if reason := fields.get_text(choice, "finish_reason"):
                if reason == "error":
                    raise errors.error_from_stream(self._label, choice.get("error"))
                # A server's own word for a normal end ("eos", "end_turn") is a stop.
                self._finish = _FINISH.get(reason, "stop")
                if choice.get("stop_reason") in self._stops:  # vLLM's; it may also be a token
                    self._stop_sequence = fields.get_text(choice, "stop_reason")

    @property
    def is_complete(self) -> bool:
        """False: usage may follow the finish reason until the stream ends."""
        return False

    def finish(self) -> Reply:
        """Return the reply; raise if the stream ended without a finish reason."""
        if self._finish is None:
            raise errors.truncated_stream(self._label)
        return self.to_reply()

    def to_reply(self) -> Reply:
        """Return what has arrived as a reply."""
        calls = tuple(
            ToolCall(
                call.id or translation.new_call_id(), call.name, "".join(call.arguments) or "{}"
            )
            for call in self._calls
        )
        if self._finish is None and not (self._text or calls or self._thinking):
            raise MalformedReply("expected choices with a message, got none")
        finish = "refused" if self._refused else self._finish or "stop"
        return Reply(
            text=self._unsent_prefill + "".join(self._text),
            usage=self._usage,
            finish="tool" if calls and finish == "stop" else finish,
            tool_calls=calls,
            thinking=self._whole_thinking(),
            model=self._model,
            stop_sequence=self._stop_sequence,
        )

    def _take(self, delta: Document) -> Iterator[Delta]:
        thinking = next(
            (found for name in _THINKING_FIELDS if (found := fields.get_text(delta, name))), ""
        )
        text, more_thinking = _split(delta)
        if refusal := fields.get_text(delta, "refusal"):
            text, self._refused = text + refusal, True
        if thinking := thinking + more_thinking:
            self._thinking.append(thinking)
            yield Delta(thinking, "thinking")
        self._details.extend(fields.get_objects(delta, "reasoning_details"))
        if text:
            text, self._unsent_prefill = self._unsent_prefill + text, ""
            self._text.append(text)
            yield Delta(text)
        for fragment in fields.get_objects(delta, "tool_calls"):
            self._take_call(fragment)

    def _take_call(self, fragment: Document) -> None:
        function = fields.get_object(fragment, "function")
        id_, name = fields.get_text(fragment, "id"), fields.get_text(function, "name")
        call = self._call_of(fields.get_count(fragment, "index"), id_, name)
        call.id = call.id or id_
        call.name = call.name or name
        whole = function.get("arguments")
        call.arguments.append(
            json.dumps(whole)
            if isinstance(whole, Mapping)
            else fields.get_text(function, "arguments")
        )

    def _call_of(self, index: int | None, id_: str, name: str) -> _PartialCall:
        """Return the tool call that a fragment belongs to.

        Some servers send no index, or the same one for every call; then a new id or a name starts a
        new call.
        """
        place = id_ if index is None else index
        if place != "":
            call = self._call_at.get(place)
        else:
            call = self._calls[-1] if self._calls and not name else None
        if call is None or (id_ and call.id and id_ != call.id):
            call = _PartialCall()
            self._calls.append(call)
            self._call_at[place] = call
        return call

    def _note_usage(self, document: Document) -> None:
        """Keep the latest counts: they are cumulative."""
        found = fields.get_object(document, "usage") or fields.get_object(
            fields.get_object(document, "x_groq"), "usage"
        )
        if found:
            self._usage = usage_of(found, self._dialect)

    def _whole_thinking(self) -> tuple[Thinking, ...]:
        opaque = json.dumps(merged_details(self._details)) if self._details else ""
        if not self._thinking and not opaque:
            return ()
        return (Thinking("".join(self._thinking), opaque, self._profile.model),)


@fields.lenient_usage
def usage_of(document: Document, dialect: ChatDialect) -> Usage:
    """Convert the usage object; counts that were not sent stay unknown."""
    prompt = fields.get_object(document, "prompt_tokens_details")
    completion = fields.get_object(document, "completion_tokens_details")
    inputs = fields.get_count(document, "prompt_tokens")
    outputs = fields.get_count(document, "completion_tokens")
    reasoning = fields.get_count(completion, "reasoning_tokens")
    cached = fields.get_count(prompt, "cached_tokens")
    if cached is None:
        cached = fields.get_count(document, "prompt_cache_hit_tokens")
    if (
        reasoning
        and inputs is not None
        and outputs is not None
        and fields.get_count(document, "total_tokens") == inputs + outputs + reasoning
    ):
        outputs += reasoning  # this server counts thinking beside the completion, not in it
    return Usage(
        input_tokens=inputs,
        output_tokens=outputs,
        cached_input_tokens=cached,
        reasoning_tokens=reasoning,
        cache_write_tokens=fields.get_count(prompt, "cache_write_tokens")
        if dialect.cache_writes
        else 0,
    )


def merged_details(details: list[Document]) -> list[dict[str, Any]]:
    """Join the fragments of streamed reasoning details."""
    blocks: list[list[Document]] = []
    for detail in details:
        last = blocks[-1][-1] if blocks else {}
        numbered = detail.get("index") is not None
        if numbered and all(last.get(key) == detail.get(key) for key in ("index", "type")):
            blocks[-1].append(detail)
        else:
            blocks.append([detail])
    return [_merged(block) for block in blocks]


def _merged(fragments: list[Document]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for key in dict.fromkeys(key for fragment in fragments for key in fragment):
        values = [fragment[key] for fragment in fragments if fragment.get(key) is not None]
        if key in _GROWING and all(isinstance(value, str) for value in values):
            whole[key] = "".join(values)
        else:
            whole[key] = values[-1] if values else None
    return whole


def _split(delta: Document) -> tuple[str, str]:
    """Split content, a text or a list of parts, into text and thinking."""
    if not isinstance(delta.get("content"), list):
        return fields.get_text(delta, "content"), ""
    words, thoughts = "", ""
    for part in fields.get_objects(delta, "content"):
        if part.get("type") == "thinking":
            thoughts += "".join(
                fields.get_text(item, "text") for item in fields.get_objects(part, "thinking")
            )
        else:
            words += fields.get_text(part, "text")
    return words, thoughts
