"""Write responses of the Responses API, whole or streamed.

Ids derive from the run and the request, so that a repeated response is the same. Usage without
a count of input or output is null; details that a provider did not report are 0.

In a stream, items follow one another: reasoning, the message, a call for each tool. Opaque thinking
that only the end brings is a reasoning item of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from podium.core.request import Delta, Thinking, ToolCall, Usage
from podium.server.api_error import ApiError, Reason
from podium.server.dialects.content import encode_thinking, openai_error, usage_details
from podium.server.dialects.request import ApiRequest, ApiResponse, unsent_calls
from podium.server.dialects.responses_items import (
    Item,
    ItemIds,
    Status,
    answer_text,
    call_item,
    client_tool_names,
    message_item,
    output_text,
    reasoning_item,
    refusal_part,
    response_id,
)

ENCRYPTED: Final = "reasoning.encrypted_content"
"""A value of `include`: reasoning items carry the model's opaque thinking."""

CONTENT_FILTER: Final = "content_filter"

_ECHOED: Final = (
    "instructions",
    "max_output_tokens",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "temperature",
    "top_p",
    "user",
)
"""Request fields that the response repeats; null if absent."""

STORED_REQUEST_FIELDS: Final = (
    *_ECHOED,
    *("model", "background", "include", "metadata", "parallel_tool_calls", "reasoning"),
    *("text", "tool_choice", "tools", "truncation"),
)
"""Request fields that a stored response is rebuilt from."""

_ERROR_CODES: Final[Mapping[Reason, str]] = {
    "invalid": "invalid_prompt",
    "too_long": "invalid_prompt",
    "blocked": "invalid_prompt",
    "unprocessable": "invalid_prompt",
    "rate_limited": "rate_limit_exceeded",
}
"""Codes of failed responses; all others are `server_error`."""


def encrypted_content(request: ApiRequest, thinking: tuple[Thinking, ...]) -> str:
    """Return the opaque thinking if the client asked for it, else an empty string."""
    if ENCRYPTED not in (request.raw_body.get("include") or ()):
        return ""
    return encode_thinking(part for part in thinking if part.opaque)


def response_status(answer: ApiResponse, *, is_text_refusal: bool) -> tuple[Status, str | None]:
    """Return the status, and why the response is incomplete."""
    if answer.finish == "length":
        return "incomplete", "max_output_tokens"
    if answer.finish == "refused" and not is_text_refusal:
        return "incomplete", CONTENT_FILTER
    return "completed", None


def response_object(
    request: ApiRequest,
    answer: ApiResponse,
    *,
    status: Status,
    output: list[Item],
    incomplete_reason: str | None = None,
    error: ApiError | None = None,
) -> Item:
    """Return the response object; usage only once it has ended."""
    body = request.raw_body
    text, reasoning = body.get("text") or {}, body.get("reasoning") or {}
    summary = reasoning.get("summary") or reasoning.get("generate_summary")
    ended = status in ("completed", "incomplete")
    return {
        "id": response_id(answer.id),
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": _failure(error),
        "incomplete_details": {"reason": incomplete_reason} if incomplete_reason else None,
        "model": answer.model,
        "output": output,
        "usage": response_usage(answer.usage, answer.orchestration) if ended else None,
        **{name: body.get(name) for name in _ECHOED},
        "background": body.get("background") is True,
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "reasoning": {"effort": reasoning.get("effort"), "summary": summary},
        "service_tier": "default",
        "store": request.store,
        "text": {
            "format": text.get("format") or {"type": "text"},
            "verbosity": text.get("verbosity") or "medium",
        },
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": body.get("top_logprobs") or 0,
        "truncation": body.get("truncation") or "auto",
    }


def response_usage(used: Usage, orchestration: Usage) -> Item | None:
    """Return the usage of all calls; None if a count is unknown."""
    if used.input_tokens is None or used.output_tokens is None:
        return None
    details = usage_details(used, orchestration)
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0} | details.input,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0} | details.output,
        "total_tokens": used.input_tokens + used.output_tokens,
    }


def responses_error(error: ApiError) -> Item:
    """Return the `error` object; what the server calls messages is `input` in this dialect."""
    body = openai_error(error)
    if error.field == "messages":
        body["param"] = "input"
    return body


def _failure(error: ApiError | None) -> Item | None:
    if error is None:
        return None
    return {"code": _ERROR_CODES.get(error.reason, "server_error"), "message": str(error)}


class ResponsesWriter:
    """Writes one response; at most one item is open."""

    def __init__(self, request: ApiRequest, opening: ApiResponse) -> None:
        self._asked = request
        self._opening = opening
        self._ids = ItemIds(opening.id)
        self._sequence = 0
        self._done: list[Item] = []
        self._open: _Reasoning | _Message | _Call | None = None
        self._calls = 0
        self._client_names = client_tool_names(request.raw_body)
        self._has_text = False
        self._logprobs: list[Item] = []

    def begin(self) -> bytes:
        return (
            self._event("response.created", response=self._unfinished_response())
            + self.keep_alive()
        )

    def progress(self, text: str) -> bytes:
        """Write a part of the reasoning summary."""
        reasoning, opened = self._open_reasoning()
        shown = self._end_part(reasoning) + self._begin_part(reasoning)
        return opened + shown + self._summary_delta(reasoning, text) + self._end_part(reasoning)

    def thinking(self, text: str) -> bytes:
        """Write a piece of a part of the reasoning summary."""
        reasoning, opened = self._open_reasoning()
        began = b"" if reasoning.pieces is not None else self._begin_part(reasoning)
        return opened + began + self._summary_delta(reasoning, text)

    def text(self, text: str) -> bytes:
        if not text:
            return b""
        message, opened = self._open_message()
        message.pieces.append(text)
        delta = self._event(
            "response.output_text.delta", **message.position, delta=text, logprobs=[]
        )
        return opened + delta

    def streams_call(self, name: str) -> bool:
        """True unless the call must be rewritten, or opaque thinking comes before it at the end."""
        tool = self._client_names.get(name)
        keeps_thinking = ENCRYPTED in (self._asked.raw_body.get("include") or ())
        return not keeps_thinking and (tool is None or not tool.is_custom)

    def tool_call(self, delta: Delta) -> bytes:
        events = b""
        if delta.call == self._calls:
            self._calls += 1
            events = self._close("completed")
            empty = ToolCall(delta.id, delta.name, "")
            begun = call_item(self._ids, empty, self._client_names)
            self._open = _Call(begun, len(self._done))
            events += self._add(self._open.item("in_progress"))
        call = self._open
        assert isinstance(call, _Call), "a piece belongs to the call that is open"
        if delta.text:
            call.pieces.append(delta.text)
            kind = "response.function_call_arguments.delta"
            events += self._event(kind, **call.position, delta=delta.text)
        return events

    def keep_alive(self) -> bytes:
        """Write `response.in_progress`: Codex ends streams without events, and skips comments."""
        return self._event("response.in_progress", response=self._unfinished_response())

    def end(self, answer: ApiResponse, rest: str = "", calls: Sequence[str] = ()) -> bytes:
        """Close the open item, then write tool calls and the whole response."""
        rests = [*unsent_calls(answer.tool_calls, calls)]
        self._logprobs = answer_text(answer)["logprobs"]
        is_text_refusal = answer.finish == "refused" and bool(answer.text) and not self._has_text
        status, reason = response_status(answer, is_text_refusal=is_text_refusal)
        called = b"".join(self.tool_call(rest) for rest in rests if rest.call < len(calls))
        text = b"" if is_text_refusal else self.text(rest)
        sent = [called, text, self._keep_thinking(answer, status), self._close(status)]
        if is_text_refusal:
            sent.append(self._refuse(answer.text))
        sent += [self._whole_call(rest) for rest in rests if rest.call >= len(calls)]
        whole = response_object(
            self._asked, answer, status=status, output=self._done, incomplete_reason=reason
        )
        return b"".join(sent) + self._event(f"response.{status}", response=whole)

    def fail(self, error: ApiError) -> bytes:
        body = responses_error(error)
        event = self._event(
            "error", code=body["code"], message=body["message"], param=body["param"]
        )
        unfinished = [self._open.item("incomplete")] if self._open else []
        failed = response_object(
            self._asked,
            self._opening,
            status="failed",
            output=self._done + unfinished,
            error=error,
        )
        return event + self._event("response.failed", response=failed)

    def _event(self, kind: str, /, **fields: Any) -> bytes:
        document = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n".encode()

    def _unfinished_response(self) -> Item:
        return response_object(
            self._asked, self._opening, status="in_progress", output=list(self._done)
        )

    def _add(self, item: Item) -> bytes:
        return self._event("response.output_item.added", output_index=len(self._done), item=item)

    def _finish(self, item: Item) -> bytes:
        done = self._event("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        return done

    def _open_reasoning(self) -> tuple[_Reasoning, bytes]:
        if isinstance(self._open, _Reasoning):
            return self._open, b""
        closed = self._close("completed")
        self._open = _Reasoning(self._ids.new("rs"), len(self._done))
        return self._open, closed + self._add(reasoning_item(self._open.id))

    def _begin_part(self, reasoning: _Reasoning) -> bytes:
        reasoning.pieces = []
        part = {"type": "summary_text", "text": ""}
        return self._event("response.reasoning_summary_part.added", **reasoning.position, part=part)

    def _summary_delta(self, reasoning: _Reasoning, text: str) -> bytes:
        assert reasoning.pieces is not None, "a part has begun"
        reasoning.pieces.append(text)
        return self._event(
            "response.reasoning_summary_text.delta", **reasoning.position, delta=text
        )

    def _end_part(self, reasoning: _Reasoning) -> bytes:
        if reasoning.pieces is None:
            return b""
        text = "".join(reasoning.pieces)
        position = reasoning.position
        reasoning.parts.append(text)
        reasoning.pieces = None
        part = {"type": "summary_text", "text": text}
        done = self._event("response.reasoning_summary_text.done", **position, text=text)
        return done + self._event("response.reasoning_summary_part.done", **position, part=part)

    def _open_message(self) -> tuple[_Message, bytes]:
        if isinstance(self._open, _Message):
            return self._open, b""
        closed = self._close("completed")
        self._has_text = True
        self._open = message = _Message(self._ids.new("msg"), len(self._done))
        added = self._add(message_item(message.id, "in_progress"))
        part = self._event("response.content_part.added", **message.position, part=output_text(""))
        return message, closed + added + part

    def _close(self, status: Status, opaque: str = "") -> bytes:
        """Close the open item; only a message can be incomplete."""
        item, self._open = self._open, None
        match item:
            case _Call():
                call = item.item("completed")
                kind, arguments = "response.function_call_arguments.done", call["arguments"]
                return self._event(kind, **item.position, arguments=arguments) + self._finish(call)
            case _Reasoning():
                return self._end_part(item) + self._finish(item.item(status, opaque))
            case _Message():
                part = output_text("".join(item.pieces)) | {"logprobs": self._logprobs}
                ended = {name: part[name] for name in ("text", "logprobs")}
                done = self._event("response.output_text.done", **item.position, **ended)
                done += self._event("response.content_part.done", **item.position, part=part)
                return done + self._finish(message_item(item.id, status, part))
            case None:
                return b""

    def _keep_thinking(self, answer: ApiResponse, status: Status) -> bytes:
        """Write opaque thinking into the open reasoning item, or into a new one."""
        opaque = encrypted_content(self._asked, answer.thinking)
        if not opaque:
            return b""
        if isinstance(self._open, _Reasoning):
            return self._close("completed", opaque)
        closed = self._close(status)
        item_id = self._ids.new("rs")
        added = self._add(reasoning_item(item_id))
        return closed + added + self._finish(reasoning_item(item_id, opaque=opaque))

    def _refuse(self, text: str) -> bytes:
        """Write a refusal, of which nothing was streamed."""
        message = _Message(self._ids.new("msg"), len(self._done))
        part = refusal_part(text)
        return b"".join(
            (
                self._add(message_item(message.id, "in_progress")),
                self._event(
                    "response.content_part.added", **message.position, part=refusal_part("")
                ),
                self._event("response.refusal.delta", **message.position, delta=text),
                self._event("response.refusal.done", **message.position, refusal=text),
                self._event("response.content_part.done", **message.position, part=part),
                self._finish(message_item(message.id, "completed", part)),
            )
        )

    def _whole_call(self, delta: Delta) -> bytes:
        """Write a call of which nothing was streamed."""
        tool = self._client_names.get(delta.name)
        if tool is None or not tool.is_custom:
            return self.tool_call(delta) + self._close("completed")
        self._calls += 1
        call = ToolCall(delta.id, delta.name, delta.text)
        item = call_item(self._ids, call, self._client_names)
        position = {"item_id": item["id"], "output_index": len(self._done)}
        written, kind = item["input"], "response.custom_tool_call_input"
        added = self._add(item | {"input": ""})
        piece = self._event(f"{kind}.delta", **position, delta=written) if written else b""
        done = self._event(f"{kind}.done", **position, input=written)
        return added + piece + done + self._finish(item)


class _Reasoning:
    """An open reasoning item: finished parts, and the pieces of the open part, if any."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.parts: list[str] = []
        self.pieces: list[str] | None = None

    @property
    def position(self) -> Item:
        return {
            "item_id": self.id,
            "output_index": self.index,
            "summary_index": len(self.parts),
        }

    def item(self, status: Status, opaque: str = "") -> Item:
        unfinished = ["".join(self.pieces)] if self.pieces is not None else []
        return reasoning_item(self.id, self.parts + unfinished, opaque)


class _Message:
    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.pieces: list[str] = []
        self.position = {"item_id": item_id, "output_index": index, "content_index": 0}

    def item(self, status: Status) -> Item:
        return message_item(self.id, status, output_text("".join(self.pieces)))


class _Call:
    def __init__(self, empty: Item, index: int) -> None:
        self._empty = empty
        self.pieces: list[str] = []
        self.position = {"item_id": empty["id"], "output_index": index}

    def item(self, status: Status) -> Item:
        return self._empty | {"arguments": "".join(self.pieces), "status": status}
