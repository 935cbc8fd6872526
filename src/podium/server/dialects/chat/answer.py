"""What a Chat Completions client is told in the end: a completion and its usage.

Usage sums every call that the request led to, the conductor's among them. A total that a provider
did not tell is unknown, and so is the sum: `usage` is null then, which the SDK's types allow, for
a number would be made up. An unknown detail is left out. Errors are in `openai`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from podium.request import Finish, ToolCall
from podium.server.dialects.base import Answer, Asked
from podium.server.dialects.identity import stem_of
from podium.server.dialects.openai import usage_details

FINISH_REASONS: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "length",
    "tool": "tool_calls",
    "refused": "content_filter",
}


def identity(asked: Asked, answer: Answer) -> str:
    """The id of a completion, with the beginning of OpenAI's."""
    return f"chatcmpl-{stem_of(asked, answer.id)}"


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
        "id": identity(asked, answer),
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
    total = answer.usage
    if total.input_tokens is None or total.output_tokens is None:
        return None
    details = usage_details(total, answer.orchestration)
    return {
        "prompt_tokens": total.input_tokens,
        "completion_tokens": total.output_tokens,
        "total_tokens": total.input_tokens + total.output_tokens,
        "prompt_tokens_details": details.read,
        "completion_tokens_details": details.written,
    }
