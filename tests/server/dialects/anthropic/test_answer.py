"""What messages of the Messages dialect tell, held against Anthropic's own types."""

from __future__ import annotations

import pytest
from anthropic.types import Message, TextBlock, ThinkingBlock, ToolUseBlock
from anthropic.types.shared import ErrorResponse

from podium.core.request import UNKNOWN_USAGE, Finish, Thinking, ToolCall, Usage
from podium.server.api_error import ApiError, Reason, invalid
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.anthropic_response import RAW_ARGUMENTS_KEY
from podium.server.dialects.request import ApiResponse
from support.messages_sdk import answer, asked

THOUGHT = Thinking("Let me see.", '{"signature": "s"}', "claude-opus")


def parse(of: ApiResponse, **fields: object) -> Message:
    """The message, as the SDK's types have it."""
    return Message.model_validate(MESSAGES.format_response(asked(**fields), of), strict=True)


def call(arguments: str) -> ToolCall:
    return ToolCall("call_1", "weather", arguments)


def test_an_answer_is_a_message_of_the_assistant() -> None:
    message = parse(answer(text="Hi", model="podium-mini"))
    assert (message.type, message.role, message.model) == ("message", "assistant", "podium-mini")
    assert isinstance(message.content[0], TextBlock)
    assert message.content[0].text == "Hi"


def test_the_id_of_a_message_is_that_of_its_run() -> None:
    assert parse(answer(id="run_0123456789abcdef")).id == "msg_0123456789abcdef"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool", "tool_use"),
        ("refused", "refusal"),
    ],
)
def test_stop_reason_is_anthropics(finish: Finish, reason: str) -> None:
    assert parse(answer(text="Hi", finish=finish)).stop_reason == reason


def test_a_stop_sequence_is_named_where_the_worker_named_it() -> None:
    message = parse(answer(text="Hi", stop_sequence="END"))
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")


def test_tool_calls_set_the_stop_reason() -> None:
    message = parse(answer(tool_calls=(call("{}"),), finish="stop"))
    assert message.stop_reason == "tool_use"


def test_a_call_without_words_has_no_text_block() -> None:
    message = parse(answer(tool_calls=(call('{"city": "Rome"}'),)))
    assert [block.type for block in message.content] == ["tool_use"]
    assert isinstance(message.content[0], ToolUseBlock)
    assert message.content[0].input == {"city": "Rome"}


@pytest.mark.parametrize("arguments", ["{not json", "[1]", '"words"', "[" * 100_000])
def test_arguments_that_are_not_an_object_are_passed_on_as_text(arguments: str) -> None:
    message = parse(answer(tool_calls=(call(arguments),)))
    assert isinstance(message.content[0], ToolUseBlock)
    assert message.content[0].input == {RAW_ARGUMENTS_KEY: arguments}


def test_thinking_is_shown_where_it_was_asked_for() -> None:
    message = parse(
        answer(text="Hi", thinking=(THOUGHT, Thinking("Well."))),
        thinking={"type": "enabled", "budget_tokens": 1024},
    )
    assert isinstance(message.content[0], ThinkingBlock)
    assert message.content[0].thinking == "Let me see.\n\nWell."


def test_thinking_is_not_sent_unasked() -> None:
    assert [block.type for block in parse(answer(text="Hi", thinking=(THOUGHT,))).content] == [
        "text"
    ]


def test_thinking_to_be_omitted_keeps_its_signature_alone() -> None:
    omitted = {"type": "adaptive", "display": "omitted"}
    message = parse(answer(text="Hi", thinking=(THOUGHT,)), thinking=omitted)
    assert isinstance(message.content[0], ThinkingBlock)
    assert message.content[0].thinking == ""
    assert message.content[0].signature


def test_thinking_with_neither_words_nor_state_is_no_block() -> None:
    message = parse(answer(text="Hi", thinking=(Thinking(""),)), thinking={"type": "adaptive"})
    assert [block.type for block in message.content] == ["text"]


def test_input_tokens_leave_out_what_the_cache_read_and_wrote() -> None:
    usage = parse(answer(usage=Usage(100, 20, 30, 5, 10))).usage
    assert usage.input_tokens == 60
    assert usage.cache_read_input_tokens == 30
    assert usage.cache_creation_input_tokens == 10


def test_the_parts_of_the_input_add_up_to_the_total() -> None:
    usage = parse(answer(usage=Usage(100, 20, 30, 5, 10))).usage
    parts = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
    assert sum(part or 0 for part in parts) == 100


def test_an_unknown_cache_stays_unknown() -> None:
    usage = parse(answer(usage=Usage(100, 20))).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (100, None)
    assert usage.output_tokens_details is None


def test_counts_that_the_format_demands_are_zero_where_unknown() -> None:
    usage = parse(answer(usage=UNKNOWN_USAGE)).usage
    assert (usage.input_tokens, usage.output_tokens) == (0, 0)


def test_the_conductors_part_is_reported_by_fugus_names() -> None:
    body = MESSAGES.format_response(
        asked(), answer(usage=Usage(100, 20, 30, 5, 0), orchestration=Usage(40, 8, 10, 0, 0))
    )
    assert body["usage"]["input_tokens_details"] == {
        "orchestration_input_tokens": 40,
        "orchestration_input_cached_tokens": 10,
    }
    assert body["usage"]["output_tokens_details"] == {
        "thinking_tokens": 5,
        "orchestration_output_tokens": 8,
    }
    Message.model_validate(body)


def test_without_a_conductor_the_usage_has_anthropics_fields_alone() -> None:
    usage = MESSAGES.format_response(asked(), answer(usage=Usage(100, 20, 0, 0, 0)))["usage"]
    strangers = usage.keys() - Message.model_fields["usage"].annotation.model_fields.keys()  # type: ignore[union-attr]
    assert strangers == set()


@pytest.mark.parametrize(
    ("reason", "kind", "status"),
    [
        ("invalid", "invalid_request_error", 400),
        ("unauthenticated", "authentication_error", 401),
        ("out_of_budget", "billing_error", 402),
        ("forbidden", "permission_error", 403),
        ("not_found", "not_found_error", 404),
        ("rate_limited", "rate_limit_error", 429),
        ("failed", "api_error", 500),
        ("upstream", "api_error", 502),
        ("overloaded", "overloaded_error", 503),
    ],
)
def test_errors_have_anthropics_types(reason: Reason, kind: str, status: int) -> None:
    refusal = ApiError(reason, "no")
    error = ErrorResponse.model_validate(MESSAGES.format_error(refusal))
    assert (error.error.type, error.error.message, refusal.status) == (kind, "no", status)


@pytest.mark.parametrize(
    ("reason", "kind"), [("conflict", "conflict_error"), ("too_large", "request_too_large")]
)
def test_errors_that_the_sdk_knows_by_status_have_the_documented_types(
    reason: Reason, kind: str
) -> None:
    assert MESSAGES.format_error(ApiError(reason, "no"))["error"]["type"] == kind


def test_an_error_names_its_field_once() -> None:
    unnamed = MESSAGES.format_error(invalid("max_tokens", "too many"))["error"]["message"]
    named = MESSAGES.format_error(invalid("max_tokens", "max_tokens: too many"))["error"]["message"]
    assert unnamed == named == "max_tokens: too many"
