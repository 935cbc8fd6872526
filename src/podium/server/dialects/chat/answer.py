"""What a Chat Completions client is told in the end: a completion, its usage, or an error.

Usage sums every call that the request led to, the conductor's among them; the conductor's part
stands in the details under the names that Fugu gave it, and is left out where there was none. A
total that a provider did not tell is unknown, and so is the sum: `usage` is null then, which the
SDK's types allow, for a number would be made up. An unknown detail is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from podium.request import Finish, ToolCall
from podium.server.dialects.base import Answer, Asked
from podium.server.refusal import Reason, Refusal

FINISH_REASONS: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "length",
    "tool": "tool_calls",
    "refused": "content_filter",
}


class _Kind(NamedTuple):
    """How OpenAI calls a fault."""

    type: str
    code: str | None


_KINDS: Final[Mapping[Reason, _Kind]] = {
    "invalid": _Kind("invalid_request_error", None),
    "unauthenticated": _Kind("authentication_error", "invalid_api_key"),
    "forbidden": _Kind("permission_error", "permission_denied"),
    "not_found": _Kind("invalid_request_error", "not_found"),
    "conflict": _Kind("invalid_request_error", "conflict"),
    "too_large": _Kind("invalid_request_error", "request_too_large"),
    "too_long": _Kind("invalid_request_error", "context_length_exceeded"),
    "out_of_budget": _Kind("insufficient_quota", "insufficient_quota"),
    "rate_limited": _Kind("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": _Kind("server_error", "server_overloaded"),
    "upstream": _Kind("server_error", "upstream_error"),
    "failed": _Kind("server_error", "internal_error"),
}


def identity(answer: Answer) -> str:
    """The id of a completion: the run's, with the beginning of OpenAI's."""
    return f"chatcmpl-{answer.id.removeprefix('run_')}"


def completion(asked: Asked, answer: Answer) -> dict[str, Any]:
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
        "id": identity(answer),
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


def repeated(asked: Asked) -> dict[str, Any]:
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
    total, conducting = answer.usage, answer.orchestration
    if total.input_tokens is None or total.output_tokens is None:
        return None
    read = _known(
        cached_tokens=total.cached_input_tokens, cache_write_tokens=total.cache_write_tokens
    )
    written = _known(reasoning_tokens=total.reasoning_tokens)
    if conducting.total_tokens:
        read |= _known(
            orchestration_input_tokens=conducting.input_tokens,
            orchestration_input_cached_tokens=conducting.cached_input_tokens,
        )
        written |= _known(orchestration_output_tokens=conducting.output_tokens)
    return {
        "prompt_tokens": total.input_tokens,
        "completion_tokens": total.output_tokens,
        "total_tokens": total.input_tokens + total.output_tokens,
        "prompt_tokens_details": read,
        "completion_tokens_details": written,
    }


def _known(**counts: int | None) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}


def error(refusal: Refusal) -> dict[str, Any]:
    """The `error` object of a body, or of a stream's last event."""
    kind = _KINDS[refusal.reason]
    unknown_model = refusal.reason == "not_found" and refusal.field == "model"
    return {
        "message": str(refusal),
        "type": kind.type,
        "param": refusal.field or None,
        "code": "model_not_found" if unknown_model else kind.code,
    }
