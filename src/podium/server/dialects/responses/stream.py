"""A response as a stream of events, numbered as they go.

Items follow one another: reasoning while there is progress or thinking, a message while there is
text, then a call for each tool. What only the end brings (the sealed state of a model that
thought, long after its reasoning was shown) is a reasoning item of its own.
"""

from __future__ import annotations

import json
from typing import Any

from podium.core.request import ToolCall
from podium.server.api_error import ApiError
from podium.server.dialects.base import Answer, ApiRequest
from podium.server.dialects.responses.output import (
    Item,
    ItemIds,
    Status,
    call_item,
    ending,
    error_told,
    message_item,
    output_text,
    reasoning_item,
    refusal_part,
    response,
    sealed_for,
)
from podium.server.dialects.responses.tools import Spoken, spoken_names


class ResponsesWriter:
    """Writes one response; of its items, at most one is open."""

    def __init__(self, asked: ApiRequest, opening: Answer) -> None:
        self._asked = asked
        self._opening = opening
        self._ids = ItemIds(asked, opening.id)
        self._sequence = 0
        self._done: list[Item] = []
        self._open: _Reasoning | _Message | None = None
        self._has_spoken = False

    def begin(self) -> bytes:
        """The response is made, and goes on."""
        return self._event("response.created", response=self._so_far()) + self.keep_alive()

    def progress(self, text: str) -> bytes:
        """A part of the reasoning's summary by itself."""
        reasoning, opened = self._reasoning()
        shown = self._end_part(reasoning) + self._begin_part(reasoning)
        return opened + shown + self._summary_delta(reasoning, text) + self._end_part(reasoning)

    def thinking(self, text: str) -> bytes:
        """One more piece of a part of the summary."""
        reasoning, opened = self._reasoning()
        began = b"" if reasoning.pieces is not None else self._begin_part(reasoning)
        return opened + began + self._summary_delta(reasoning, text)

    def text(self, text: str) -> bytes:
        """A piece of the message."""
        if not text:
            return b""
        message, opened = self._message()
        message.pieces.append(text)
        delta = self._event("response.output_text.delta", **message.place, delta=text, logprobs=[])
        return opened + delta

    def keep_alive(self) -> bytes:
        """The response goes on. Clients such as Codex end a stream that brings no event for some
        minutes, and to them a comment is none."""
        return self._event("response.in_progress", response=self._so_far())

    def end(self, answer: Answer, rest: str = "") -> bytes:
        """The rest of the words, unless all of them refuse; what is open is closed; then the tools
        to call, and the whole response."""
        refused_in_words = answer.finish == "refused" and bool(answer.text) and not self._has_spoken
        status, reason = ending(answer, refused_in_words=refused_in_words)
        told = b"" if refused_in_words else self.text(rest)
        sent = [told, self._keep_thinking(answer, status), self._close(status)]
        if refused_in_words:
            sent.append(self._refuse(answer.text))
        spoken = spoken_names(self._asked.body)
        sent += [self._call(call, spoken) for call in answer.tool_calls]
        whole = response(self._asked, answer, status=status, output=self._done, incomplete=reason)
        return b"".join(sent) + self._event(f"response.{status}", response=whole)

    def fail(self, refusal: ApiError) -> bytes:
        """The error, and the response that failed, with what there is of it."""
        told = error_told(refusal)
        event = self._event(
            "error", code=told["code"], message=told["message"], param=told["param"]
        )
        unfinished = [self._open.item("incomplete")] if self._open else []
        failed = response(
            self._asked,
            self._opening,
            status="failed",
            output=self._done + unfinished,
            refusal=refusal,
        )
        return event + self._event("response.failed", response=failed)

    def _event(self, kind: str, /, **fields: Any) -> bytes:
        document = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n".encode()

    def _so_far(self) -> Item:
        return response(self._asked, self._opening, status="in_progress", output=list(self._done))

    def _add(self, item: Item) -> bytes:
        return self._event("response.output_item.added", output_index=len(self._done), item=item)

    def _finish(self, item: Item) -> bytes:
        done = self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        return done

    def _reasoning(self) -> tuple[_Reasoning, bytes]:
        """The reasoning that is open, and what opened it."""
        if isinstance(self._open, _Reasoning):
            return self._open, b""
        closed = self._close("completed")
        self._open = _Reasoning(self._ids.new("rs"), len(self._done))
        return self._open, closed + self._add(reasoning_item(self._open.id))

    def _begin_part(self, reasoning: _Reasoning) -> bytes:
        reasoning.pieces = []
        part = {"type": "summary_text", "text": ""}
        return self._event("response.reasoning_summary_part.added", **reasoning.place, part=part)

    def _summary_delta(self, reasoning: _Reasoning, text: str) -> bytes:
        assert reasoning.pieces is not None, "a part has begun"
        reasoning.pieces.append(text)
        return self._event("response.reasoning_summary_text.delta", **reasoning.place, delta=text)

    def _end_part(self, reasoning: _Reasoning) -> bytes:
        if reasoning.pieces is None:
            return b""
        text = "".join(reasoning.pieces)
        place = reasoning.place
        reasoning.parts.append(text)
        reasoning.pieces = None
        part = {"type": "summary_text", "text": text}
        done = self._event("response.reasoning_summary_text.done", **place, text=text)
        return done + self._event("response.reasoning_summary_part.done", **place, part=part)

    def _message(self) -> tuple[_Message, bytes]:
        """The message that is open, and what opened it."""
        if isinstance(self._open, _Message):
            return self._open, b""
        closed = self._close("completed")
        self._has_spoken = True
        self._open = message = _Message(self._ids.new("msg"), len(self._done))
        added = self._add(message_item(message.id, "in_progress"))
        part = self._event("response.content_part.added", **message.place, part=output_text(""))
        return message, closed + added + part

    def _close(self, status: Status, sealed: str = "") -> bytes:
        """End the item that is open; only a message can be incomplete."""
        item, self._open = self._open, None
        match item:
            case _Reasoning():
                return self._end_part(item) + self._finish(item.item(status, sealed))
            case _Message():
                text = "".join(item.pieces)
                done = self._event(
                    "response.output_text.done", **item.place, text=text, logprobs=[]
                )
                part = self._event(
                    "response.content_part.done", **item.place, part=output_text(text)
                )
                return done + part + self._finish(item.item(status))
            case None:
                return b""

    def _keep_thinking(self, answer: Answer, status: Status) -> bytes:
        """The sealed state goes into the reasoning that is open, else into one of its own."""
        sealed = sealed_for(self._asked, answer.thinking)
        if not sealed:
            return b""
        if isinstance(self._open, _Reasoning):
            return self._close("completed", sealed)
        closed = self._close(status)
        item_id = self._ids.new("rs")
        added = self._add(reasoning_item(item_id))
        return closed + added + self._finish(reasoning_item(item_id, sealed=sealed))

    def _refuse(self, text: str) -> bytes:
        """A message that refuses, of which nothing was streamed as an answer."""
        message = _Message(self._ids.new("msg"), len(self._done))
        part = refusal_part(text)
        return b"".join(
            (
                self._add(message_item(message.id, "in_progress")),
                self._event("response.content_part.added", **message.place, part=refusal_part("")),
                self._event("response.refusal.delta", **message.place, delta=text),
                self._event("response.refusal.done", **message.place, refusal=text),
                self._event("response.content_part.done", **message.place, part=part),
                self._finish(message_item(message.id, "completed", part)),
            )
        )

    def _call(self, call: ToolCall, spoken: dict[str, Spoken]) -> bytes:
        item = call_item(call, spoken)
        is_custom = item["type"] == "custom_tool_call"
        kind = "custom_tool_call_input" if is_custom else "function_call_arguments"
        given = "input" if is_custom else "arguments"
        place = {"item_id": item["id"], "output_index": len(self._done)}
        added = self._add(call_item(call, spoken, begun=True))
        delta = b""
        if item[given]:
            delta = self._event(f"response.{kind}.delta", **place, delta=item[given])
        done = self._event(f"response.{kind}.done", **place, **{given: item[given]})
        return added + delta + done + self._finish(item)


class _Reasoning:
    """A reasoning item that is open: the parts that are done, and the pieces of the next one,
    None while there is none."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.parts: list[str] = []
        self.pieces: list[str] | None = None

    @property
    def place(self) -> Item:
        """Where the part that is written stands."""
        return {
            "item_id": self.id,
            "output_index": self.index,
            "summary_index": len(self.parts),
        }

    def item(self, status: Status, sealed: str = "") -> Item:
        """The item as far as it has come; reasoning has no status."""
        unfinished = ["".join(self.pieces)] if self.pieces is not None else []
        return reasoning_item(self.id, self.parts + unfinished, sealed)


class _Message:
    """A message that is open."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.pieces: list[str] = []
        self.place = {"item_id": item_id, "output_index": index, "content_index": 0}

    def item(self, status: Status) -> Item:
        """The item as far as it has come."""
        return message_item(self.id, status, output_text("".join(self.pieces)))
