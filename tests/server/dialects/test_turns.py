"""What the dialects ask of a conversation alike."""

from __future__ import annotations

import pytest

from podium.core.request import Image, Message, Text, Thinking, ToolCall, ToolResult, system, user
from podium.server.api_error import ApiError
from podium.server.dialects.content import (
    ToolCallMatcher,
    is_empty_message,
    merge_tool_results,
    prepend_instructions,
    strip_thinking,
)

CALLED = Message("assistant", (ToolCall("c", "clock", "{}"),))


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "clock", "{}")


def answered(*, unique_ids: bool = False, continues: bool = False) -> ToolCallMatcher:
    """Calls, of which one was made and answered."""
    calls = ToolCallMatcher("do so", unique_ids=unique_ids, continues=continues)
    calls.call(call("c"), "a")
    calls.answer(ToolResult("c", "noon"), "b")
    return calls


def test_calls_that_are_all_answered_are_settled() -> None:
    answered().settle()


def test_an_open_call_is_refused_where_it_stands_or_where_its_result_is_missed() -> None:
    calls = answered()
    calls.call(call("d"), "messages.3")
    with pytest.raises(ApiError, match=r"messages\.3: the call 'd' has no result; do so") as there:
        calls.settle()
    assert there.value.field == "messages.3"
    with pytest.raises(ApiError) as later:
        calls.settle("messages.4")
    assert later.value.field == "messages.4"


def test_of_many_open_calls_a_few_are_named_and_none_at_length() -> None:
    calls = ToolCallMatcher("do so")
    for number in range(1000):
        calls.call(call(f"{number}{'x' * 1000}"), "a")
    with pytest.raises(ApiError, match=r"the calls '0x+…', '1x") as caught:
        calls.settle()
    assert len(str(caught.value)) < 600


def test_an_id_is_free_again_when_its_call_was_answered_unless_it_may_be_used_once() -> None:
    answered().call(call("c"), "d")
    with pytest.raises(ApiError, match="two calls have the id 'c'"):
        answered(unique_ids=True).call(call("c"), "d")


def test_two_open_calls_cannot_have_one_id() -> None:
    calls = ToolCallMatcher("do so", noun="uses")
    calls.call(call("c"), "a")
    with pytest.raises(ApiError, match="two uses have the id 'c'"):
        calls.call(call("c"), "b")


@pytest.mark.parametrize(
    ("call_id", "came"), [("c", "already has a result"), ("d", "does not exist")]
)
def test_a_result_needs_an_open_call_unless_it_may_have_been_made_before(
    call_id: str, came: str
) -> None:
    with pytest.raises(ApiError, match=f"f: the call '{call_id}' {came}; do so"):
        answered().answer(ToolResult(call_id, "noon"), "f")
    answered(continues=True).answer(ToolResult(call_id, "noon"), "f")


def test_results_that_follow_each_other_are_one_message_and_others_stay_apart() -> None:
    one, two = ToolResult("c", "noon"), ToolResult("d", "late")
    messages = [
        CALLED,
        Message("tool", (one,)),
        Message("tool", (two,)),
        user("So?"),
        user("Well?"),
    ]
    assert merge_tool_results(messages) == [CALLED, Message("tool", (one, two)), *messages[3:]]


def test_instructions_come_first_and_empty_ones_not_at_all() -> None:
    assert prepend_instructions((user("Why?"),), "Be brief", None, "") == (
        system("Be brief"),
        user("Why?"),
    )


@pytest.mark.parametrize(
    ("message", "empty"),
    [
        (Message("user", ()), True),
        (Message("user", (Text(""), Text(" \n"))), True),
        (Message("user", (Text(" "), Text("a"))), False),
        (Message("user", (Image(url="https://example.org/a"),)), False),
        (Message("tool", (ToolResult("c", ""),)), False),
    ],
)
def test_a_message_is_empty_without_words_pictures_and_results(
    message: Message, empty: bool
) -> None:
    assert is_empty_message(message) is empty


def test_thinking_is_taken_out_and_the_rest_stays() -> None:
    said = Message("assistant", (Thinking("Hm"), Text("So."), call("c")))
    assert strip_thinking(said) == Message("assistant", (Text("So."), call("c")))
