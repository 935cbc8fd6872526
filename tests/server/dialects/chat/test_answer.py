"""Completions, usage and errors, held against the SDK's own types."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.shared import ErrorObject

from podium.core.request import NO_USAGE, UNKNOWN_USAGE, Finish, Thinking, ToolCall, Usage
from podium.server.api_error import ERRORS, ApiError, Reason, invalid
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import ApiRequest, ApiResponse
from support.chat_sdk import checked

CLOCK = ToolCall("call_1", "clock", '{"zone": "UTC"}')


def asked(**fields: Any) -> ApiRequest:
    body = {"model": "podium", "messages": [{"role": "user", "content": "Why?"}]}
    return CHAT.read(body | fields)


def answer(**fields: Any) -> ApiResponse:
    return ApiResponse(id="run_1f", model="podium", created=1_700_000_000, **fields)


def format_response(said: ApiResponse, **fields: Any) -> dict[str, Any]:
    document = CHAT.format_response(asked(**fields), said)
    checked(document)
    return document


def usage(said: ApiResponse) -> Any:
    return format_response(said)["usage"]


def test_a_completion_says_what_was_answered() -> None:
    found = checked(format_response(answer(text="Because.")))
    assert found.id == "chatcmpl-1f"
    assert found.object == "chat.completion"
    assert found.model == "podium"
    assert found.created == 1_700_000_000
    assert found.choices[0].message.content == "Because."
    assert found.choices[0].finish_reason == "stop"
    assert found.choices[0].message.tool_calls is None


def test_calls_of_tools_are_reported_without_empty_words() -> None:
    choice = checked(format_response(answer(tool_calls=(CLOCK,), finish="tool"))).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].model_dump() == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "clock", "arguments": '{"zone": "UTC"}'},
    }


def test_words_beside_calls_are_reported() -> None:
    said = answer(text="A moment.", tool_calls=(CLOCK,), finish="tool")
    assert checked(format_response(said)).choices[0].message.content == "A moment."


def test_an_empty_answer_is_an_empty_text() -> None:
    assert checked(format_response(answer())).choices[0].message.content == ""


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "stop"), ("length", "length"), ("refused", "content_filter")],
)
def test_the_finish_reason_is_openais(finish: Finish, reason: str) -> None:
    assert (
        checked(format_response(answer(text="a", finish=finish))).choices[0].finish_reason == reason
    )


def test_reasoning_is_sent_only_on_request() -> None:
    said = answer(text="So.", thinking=(Thinking("Hm"), Thinking("Ah")))
    shown = format_response(said, reasoning_effort="low")["choices"][0]["message"]
    assert shown["reasoning_content"] == "Hm\n\nAh"
    assert "reasoning_content" not in format_response(said)["choices"][0]["message"]


def test_usage_sums_everything_and_names_the_conductors_part() -> None:
    said = answer(usage=Usage(100, 40, 30, 20, 5), orchestration=Usage(60, 10, 25, 0, 0))
    assert usage(said) == {
        "prompt_tokens": 100,
        "completion_tokens": 40,
        "total_tokens": 140,
        "prompt_tokens_details": {
            "cached_tokens": 30,
            "cache_write_tokens": 5,
            "orchestration_input_tokens": 60,
            "orchestration_input_cached_tokens": 25,
        },
        "completion_tokens_details": {
            "reasoning_tokens": 20,
            "orchestration_output_tokens": 10,
        },
    }


def test_usage_is_standard_where_nothing_was_conducted() -> None:
    details = usage(answer(usage=Usage(10, 4, 0, 0, 0)))
    assert details["prompt_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    assert details["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize("total", [UNKNOWN_USAGE, Usage(10, None, 0, 0), Usage(None, 4, 0, 0)])
def test_an_unknown_total_is_not_invented(total: Usage) -> None:
    assert usage(answer(usage=total)) is None


def test_an_unknown_detail_is_left_out() -> None:
    found = usage(answer(usage=Usage(10, 4)))
    assert found["prompt_tokens_details"] == {}
    assert found["completion_tokens_details"] == {}


def test_metadata_and_the_way_of_serving_are_repeated() -> None:
    found = checked(format_response(answer(), metadata={"a": "b"}, service_tier="auto"))
    assert found.metadata == {"a": "b"}
    assert found.service_tier == "default"


def test_fields_that_were_not_sent_are_not_echoed() -> None:
    assert not {"metadata", "service_tier"} & format_response(answer()).keys()


COUNT = st.none() | st.integers(0, 10**9)
USAGE = st.just(NO_USAGE) | st.builds(Usage, COUNT, COUNT, COUNT, COUNT, COUNT)
WORDS = st.text(st.characters(exclude_categories=()), max_size=20)
ANSWERS = st.builds(
    answer,
    text=WORDS,
    thinking=st.lists(st.builds(Thinking, WORDS), max_size=2).map(tuple),
    tool_calls=st.lists(st.builds(ToolCall, WORDS, WORDS, WORDS), max_size=3).map(tuple),
    finish=st.sampled_from(get_args(Finish)),
    usage=USAGE,
    orchestration=USAGE,
)


@given(ANSWERS, st.sampled_from([{}, {"reasoning_effort": "high"}, {"metadata": {}}]))
def test_every_answer_fits_the_sdks_type(said: ApiResponse, fields: dict[str, Any]) -> None:
    found = checked(format_response(said, **fields))
    assert found.usage is None or found.usage.total_tokens == said.usage.total_tokens


@pytest.mark.parametrize("reason", sorted(ERRORS))
def test_every_refusal_is_an_error_object(reason: Reason) -> None:
    refusal = ApiError(reason, "What happened; what to do", field="model", retry_after=3)
    document = CHAT.format_error(refusal)
    assert document.keys() == {"error"}
    found = ErrorObject.model_validate(document["error"], strict=True)
    assert not found.model_extra
    assert found.message == "What happened; what to do"
    assert found.param == "model"


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        ("invalid", "invalid_request_error", None),
        ("unauthenticated", "authentication_error", "invalid_api_key"),
        ("too_long", "invalid_request_error", "context_length_exceeded"),
        ("out_of_budget", "insufficient_quota", "insufficient_quota"),
        ("rate_limited", "rate_limit_error", "rate_limit_exceeded"),
        ("failed", "server_error", "internal_error"),
    ],
)
def test_a_fault_has_openais_names(reason: Reason, kind: str, code: str | None) -> None:
    found = CHAT.format_error(ApiError(reason, "no"))["error"]
    assert found == {"message": "no", "type": kind, "param": None, "code": code}


def test_an_unknown_model_has_a_code_of_its_own() -> None:
    assert CHAT.format_error(ApiError("not_found", "no", field="model"))["error"]["code"] == (
        "model_not_found"
    )
    assert CHAT.format_error(ApiError("not_found", "no"))["error"]["code"] == "not_found"


def test_a_fault_of_the_whole_body_has_no_parameter() -> None:
    assert CHAT.format_error(invalid("", "not JSON"))["error"]["param"] is None
