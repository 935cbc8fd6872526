"""Chat Completions streams, every chunk held against the SDK's own type."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk

from podium.core.request import UNKNOWN_USAGE, Delta, ToolCall, Usage
from podium.server.api_error import ApiError
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import ApiResponse, StreamWriter
from support.chat_sdk import chunks, events

OPENING = ApiResponse(id="run_1f", model="podium", created=7)
CALLS = (ToolCall("call_1", "clock", "{}"), ToolCall("call_2", "weather", '{"city":"Ulm"}'))


def writer(**fields: Any) -> StreamWriter:
    body = {"model": "podium", "messages": [{"role": "user", "content": "Why?"}], "stream": True}
    return CHAT.stream_writer(CHAT.read(body | fields), OPENING)


def counted() -> StreamWriter:
    return writer(stream_options={"include_usage": True})


def ended(**fields: Any) -> ApiResponse:
    return ApiResponse(id="run_1f", model="podium", created=7, **fields)


def delta(piece: bytes) -> dict[str, Any]:
    document = json.loads(piece.removeprefix(b"data: "))
    ChatCompletionChunk.model_validate(document, strict=True)
    found: dict[str, Any] = document["choices"][0]["delta"]
    return found


def test_a_stream_of_words_adds_up_to_the_answer() -> None:
    pen = writer()
    reported = chunks(
        pen.begin() + pen.text("Be") + pen.text("cause.") + pen.end(ended(text="Because."))
    )
    assert reported[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in reported) == "Because."
    assert [chunk.choices[0].finish_reason for chunk in reported] == [None, None, None, "stop"]


def test_every_chunk_has_the_same_id_time_and_model() -> None:
    pen = counted()
    reported = chunks(pen.begin() + pen.text("a") + pen.end(ended(text="a", tool_calls=CALLS)))
    assert {(chunk.id, chunk.created, chunk.model) for chunk in reported} == {
        ("chatcmpl-1f", 7, "podium")
    }


def test_a_piece_is_one_event_that_can_be_sent_at_once() -> None:
    piece = writer().text("a\nb\r\u2028")
    assert piece.startswith(b"data: ")
    assert piece.endswith(b"\n\n")
    assert b"\n" not in piece[:-2]
    assert delta(piece) == {"content": "a\nb\r\u2028"}


def test_progress_is_a_line_of_reasoning() -> None:
    assert delta(writer().progress("step 1: solver")) == {"reasoning_content": "step 1: solver\n"}


def test_thinking_is_reasoning_as_it_comes() -> None:
    assert delta(writer().thinking("Hm")) == {"reasoning_content": "Hm"}


def test_a_keep_alive_is_no_event() -> None:
    pen = writer()
    assert events(pen.begin() + pen.keep_alive() + pen.end(ended())) == events(
        pen.begin() + pen.end(ended())
    )
    assert pen.keep_alive().startswith(b":")
    assert pen.keep_alive().endswith(b"\n\n")


def test_every_call_comes_whole_with_its_index() -> None:
    pen = writer()
    reported = chunks(pen.begin() + pen.end(ended(tool_calls=CALLS, finish="tool")))
    calls = [call for chunk in reported for call in chunk.choices[0].delta.tool_calls or ()]
    assert [(call.index, call.id, call.type) for call in calls] == [
        (0, "call_1", "function"),
        (1, "call_2", "function"),
    ]
    assert calls[1].function is not None
    assert (calls[1].function.name, calls[1].function.arguments) == ("weather", '{"city":"Ulm"}')
    assert reported[-1].choices[0].finish_reason == "tool_calls"


def test_usage_comes_last_where_it_was_asked_for() -> None:
    pen = counted()
    reported = chunks(
        pen.begin() + pen.text("a") + pen.end(ended(text="a", usage=Usage(3, 4, 1, 2)))
    )
    assert reported[-1].choices == []
    assert reported[-1].usage is not None
    assert reported[-1].usage.total_tokens == 7
    assert [chunk.usage for chunk in reported[:-1]] == [None, None, None]


def test_other_chunks_say_that_usage_is_still_to_come() -> None:
    pen = counted()
    reported = events(pen.begin() + pen.end(ended(usage=Usage(3, 4))))
    assert all("usage" in chunk for chunk in reported)


def test_usage_is_not_sent_unasked() -> None:
    pen = writer()
    assert not any("usage" in chunk for chunk in events(pen.begin() + pen.end(ended())))


def test_unknown_usage_is_null_in_the_last_chunk() -> None:
    pen = counted()
    last = events(pen.begin() + pen.end(ended(usage=UNKNOWN_USAGE)))[-1]
    assert last["choices"] == []
    assert last["usage"] is None


def test_the_way_of_serving_is_repeated_in_every_chunk() -> None:
    pen = writer(service_tier="default")
    assert {chunk.service_tier for chunk in chunks(pen.begin() + pen.end(ended()))} == {"default"}


def test_a_failure_is_an_error_in_place_of_a_chunk() -> None:
    pen = writer()
    reported = events(pen.begin() + pen.text("Be") + pen.fail(ApiError("upstream", "it broke off")))
    assert reported[-1] == {
        "error": {
            "message": "it broke off",
            "type": "server_error",
            "param": None,
            "code": "upstream_error",
        }
    }


PIECES = st.lists(
    st.tuples(
        st.sampled_from(["text", "thinking", "progress", "keep_alive"]),
        st.text(st.characters(exclude_categories=())),
    ),
    max_size=8,
)
COUNT = st.none() | st.integers(0, 10**9)


@given(PIECES, st.booleans(), st.sampled_from([(), CALLS]), st.builds(Usage, COUNT, COUNT, COUNT))
def test_every_stream_fits_the_sdks_types(
    pieces: list[tuple[str, str]], counts: bool, calls: tuple[ToolCall, ...], used: Usage
) -> None:
    pen = counted() if counts else writer()
    stream = pen.begin()
    for kind, words in pieces:
        stream += pen.keep_alive() if kind == "keep_alive" else getattr(pen, kind)(words)
    text = "".join(words for kind, words in pieces if kind == "text")
    stream += pen.end(ended(text=text, tool_calls=calls, usage=used))
    reported = [chunk for chunk in chunks(stream) if chunk.choices]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in reported) == text
    assert sum(chunk.choices[0].finish_reason is not None for chunk in reported) == 1


def test_a_call_can_be_written_in_pieces() -> None:
    pen = writer()
    begun = [Delta(piece, "tool_call", 0, "call_1", "clock") for piece in ('{"zone', '":')]
    whole = ToolCall("call_1", "clock", '{"zone":"UTC"}')
    stream = pen.begin() + b"".join(map(pen.tool_call, begun))
    stream += pen.end(ended(tool_calls=(whole, CALLS[1])), "", ['{"zone":'])
    calls = [call for chunk in chunks(stream) for call in chunk.choices[0].delta.tool_calls or ()]
    assert [(call.index, call.id) for call in calls] == [
        (0, "call_1"),
        (0, None),
        (0, None),
        (1, "call_2"),
    ]
    pieces = [call.function.arguments for call in calls if call.function]
    assert pieces == ['{"zone', '":', '"UTC"}', '{"city":"Ulm"}']
