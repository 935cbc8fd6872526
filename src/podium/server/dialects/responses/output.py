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
from podium.server.dialects.base import Answer, ApiRequest, stem_of
from podium.server.dialects.opaque_thinking import seal
from podium.server.dialects.openai import error, usage_details
from podium.server.dialects.responses.tools import INPUT, Spoken

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

    def __init__(self, asked: ApiRequest, answer_id: str) -> None:
        self._stem = stem_of(asked, answer_id)
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


def call_item(call: ToolCall, spoken: Mapping[str, Spoken], *, begun: bool = False) -> Item:
    """A call of a client's tool, under the name that the client gave it; `begun` leaves out what
    it is called with."""
    named = spoken.get(call.name, Spoken(call.name))
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


def sealed_for(asked: ApiRequest, thinking: tuple[Thinking, ...]) -> str:
    """The state of the models that thought, where the client asked to keep it; else empty."""
    if ENCRYPTED not in (asked.body.get("include") or ()):
        return ""
    return seal(part for part in thinking if part.opaque)


def ending(answer: Answer, *, refused_in_words: bool) -> tuple[Status, str | None]:
    """How a response ended, and why it is incomplete if it is."""
    if answer.finish == "length":
        return "incomplete", "max_output_tokens"
    if answer.finish == "refused" and not refused_in_words:
        return "incomplete", CONTENT_FILTER
    return "completed", None


def response(
    asked: ApiRequest,
    answer: Answer,
    *,
    status: Status,
    output: list[Item],
    incomplete: str | None = None,
    refusal: ApiError | None = None,
) -> Item:
    """The response object; usage is told when it has ended well."""
    body = asked.body
    text, reasoning = body.get("text") or {}, body.get("reasoning") or {}
    summary = reasoning.get("summary") or reasoning.get("generate_summary")
    ended = status in ("completed", "incomplete")
    return {
        "id": response_id(answer.id),
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "error": _failure(refusal),
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "model": answer.model,
        "output": output,
        "usage": usage_of(answer.usage, answer.orchestration) if ended else None,
        **{name: body.get(name) for name in _ECHOED},
        "background": False,
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "reasoning": {"effort": reasoning.get("effort"), "summary": summary},
        "service_tier": "default",
        "store": asked.store,
        "text": {
            "format": text.get("format") or {"type": "text"},
            "verbosity": text.get("verbosity") or "medium",
        },
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_logprobs": 0,
        "truncation": "auto",
    }


def usage_of(used: Usage, conducting: Usage) -> Item | None:
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


def error_told(refusal: ApiError) -> Item:
    """The `error` object of a body, as in Chat Completions; what the server calls messages is
    `input` here, and a response to go on from that is not there has a code of its own."""
    told = error(refusal)
    if refusal.field == "messages":
        told["param"] = "input"
    if refusal.field == "previous_response_id" and refusal.reason == "not_found":
        told["code"] = "previous_response_not_found"
    return told


def _failure(refusal: ApiError | None) -> Item | None:
    """The `error` of a response that failed."""
    if refusal is None:
        return None
    return {"code": _ERROR_CODES.get(refusal.reason, "server_error"), "message": str(refusal)}
