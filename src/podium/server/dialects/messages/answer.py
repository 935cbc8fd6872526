"""What a whole message and a streamed one tell alike: ids, blocks, why it ended, usage, errors.

Counts that are not known are left out where Anthropic's format allows it, and are 0 where it
demands a number; the run itself keeps unknown and none apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from podium.request import Finish, ToolCall
from podium.server.dialects.base import Answer, Asked
from podium.server.dialects.identity import stem_of
from podium.server.refusal import Reason, Refusal
from podium.usage import Usage

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


def opening(asked: Asked, answer: Answer) -> dict[str, Any]:
    """A message before anything of it is known."""
    return {
        "id": f"msg_{stem_of(asked, answer.id)}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage(answer.usage, answer.orchestration),
    }


def ending(answer: Answer) -> dict[str, Any]:
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
        "input": arguments_of(call),
    }


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments as the object that Anthropic's format demands."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {UNREADABLE: call.arguments}


def keeps_thinking(asked: Asked) -> bool:
    """Whether the client wants thinking back at all, be it without words."""
    if asked.shows_reasoning:
        return True
    thinking = asked.body.get("thinking")
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


def error(refusal: Refusal) -> dict[str, Any]:
    """An error, as a body or as an event."""
    words = str(refusal)
    if refusal.field and refusal.field not in words:
        words = f"{refusal.field}: {words}"
    told = {"type": _ERROR_TYPE[refusal.reason], "message": words}
    return {"type": "error", "error": told | _details(refusal), "request_id": refusal.request_id}


def _details(refusal: Refusal) -> dict[str, Any]:
    """The code by which SDKs know to go on without a thread, where one was asked for."""
    if refusal.field != "thread":
        return {}
    return {"details": {"error_code": "thread_unsupported_request", "unsupported": []}}
