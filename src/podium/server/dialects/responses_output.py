"""What the Responses dialect says: the response object and the items in it.

    response_id("run_1f") == "resp_1f"      and run_id("resp_1f") == "run_1f"
    reasoning_item, message_item, call_item  one item of `output` each
    response                                 the object around them

Everything is derived from the run and the request, so that the same answer is told in the same
words, whole or streamed. Two places where the dialect cannot say what we know: usage without a
count of input or output is null, and details that a provider did not give count 0 there; the run
itself keeps unknown apart from zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from podium.core.request import Thinking, ToolCall
from podium.core.usage import Usage
from podium.server.api_error import ApiError, Reason, invalid
from podium.server.dialects.content import encode_thinking
from podium.server.dialects.openai import openai_error, usage_details
from podium.server.dialects.request import ApiRequest, ApiResponse, id_stem
from podium.server.dialects.responses_tools import INPUT, ClientToolName, client_tool_names

Item = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete", "failed"]

ENCRYPTED: Final = "reasoning.encrypted_content"
"""In `include`: reasoning items carry what the model needs to go on from its own thinking."""

CONTENT_FILTER: Final = "content_filter"

_RESPONSE_ID: Final = re.compile(r"resp_([A-Za-z0-9_-]{1,128})")

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
"""What a response repeats of its request as it came; null where nothing came."""

_ERROR_CODES: Final[Mapping[Reason, str]] = {
    "invalid": "invalid_prompt",
    "too_long": "invalid_prompt",
    "blocked": "invalid_prompt",
    "rate_limited": "rate_limit_exceeded",
}
"""The dialect has few codes for a response that failed; all others are `server_error`."""


def response_id(run_id: str) -> str:
    """The response's id for a run's."""
    return f"resp_{run_id.removeprefix('run_')}"


def run_id(response_id: str, field: str = "response_id") -> str:
    """The run's id for a response's; raises `ApiError` where it cannot be one."""
    matched = _RESPONSE_ID.fullmatch(response_id)
    if matched is None:
        raise invalid(
            field, f"{field}: expected the id of a response, such as resp_0123456789abcdef"
        )
    return f"run_{matched[1]}"


class ItemIds:
    """Ids of the items of one response: the same for the same run and request. Clients collect
    the items of all turns by id."""

    def __init__(self, request: ApiRequest, answer_id: str) -> None:
        self._stem = id_stem(request, answer_id)
        self._made: dict[str, int] = {}

    def new(self, kind: Literal["msg", "rs"]) -> str:
        """The id of the next message or reasoning item."""
        count = self._made[kind] = self._made.get(kind, 0) + 1
        return f"{kind}_{self._stem}" + (f"_{count}" if count > 1 else "")


def output_text(text: str) -> Item:
    """The words of an answer, as a part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def refusal_part(text: str) -> Item:
    """The words in which a worker refused, as a part of a message."""
    return {"type": "refusal", "refusal": text}


def message_item(item_id: str, status: Status, *content: Item) -> Item:
    """A message of the assistant."""
    return {
        "type": "message",
        "id": item_id,
        "status": status,
        "role": "assistant",
        "content": list(content),
    }


def reasoning_item(item_id: str, summary: Iterable[str] = (), sealed: str = "") -> Item:
    """Progress and thinking, in words for people; sealed, what the model that thought needs."""
    item: Item = {
        "type": "reasoning",
        "id": item_id,
        "summary": [{"type": "summary_text", "text": text} for text in summary],
    }
    return item | ({"encrypted_content": sealed} if sealed else {})


def call_item(call: ToolCall, spoken: Mapping[str, ClientToolName], *, begun: bool = False) -> Item:
    """A call of a client's tool, under the name that the client gave it; `begun` leaves out what
    it is called with."""
    named = spoken.get(call.name, ClientToolName(call.name))
    rest = call.id.removeprefix("call_")
    item: Item = {"type": "function_call", "id": f"fc_{rest}", "call_id": call.id}
    if named.is_custom:
        given = "" if begun else _free_input(call.arguments)
        item |= {"type": "custom_tool_call", "id": f"ctc_{rest}", "name": named.name}
        item |= {"input": given}
    else:
        given = "" if begun else call.arguments
        status: Status = "in_progress" if begun else "completed"
        item |= {"name": named.name, "arguments": given, "status": status}
    return item | ({"namespace": named.namespace} if named.namespace else {})


def _free_input(arguments: str) -> str:
    """The text that a custom tool is called with. Workers are asked for it as the one argument
    of a function; what one wrote instead is passed on as it is."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = given.get(INPUT) if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments


def encrypted_content(request: ApiRequest, thinking: tuple[Thinking, ...]) -> str:
    """The state of the models that thought, where the client asked to keep it; else empty."""
    if ENCRYPTED not in (request.body.get("include") or ()):
        return ""
    return encode_thinking(part for part in thinking if part.opaque)


def response_status(answer: ApiResponse, *, refused_in_words: bool) -> tuple[Status, str | None]:
    """How a response ended, and why it is incomplete if it is."""
    if answer.finish == "length":
        return "incomplete", "max_output_tokens"
    if answer.finish == "refused" and not refused_in_words:
        return "incomplete", CONTENT_FILTER
    return "completed", None


def response_object(
    request: ApiRequest,
    answer: ApiResponse,
    *,
    status: Status,
    output: list[Item],
    incomplete: str | None = None,
    error: ApiError | None = None,
) -> Item:
    """The response object; usage is told when it has ended well."""
    body = request.body
    text, reasoning = body.get("text") or {}, body.get("reasoning") or {}
    summary = reasoning.get("summary") or reasoning.get("generate_summary")
    ended = status in ("completed", "incomplete")
    return {
        "id": response_id(answer.id),
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": _failure(error),
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "model": answer.model,
        "output": output,
        "usage": response_usage(answer.usage, answer.orchestration) if ended else None,
        **{name: body.get(name) for name in _ECHOED},
        "background": False,
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
        "top_logprobs": 0,
        "truncation": "auto",
    }


def response_usage(used: Usage, conducting: Usage) -> Item | None:
    """The sum over every call."""
    if used.input_tokens is None or used.output_tokens is None:
        return None
    details = usage_details(used, conducting)
    return {
        "input_tokens": used.input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0} | details.read,
        "output_tokens": used.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0} | details.written,
        "total_tokens": used.input_tokens + used.output_tokens,
    }


def responses_error(error: ApiError) -> Item:
    """Write the `error` object, with `messages` called `input` as in this dialect."""
    told = openai_error(error)
    if error.field == "messages":
        told["param"] = "input"
    if error.field == "previous_response_id" and error.reason == "not_found":
        told["code"] = "previous_response_not_found"
    return told


def _failure(error: ApiError | None) -> Item | None:
    """The `openai_error` of a response that failed."""
    if error is None:
        return None
    return {"code": _ERROR_CODES.get(error.reason, "server_error"), "message": str(error)}


class ResponsesWriter:
    """Writes one response; of its items, at most one is open."""

    def __init__(self, request: ApiRequest, opening: ApiResponse) -> None:
        self._asked = request
        self._opening = opening
        self._ids = ItemIds(request, opening.id)
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

    def end(self, answer: ApiResponse, rest: str = "") -> bytes:
        """The rest of the words, unless all of them refuse; what is open is closed; then the tools
        to call, and the whole response."""
        refused_in_words = answer.finish == "refused" and bool(answer.text) and not self._has_spoken
        status, reason = response_status(answer, refused_in_words=refused_in_words)
        told = b"" if refused_in_words else self.text(rest)
        sent = [told, self._keep_thinking(answer, status), self._close(status)]
        if refused_in_words:
            sent.append(self._refuse(answer.text))
        spoken = client_tool_names(self._asked.body)
        sent += [self._call(call, spoken) for call in answer.tool_calls]
        whole = response_object(
            self._asked, answer, status=status, output=self._done, incomplete=reason
        )
        return b"".join(sent) + self._event(f"response.{status}", response=whole)

    def fail(self, error: ApiError) -> bytes:
        """The error, and the response that failed, with what there is of it."""
        told = responses_error(error)
        event = self._event(
            "error", code=told["code"], message=told["message"], param=told["param"]
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

    def _so_far(self) -> Item:
        return response_object(
            self._asked, self._opening, status="in_progress", output=list(self._done)
        )

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

    def _keep_thinking(self, answer: ApiResponse, status: Status) -> bytes:
        """The sealed state goes into the reasoning that is open, else into one of its own."""
        sealed = encrypted_content(self._asked, answer.thinking)
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

    def _call(self, call: ToolCall, spoken: dict[str, ClientToolName]) -> bytes:
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
