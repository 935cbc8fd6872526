"""Streams of the Messages dialect, put together by Anthropic's own SDK."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import (
    Message,
    MessageParam,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)

from podium.core.request import Delta, Text, Thinking, ToolCall, Usage
from podium.server.api_error import ApiError
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.anthropic_response import NO_SIGNATURE
from podium.server.dialects.request import ApiResponse
from support.messages_sdk import Desk, Play, answer, asked, events_of

HELLO: list[MessageParam] = [{"role": "user", "content": "Hello"}]
WEATHER = ToolCall("call_1", "weather", '{"city": "Rome"}')
TIME = ToolCall("call_2", "time", "")
THOUGHT = Thinking("Let me see.", '{"signature": "s"}', "claude-opus")


def streamed(of: ApiResponse, play: Play | None = None, **fields: Any) -> Message:
    """What the SDK makes of the stream."""
    desk = Desk(of, play)
    with desk.client.messages.stream(
        model="podium", max_tokens=2000, messages=HELLO, **fields
    ) as stream:
        return stream.get_final_message()


def kinds(stream: bytes) -> list[str]:
    return [event["type"] for event in events_of(stream)]


def test_text_arrives_piece_by_piece() -> None:
    desk = Desk(answer(text="Hi there"), lambda to: [to.text("Hi"), to.text(" there")])
    with desk.client.messages.stream(model="podium", max_tokens=9, messages=HELLO) as stream:
        assert list(stream.text_stream) == ["Hi", " there"]
        assert stream.get_final_text() == "Hi there"


def test_events_come_in_anthropics_order() -> None:
    assert kinds(Desk(answer(text="Hi")).stream(asked(stream=True))) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_a_message_starts_with_its_id_its_model_and_no_usage_yet() -> None:
    start = events_of(MESSAGES.stream_writer(asked(), answer(model="podium-ultra")).begin())[0]
    message = Message.model_validate(start["message"])
    assert (message.id, message.model) == ("msg_0123456789abcdef", "podium-ultra")
    assert message.stop_reason is None
    assert (message.usage.input_tokens, message.usage.output_tokens) == (0, 0)


def test_a_message_starts_with_the_usage_that_is_known_by_then() -> None:
    start = events_of(MESSAGES.stream_writer(asked(), answer(usage=Usage(9, 1, 2))).begin())[0]
    usage = start["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (7, 2)


def test_the_final_usage_replaces_that_of_the_start() -> None:
    final = streamed(answer(text="Hi", usage=Usage(100, 20, 30, 5, 10)))
    assert final.usage.input_tokens == 60
    assert final.usage.cache_read_input_tokens == 30
    assert final.usage.cache_creation_input_tokens == 10
    assert final.usage.output_tokens == 20
    assert final.usage.output_tokens_details is not None
    assert final.usage.output_tokens_details.thinking_tokens == 5


def test_unknown_usage_is_not_sent_as_zero_at_the_start() -> None:
    final = streamed(answer(text="Hi", usage=Usage(100, 20)))
    assert (final.usage.input_tokens, final.usage.output_tokens) == (100, 20)
    assert final.usage.cache_read_input_tokens is None
    assert final.usage.output_tokens_details is None


def test_progress_and_thinking_share_a_block_before_the_text() -> None:
    final = streamed(
        answer(text="Hi"),
        lambda to: [
            to.progress("Planning"),
            to.progress("Asking"),
            to.thinking("Hm"),
            to.text("Hi"),
        ],
        thinking={"type": "adaptive"},
    )
    thinking, words = final.content
    assert isinstance(thinking, ThinkingBlock)
    assert thinking.thinking == "Planning\nAsking\n\nHm"
    assert isinstance(words, TextBlock)
    assert words.text == "Hi"


def test_thinking_that_was_shown_before_the_text_is_signed() -> None:
    final = streamed(
        answer(text="Hi"),
        lambda to: [to.thinking("Hm"), to.text("Hi")],
        thinking={"type": "adaptive"},
    )
    assert isinstance(final.content[0], ThinkingBlock)
    assert final.content[0].signature == NO_SIGNATURE


def test_a_models_state_follows_the_text_in_a_block_of_its_own() -> None:
    final = streamed(
        answer(text="Hi", thinking=(THOUGHT,)),
        lambda to: [to.thinking("Let me see."), to.text("Hi")],
        thinking={"type": "adaptive"},
    )
    assert [block.type for block in final.content] == ["thinking", "text", "redacted_thinking"]
    assert isinstance(final.content[2], RedactedThinkingBlock)
    assert "Let me see" not in final.content[2].data


def test_without_text_the_state_signs_the_thinking() -> None:
    final = streamed(
        answer(thinking=(THOUGHT,), tool_calls=(WEATHER,), finish="tool"),
        lambda to: [to.thinking("Let me see.")],
        thinking={"type": "adaptive"},
    )
    assert [block.type for block in final.content] == ["thinking", "tool_use"]
    assert isinstance(final.content[0], ThinkingBlock)
    assert final.content[0].signature != NO_SIGNATURE


@pytest.mark.parametrize("calls", [(), (WEATHER,)])
def test_streamed_thinking_returns_to_its_model(
    calls: tuple[ToolCall, ...],
) -> None:
    final = streamed(
        answer(text="Hi", thinking=(THOUGHT,), tool_calls=calls),
        lambda to: [to.progress("Planning"), to.thinking("Let me see."), to.text("Hi")],
        thinking={"type": "adaptive"},
    )
    desk = Desk(answer(text="Bye"))
    results: list[Any] = [{"type": "tool_result", "tool_use_id": call.id} for call in calls]
    desk.client.messages.create(
        model="podium",
        max_tokens=9,
        messages=[
            *HELLO,
            final.to_param(),
            {"role": "user", "content": [*results, {"type": "text", "text": "And now?"}]},
        ],
    )
    turn = desk.asked[0].messages[1]
    assert turn.parts[:2] == (THOUGHT, Text("Hi"))


def test_omitted_thinking_has_no_text() -> None:
    final = streamed(
        answer(text="Hi", thinking=(THOUGHT,)), thinking={"type": "adaptive", "display": "omitted"}
    )
    assert [block.type for block in final.content] == ["text", "redacted_thinking"]


def test_unrequested_thinking_is_not_sent() -> None:
    final = streamed(answer(text="Hi", thinking=(THOUGHT,)))
    assert [block.type for block in final.content] == ["text"]


def test_a_tool_call_follows_the_text_with_its_input_as_json() -> None:
    final = streamed(answer(text="Hm.", tool_calls=(WEATHER,), finish="tool"))
    call = final.content[1]
    assert isinstance(call, ToolUseBlock)
    assert (call.id, call.name, call.input) == ("call_1", "weather", {"city": "Rome"})
    assert final.stop_reason == "tool_use"


def test_parallel_calls_are_blocks_of_their_own() -> None:
    final = streamed(answer(tool_calls=(WEATHER, TIME), finish="tool"), lambda to: [])
    assert [block.id for block in final.content if isinstance(block, ToolUseBlock)] == [
        "call_1",
        "call_2",
    ]


def test_a_call_without_arguments_has_an_empty_input() -> None:
    final = streamed(answer(tool_calls=(TIME,), finish="tool"), lambda to: [])
    assert isinstance(final.content[0], ToolUseBlock)
    assert final.content[0].input == {}


def test_an_empty_answer_has_an_empty_text() -> None:
    final = streamed(answer(), lambda to: [])
    assert [block.type for block in final.content] == ["text"]
    assert final.stop_reason == "end_turn"


def test_an_empty_piece_writes_nothing() -> None:
    writer = MESSAGES.stream_writer(asked(), answer())
    assert writer.text("") == writer.thinking("") == b""


def test_indices_of_blocks_have_no_gaps() -> None:
    desk = Desk(
        answer(text="ab", thinking=(THOUGHT,), tool_calls=(WEATHER, TIME)),
        lambda to: [to.thinking("x"), to.text("a"), to.progress("y"), to.text("b")],
    )
    events = events_of(desk.stream(asked(stream=True, thinking={"type": "adaptive"})))
    starts = [event["index"] for event in events if event["type"] == "content_block_start"]
    stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert starts == stops == list(range(7))


def test_keep_alives_are_pings_that_the_sdk_passes_over() -> None:
    final = streamed(
        answer(text="Hi"), lambda to: [to.keep_alive(), to.text("Hi"), to.keep_alive()]
    )
    assert [block.type for block in final.content] == ["text"]


def test_a_stream_that_fails_ends_with_anthropics_error_event() -> None:
    failed = ApiError("overloaded", "too much to do")
    desk = Desk(answer(), lambda to: [to.text("Hi"), to.fail(failed)])
    with (
        desk.client.messages.stream(model="podium", max_tokens=9, messages=HELLO) as stream,
        pytest.raises(anthropic.APIStatusError, match="too much to do") as caught,
    ):
        stream.until_done()
    assert caught.value.type == "overloaded_error"


@pytest.mark.parametrize(
    "words", ["naïve — 你好 🎼", "a\u2028b\u2029c\x85d", "tab\tline\r\n\nend", "\ud83d"]
)
def test_any_text_survives_the_stream(words: str) -> None:
    final = streamed(answer(text=words), lambda to: [to.text(words)])
    assert isinstance(final.content[0], TextBlock)
    assert final.content[0].text == words


async def test_the_asynchronous_sdk_reads_the_same_stream() -> None:
    stream = Desk(answer(text="Hi")).stream(asked(stream=True))
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, content=stream
        )
    )
    client = anthropic.AsyncAnthropic(
        api_key="unread",
        base_url="http://podium.test",
        http_client=httpx2.AsyncClient(transport=transport),
    )
    async with (
        client,
        client.messages.stream(model="podium", max_tokens=9, messages=HELLO) as events,
    ):
        assert await events.get_final_text() == "Hi"


def test_the_beta_api_of_the_sdk_reads_the_same_stream() -> None:
    desk = Desk(
        answer(text="Hi", thinking=(THOUGHT,), tool_calls=(WEATHER,), usage=Usage(3, 2, 1, 0, 0)),
        lambda to: [to.thinking("Hm"), to.text("Hi")],
    )
    with desk.client.beta.messages.stream(
        model="podium",
        max_tokens=9,
        messages=[{"role": "user", "content": "Hello"}],
        betas=["interleaved-thinking-2025-05-14"],
        thinking={"type": "adaptive"},
    ) as stream:
        final = stream.get_final_message()
    assert [block.type for block in final.content] == [
        "thinking",
        "text",
        "redacted_thinking",
        "tool_use",
    ]


def test_a_call_arrives_piece_by_piece() -> None:
    pieces = [Delta(piece, "tool_call", 0, "call_1", "weather") for piece in ("", '{"city"', ": ")]
    to = MESSAGES.stream_writer(asked(), answer())
    stream = to.begin() + to.text("Hm.") + b"".join(map(to.tool_call, pieces))
    stream += to.end(answer(text="Hm.", tool_calls=(WEATHER, TIME)), "", ['{"city": '])
    deltas = [event for event in events_of(stream) if event["type"] == "content_block_delta"]
    assert [(event["index"], *event["delta"].values()) for event in deltas] == [
        (0, "text_delta", "Hm."),
        (1, "input_json_delta", '{"city"'),
        (1, "input_json_delta", ": "),
        (1, "input_json_delta", '"Rome"}'),
        (2, "input_json_delta", "{}"),
    ]


def test_thinking_that_ends_after_a_streamed_call_is_kept_behind_it() -> None:
    to = MESSAGES.stream_writer(asked(thinking={"type": "adaptive"}), answer())
    stream = to.begin() + to.tool_call(Delta("{}", "tool_call", 0, "call_1", "weather"))
    call = ToolCall("call_1", "weather", "{}")
    stream += to.end(answer(tool_calls=(call,), thinking=(THOUGHT,)), "", ["{}"])
    blocks = [event["content_block"] for event in events_of(stream) if "content_block" in event]
    assert [block["type"] for block in blocks] == ["tool_use", "redacted_thinking"]
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "sun"}
    turns = [*HELLO, {"role": "assistant", "content": blocks}]
    turns.append({"role": "user", "content": [result]})
    assert THOUGHT in asked(messages=turns).messages[1].parts
