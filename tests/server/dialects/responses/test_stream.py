from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from podium.core.request import UNKNOWN_USAGE, Delta, Thinking, ToolCall, Usage
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiResponse, StreamWriter
from podium.server.dialects.responses import RESPONSES
from support.responses_sdk import client_that_hears, events_of

OPENING: Final = ApiResponse(id="run_0123456789abcdef", model="podium", created=1_700_000_000)
THOUGHT: Final = Thinking("Let me see.", opaque="signed", model="claude")
WEATHER: Final = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


class Verdict(BaseModel):
    answer: int


def writer(**options: Any) -> StreamWriter:
    body = {"model": "podium", "input": "hello", "stream": True, **options}
    return RESPONSES.stream_writer(RESPONSES.read(body), OPENING)


def answer(**parts: Any) -> ApiResponse:
    event_names = {"usage": Usage(30, 12, 4, 2, 0), "orchestration": Usage(10, 5, 1, 0, 0), **parts}
    return ApiResponse(id=OPENING.id, model=OPENING.model, created=OPENING.created, **event_names)


def event_names(stream: bytes) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events_of(stream)]


def plain_stream() -> bytes:
    stream = writer()
    return (
        stream.begin() + stream.text("Hel") + stream.text("lo") + stream.end(answer(text="Hello"))
    )


def test_a_plain_answer_is_reported_in_the_order_of_the_api() -> None:
    assert event_names(plain_stream()) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_the_sdk_puts_a_plain_stream_together() -> None:
    with client_that_hears(plain_stream()).responses.stream(
        model="podium", input="hello"
    ) as stream:
        final = stream.get_final_response()
    assert final.output_text == "Hello"
    assert final.id == "resp_0123456789abcdef"
    assert final.usage is not None
    assert final.usage.total_tokens == 42


def test_deltas_are_sent_as_they_come() -> None:
    stream = writer()
    stream.begin()
    first = stream.text("Hel")
    assert b'"delta":"Hel"' in first
    assert b"output_text.done" not in first
    assert stream.text("lo").count(b"\n\n") == 1


def test_an_empty_text_delta_is_not_sent() -> None:
    stream = writer()
    assert stream.begin() != stream.text("") == b""


def test_the_last_event_is_the_same_as_the_whole_response() -> None:
    body = {"model": "podium", "input": "hello", "stream": True, "tools": [WEATHER]}
    asked = RESPONSES.read(body)
    ended = answer(text="Hello", tool_calls=(ToolCall("call_1", "weather", "{}"),), finish="tool")
    stream = RESPONSES.stream_writer(asked, OPENING)
    events = events_of(stream.begin() + stream.text("Hello") + stream.end(ended))
    assert events[-1]["response"] == RESPONSES.format_response(asked, ended)


def test_progress_is_a_part_of_the_reasoning_summary() -> None:
    stream = writer(reasoning={"summary": "auto"})
    sent = stream.begin() + stream.progress("Asking two workers.") + stream.text("Hi")
    assert event_names(sent + stream.end(answer(text="Hi")))[2:9] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
    ]


def test_progress_and_thinking_are_parts_in_their_order() -> None:
    stream = writer(reasoning={"summary": "auto"})
    sent = stream.begin() + stream.progress("One.") + stream.progress("Two.")
    sent += stream.thinking("I ") + stream.thinking("think.") + stream.progress("Three.")
    events = events_of(sent + stream.text("Hi") + stream.end(answer(text="Hi")))
    reasoning = events[-1]["response"]["output"][0]
    assert [part["text"] for part in reasoning["summary"]] == ["One.", "Two.", "I think.", "Three."]


def test_the_sdk_puts_reasoning_and_answer_together() -> None:
    stream = writer(reasoning={"summary": "auto"})
    sent = stream.begin() + stream.thinking("Hm.") + stream.text("Hi")
    sent += stream.end(answer(text="Hi"))
    with client_that_hears(sent).responses.stream(model="podium", input="hello") as heard:
        final = heard.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output_text == "Hi"


def test_thinking_after_text_is_an_item_of_its_own_and_no_text_is_lost() -> None:
    stream = writer(reasoning={"summary": "auto"})
    sent = stream.begin() + stream.text("One, ") + stream.thinking("Hm.") + stream.text("two.")
    sent += stream.end(answer(text="One, two."))
    with client_that_hears(sent).responses.stream(model="podium", input="hello") as heard:
        final = heard.get_final_response()
    assert [item.type for item in final.output] == ["message", "reasoning", "message"]
    assert final.output_text == "One, two."
    assert len({item["id"] for item in final.to_dict()["output"]}) == 3  # type: ignore[attr-defined]


def test_sealed_thinking_goes_into_the_reasoning_that_is_open() -> None:
    stream = writer(reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"])
    call = ToolCall("call_1", "weather", "{}")
    sent = stream.begin() + stream.thinking("Hm.")
    sent += stream.end(answer(thinking=(THOUGHT,), tool_calls=(call,), finish="tool"))
    reasoning, called = events_of(sent)[-1]["response"]["output"]
    assert reasoning["encrypted_content"]
    assert reasoning["summary"][0]["text"] == "Hm."
    assert called["type"] == "function_call"


def test_sealed_thinking_that_comes_after_the_text_is_an_item_of_its_own() -> None:
    stream = writer(include=["reasoning.encrypted_content"])
    sent = stream.begin() + stream.text("Hi") + stream.end(answer(text="Hi", thinking=(THOUGHT,)))
    message, reasoning = events_of(sent)[-1]["response"]["output"]
    assert (message["status"], reasoning["summary"]) == ("completed", [])
    assert reasoning["encrypted_content"]


def test_a_tool_call_is_reported_with_its_arguments() -> None:
    stream = writer(tools=[WEATHER])
    call = ToolCall("call_1", "weather", '{"city":"Bern"}')
    sent = stream.begin() + stream.end(answer(tool_calls=(call,), finish="tool"))
    events = events_of(sent)
    assert event_names(sent)[2:6] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert events[2]["item"]["arguments"] == ""
    assert events[5]["item"]["arguments"] == '{"city":"Bern"}'
    assert events[-1]["type"] == "response.completed"


def test_the_sdk_puts_parallel_tool_calls_together() -> None:
    stream = writer(tools=[WEATHER])
    calls = tuple(ToolCall(f"call_{where}", "weather", f'{{"n":{where}}}') for where in range(3))
    sent = stream.begin() + stream.text("Let me look.")
    sent += stream.end(answer(text="Let me look.", tool_calls=calls, finish="tool"))
    with client_that_hears(sent).responses.stream(model="podium", input="hello") as heard:
        snapshots = [
            event.snapshot
            for event in heard
            if event.type == "response.function_call_arguments.delta"
        ]
        final = heard.get_final_response()
    assert snapshots == ['{"n":0}', '{"n":1}', '{"n":2}']
    called = [item for item in final.output if item.type == "function_call"]
    assert [item.call_id for item in called] == ["call_0", "call_1", "call_2"]
    assert len({item.id for item in called}) == 3


def test_a_call_without_arguments_has_no_delta() -> None:
    stream = writer(tools=[WEATHER])
    sent = stream.begin()
    sent += stream.end(answer(tool_calls=(ToolCall("call_1", "weather", ""),), finish="tool"))
    assert "function_call_arguments.delta" not in event_names(sent)


def test_a_custom_tool_is_called_with_its_free_text() -> None:
    stream = writer(tools=[{"type": "custom", "name": "apply_patch"}])
    call = ToolCall("call_1", "apply_patch", '{"input": "*** Begin Patch"}')
    sent = stream.begin() + stream.end(answer(tool_calls=(call,), finish="tool"))
    with client_that_hears(sent).responses.stream(model="podium", input="hello") as heard:
        item = heard.get_final_response().output[0]
    assert item.type == "custom_tool_call"
    assert item.input == "*** Begin Patch"
    assert event_names(sent)[3:5] == ["custom_tool_call_input.delta", "custom_tool_call_input.done"]


def test_structured_output_is_parsed_by_the_sdk() -> None:
    form = {
        "type": "json_schema",
        "name": "Verdict",
        "strict": True,
        "schema": Verdict.model_json_schema(),
    }
    stream = writer(text={"format": form})
    sent = stream.begin() + stream.text('{"answer"') + stream.text(": 42}")
    sent += stream.end(answer(text='{"answer": 42}'))
    heard = client_that_hears(sent).responses
    with heard.stream(model="podium", input="hello", text_format=Verdict) as parsed:
        final = parsed.get_final_response()
    assert final.output_parsed == Verdict(answer=42)


def test_an_answer_that_was_cut_off_ends_incomplete() -> None:
    stream = writer()
    sent = stream.begin() + stream.text("Hel") + stream.end(answer(text="Hel", finish="length"))
    last = events_of(sent)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "incomplete"
    assert last["response"]["usage"]["output_tokens"] == 12


def test_a_refusal_of_which_nothing_was_streamed_is_a_refusal_in_words() -> None:
    stream = writer()
    sent = stream.begin() + stream.end(answer(text="I will not.", finish="refused"))
    assert event_names(sent)[2:8] == [
        "output_item.added",
        "content_part.added",
        "refusal.delta",
        "refusal.done",
        "content_part.done",
        "output_item.done",
    ]
    with client_that_hears(sent).responses.stream(model="podium", input="hello") as heard:
        item = heard.get_final_response().output[0]
    assert item.type == "message"
    assert item.content[0].type == "refusal"


def test_a_refusal_after_text_is_incomplete_for_its_content() -> None:
    stream = writer()
    sent = stream.begin() + stream.text("I wi") + stream.end(answer(text="I wi", finish="refused"))
    last = events_of(sent)[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "content_filter"}


def test_a_failure_is_reported_as_an_error_and_a_response_that_failed() -> None:
    stream = writer()
    sent = stream.begin() + stream.text("Hel")
    sent += stream.fail(ApiError("upstream", "no worker could answer; try again"))
    error, failed = events_of(sent)[-2:]
    assert (error["type"], error["message"]) == ("error", "no worker could answer; try again")
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"]["code"] == "server_error"
    assert failed["response"]["output"][0]["content"][0]["text"] == "Hel"
    assert failed["response"]["output"][0]["status"] == "incomplete"
    assert failed["response"]["usage"] is None


def test_a_failure_in_the_middle_of_thinking_shows_what_was_thought() -> None:
    stream = writer(reasoning={"summary": "auto"})
    sent = stream.begin() + stream.progress("One.") + stream.thinking("Hm")
    failed = events_of(sent + stream.fail(ApiError("failed", "a fault of ours")))[-1]
    summary = failed["response"]["output"][0]["summary"]
    assert [part["text"] for part in summary] == ["One.", "Hm"]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("rate_limited", "rate_limit_exceeded"),
        ("invalid", "invalid_prompt"),
        ("failed", "server_error"),
    ],
)
def test_a_response_that_failed_has_a_code_of_the_api(reason: Any, code: str) -> None:
    stream = writer()
    failed = events_of(stream.begin() + stream.fail(ApiError(reason, "no")))[-1]
    assert failed["response"]["error"]["code"] == code


def test_a_keep_alive_is_an_event_that_changes_nothing() -> None:
    stream = writer()
    sent = stream.begin() + stream.keep_alive() + stream.text("Hi") + stream.keep_alive()
    sent += stream.end(answer(text="Hi"))
    assert event_names(sent).count("in_progress") == 3
    with client_that_hears(sent).responses.stream(model="podium", input="hello") as heard:
        assert heard.get_final_response().output_text == "Hi"


def test_an_answer_of_nothing_completes() -> None:
    stream = writer()
    last = events_of(stream.begin() + stream.end(answer()))[-1]
    assert (last["type"], last["response"]["output"]) == ("response.completed", [])


def test_usage_is_reported_at_the_end_and_not_before() -> None:
    events = events_of(plain_stream())
    assert events[0]["response"]["usage"] is None
    assert events[-1]["response"]["usage"]["total_tokens"] == 42


def test_unknown_usage_is_not_made_up() -> None:
    stream = writer()
    ended = answer(text="Hi", usage=UNKNOWN_USAGE, orchestration=UNKNOWN_USAGE)
    assert events_of(stream.begin() + stream.end(ended))[-1]["response"]["usage"] is None


def test_text_of_any_kind_is_reported_as_it_is() -> None:
    odd = 'line\nnext\r\n\u2028"quoted" \U0001f3bc data: x\n\n'
    stream = writer()
    sent = stream.begin() + stream.text(odd) + stream.end(answer(text=odd))
    with client_that_hears(sent).responses.stream(model="podium", input="hello") as heard:
        assert heard.get_final_response().output_text == odd


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
TOLD = st.lists(
    st.tuples(st.sampled_from(["progress", "thinking", "text", "keep_alive"]), WORDS), max_size=8
)
CALLED = st.lists(st.sampled_from(["weather", "patch"]), max_size=2)


@settings(max_examples=40, deadline=None)
@given(TOLD, CALLED, st.booleans())
def test_the_sdk_assembles_any_order_of_events(
    pieces: list[tuple[str, str]], called: list[str], thought: bool
) -> None:
    stream = writer(
        reasoning={"summary": "auto"},
        include=["reasoning.encrypted_content"],
        tools=[WEATHER, {"type": "custom", "name": "patch"}],
    )
    sent = stream.begin()
    for kind, words in pieces:
        sent += stream.keep_alive() if kind == "keep_alive" else getattr(stream, kind)(words)
    text = "".join(words for kind, words in pieces if kind == "text")
    calls = tuple(ToolCall(f"call_{n}", name, '{"input":"x"}') for n, name in enumerate(called))
    ended = answer(text=text, tool_calls=calls, thinking=(THOUGHT,) if thought else ())
    sent += stream.end(ended)
    done = [event["item"] for event in events_of(sent) if event["type"].endswith("item.done")]
    with client_that_hears(sent).responses.stream(model="podium", input="hello") as heard:
        final = heard.get_final_response()
    assert final.output_text == text
    assert events_of(sent)[-1]["response"]["output"] == done
    assert len({item["id"] for item in done}) == len(done)
    assert sum("encrypted_content" in item for item in done) == thought
    assert len([item for item in done if "call_id" in item]) == len(calls)


def test_a_call_is_reported_in_pieces() -> None:
    stream = writer(tools=[WEATHER])
    pieces = [Delta(piece, "tool_call", 0, "call_1", "weather") for piece in ("", '{"city":')]
    call, other = ToolCall("call_1", "weather", '{"city":1}'), ToolCall("call_2", "weather", "{}")
    sent = stream.begin() + b"".join(map(stream.tool_call, pieces))
    sent += stream.end(answer(tool_calls=(call, other), finish="tool"), "", ['{"city":'])
    assert event_names(sent)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    output = events_of(sent)[-1]["response"]["output"]
    assert [item["arguments"] for item in output] == ['{"city":1}', "{}"]


def test_a_call_is_reported_whole_where_it_is_rewritten_or_thinking_comes_before_it() -> None:
    patch = {"type": "custom", "name": "patch"}
    assert writer(tools=[WEATHER]).streams_call("weather")
    assert not writer(tools=[patch]).streams_call("patch")
    include = ["reasoning.encrypted_content"]
    assert not writer(tools=[WEATHER], include=include).streams_call("weather")
