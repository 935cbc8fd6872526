from __future__ import annotations

from typing import Any, Final

import pytest

from podium.core.request import (
    PDF,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    system,
    user,
)
from podium.server.api_error import ApiError
from podium.server.dialects.content import encode_thinking
from podium.server.dialects.responses import RESPONSES
from support.readers import read_strictly

PIXEL: Final = "data:image/png;base64,iVBORw0KGgo="
QUESTION: Final = {"role": "user", "content": "And now?"}
CALL: Final = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'}
RESULT: Final = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}


def read_items(items: Any, **options: Any) -> tuple[Message, ...]:
    return read_strictly(RESPONSES, {"model": "podium", "input": items, **options}).messages


def refused(items: Any, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_items(items, **options)
    assert caught.value.reason == "invalid"
    return caught.value


def test_a_text_is_the_users_question() -> None:
    assert read_items("What is 6 x 7?") == (user("What is 6 x 7?"),)


def test_messages_of_other_agents_are_user_turns() -> None:
    task = {"type": "input_text", "text": "Payload:\n"}
    payload = {"type": "encrypted_content", "encrypted_content": "Look."}
    said = {"type": "agent_message", "id": "amsg_1", "author": "/root", "recipient": "/root/look"}
    (message,) = read_items([said | {"content": [task, payload]}])
    assert message == Message("user", (Text("Payload:\n"), Text("Look.")))
    assert refused([said | {"content": [payload | {"key": "k"}]}]).field == "input.0.content.0.key"


def test_instructions_come_first() -> None:
    assert read_items("hello", instructions="Be kind.") == (system("Be kind."), user("hello"))


def test_messages_keep_their_roles_and_order() -> None:
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "hello"},
        {"type": "message", "role": "assistant", "content": "Hi!"},
        QUESTION,
    ]
    words = [system("Be kind."), system("Be short."), user("hello"), assistant("Hi!")]
    assert read_items(items) == (*words, user("And now?"))


def test_parts_of_a_message_are_read_in_order() -> None:
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": PIXEL, "detail": "high"},
        {"type": "input_image", "image_url": "https://example.org/cat.png"},
    ]
    (message,) = read_items([{"role": "user", "content": content}])
    assert message.parts == (
        Text("What is this?"),
        Image("image/png", "iVBORw0KGgo=", detail="high"),
        Image(url="https://example.org/cat.png"),
    )


def test_a_message_of_the_assistant_is_taken_back_as_it_was_given() -> None:
    item = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "Hi!", "annotations": [], "logprobs": []}],
    }
    assert read_items([item, QUESTION])[0] == assistant("Hi!")


def test_a_refusal_is_assistant_text() -> None:
    item = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert read_items([item, QUESTION])[0] == assistant("No.")


def test_consecutive_assistant_items_become_one_message() -> None:
    thought = Thinking("Hm.", "signed", "claude")
    items = [
        {"role": "user", "content": "hello"},
        {"type": "message", "role": "assistant", "content": "Let me look."},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "encrypted_content": encode_thinking([thought]),
        },
        CALL,
        CALL | {"call_id": "call_2"},
        RESULT,
        RESULT | {"call_id": "call_2", "output": "dry"},
    ]
    _, did, results = read_items(items)
    calls = (ToolCall("call_1", "f", '{"a":1}'), ToolCall("call_2", "f", '{"a":1}'))
    assert did == Message("assistant", (thought, Text("Let me look."), *calls))
    assert results == Message("tool", (ToolResult("call_1", "sunny"), ToolResult("call_2", "dry")))


def test_the_words_of_two_messages_in_one_go_are_parted() -> None:
    said = [{"role": "assistant", "content": word} for word in ("One.", "Two.")]
    assert read_items([*said, QUESTION])[0].text == "One.\n\nTwo."


def test_pictures_that_a_tool_gave_are_its_results() -> None:
    seen = [
        {"type": "input_text", "text": "a cat"},
        {"type": "input_image", "image_url": PIXEL},
    ]
    last = read_items([QUESTION, CALL, RESULT | {"output": seen}])[-1]
    shown = (Image("image/png", "iVBORw0KGgo="),)
    assert last.parts == (ToolResult("call_1", "a cat", images=shown),)


def test_a_document_in_a_tool_result_is_named() -> None:
    file = {"type": "input_file", "filename": "plan.pdf", "file_data": "data:application/pdf;,"}
    seen = [{"type": "input_text", "text": "Here it is."}, file]
    last = read_items([QUESTION, CALL, RESULT | {"output": seen}])[-1]
    words = "Here it is.\n[a document that you cannot read: plan.pdf]"
    assert last.parts == (ToolResult("call_1", words),)


@pytest.mark.parametrize(
    "data", ["data:text/plain,The%20answer", "data:text/plain;base64,VGhlIGFuc3dlcg=="]
)
def test_the_text_of_a_document_in_a_tool_result_is_passed_on(data: str) -> None:
    file = {"type": "input_file", "filename": "notes.txt", "file_data": data}
    last = read_items([QUESTION, CALL, RESULT | {"output": [file]}])[-1]
    assert last.parts == (ToolResult("call_1", "[document: notes.txt]\nThe answer"),)


def test_a_document_of_the_users_is_refused_with_what_to_send_instead() -> None:
    file = {"type": "input_file", "filename": "plan.pdf", "file_data": "data:application/pdf;,"}
    found = str(refused([{"role": "user", "content": [file]}]))
    assert "expected file_data with UTF-8 text" in found


def test_a_pdf_of_the_users_and_of_a_tool_is_read() -> None:
    data = {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0="}
    linked = {"type": "input_file", "file_url": "https://example.org/a.pdf"}
    read = read_items([{"role": "user", "content": [data, linked]}])[-1]
    assert read.parts == (Image(PDF, "JVBERi0="), Image(PDF, url="https://example.org/a.pdf"))
    last = read_items([QUESTION, CALL, RESULT | {"output": [data]}])[-1]
    assert last.parts == (ToolResult("call_1", "", images=(Image(PDF, "JVBERi0="),)),)


def test_custom_tool_calls_and_their_outputs_are_read() -> None:
    call = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "*** Begin"}
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done!"}
    _, did, results = read_items([QUESTION, call, output])
    assert did.parts == (ToolCall("call_1", "patch", '{"input": "*** Begin"}'),)
    assert results.parts == (ToolResult("call_1", "Done!"),)


def test_a_call_within_a_namespace_has_the_name_that_workers_know() -> None:
    call = CALL | {"namespace": "mcp__docs", "name": "search"}
    assert read_items([QUESTION, call, RESULT])[1].parts[0] == ToolCall(
        "call_1", "mcp__docs__search", '{"a":1}'
    )


@pytest.mark.parametrize(
    "reasoning",
    [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABexample"},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
    ],
)
def test_reasoning_of_other_models_is_dropped(reasoning: Any) -> None:
    assert read_items([reasoning, QUESTION]) == (user("And now?"),)


def test_thinking_of_earlier_turns_is_left_out_where_the_client_says_so() -> None:
    thought = encode_thinking([Thinking("Hm.", "signed", "claude")])
    items = [
        {"role": "user", "content": "hello"},
        {"type": "reasoning", "summary": [], "encrypted_content": thought},
        {"role": "assistant", "content": "Hi!"},
        QUESTION,
    ]
    assert read_items(items, reasoning={"context": "current_turn"})[1] == assistant("Hi!")
    assert len(read_items(items, reasoning={"context": "all_turns"})[1].parts) == 2


def test_thinking_of_this_turn_is_kept() -> None:
    thought = encode_thinking([Thinking("Hm.", "signed", "claude")])
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": thought}
    messages = read_items([QUESTION, sealed, CALL, RESULT], reasoning={"context": "current_turn"})
    assert isinstance(messages[1].parts[0], Thinking)


def test_instructions_that_come_last_stay_last() -> None:
    late = {"role": "developer", "content": "Be short."}
    assert read_items([QUESTION, late]) == (user("And now?"), system("Be short."))
    assert [message.role for message in read_items([QUESTION, CALL, RESULT, late])] == [
        "user",
        "assistant",
        "tool",
        "system",
    ]


def test_a_result_may_answer_a_call_of_an_earlier_response() -> None:
    asked = read_strictly(
        RESPONSES, {"model": "podium", "input": [RESULT], "previous_response_id": "resp_1"}
    )
    assert asked.previous_response == "run_1"
    assert asked.messages == (Message("tool", (ToolResult("call_1", "sunny"),)),)


def test_a_result_without_its_call_is_refused_by_its_id() -> None:
    refusal = refused([QUESTION, RESULT])
    assert refusal.field == "input.1.call_id"
    assert "'call_1'" in str(refusal)


def test_a_call_without_its_result_is_refused_by_its_id() -> None:
    refusal = refused([QUESTION, CALL, QUESTION])
    assert refusal.field == "input.1.call_id"
    assert "has no result" in str(refusal)


def test_a_second_result_of_one_call_is_refused() -> None:
    assert refused([QUESTION, CALL, RESULT, RESULT]).field == "input.3.call_id"


def test_two_calls_with_one_id_are_refused() -> None:
    assert refused([QUESTION, CALL, CALL, RESULT]).field == "input.2.call_id"


def test_an_id_may_be_used_again_when_its_call_was_answered() -> None:
    assert len(read_items([QUESTION, CALL, RESULT, QUESTION, CALL, RESULT])) == 6


@pytest.mark.parametrize(
    ("items", "field"),
    [
        (None, "input"),
        ("", "input"),
        ([], "input"),
        (7, "input"),
        ([{"role": "system", "content": "Be kind."}], "input"),
        ([{"role": "user", "content": "  "}], "input"),
        ([{"role": "user", "content": []}], "input"),
        (["hello"], "input.0"),
        ([{}], "input.0.type"),
        ([{"type": "web_search_call", "id": "ws_1"}], "input.0.type"),
        ([{"type": "compaction", "encrypted_content": "x"}], "input.0.type"),
        ([{"type": "item_reference", "id": 1}], "input.0.type"),
        ([{"role": "king", "content": "hello"}], "input.0.role"),
        ([{"role": "user"}], "input.0.content"),
        ([{"role": "user", "content": "hi", "mood": "good"}], "input.0.mood"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], "input.0.content.0.type"),
        ([{"role": "user", "content": [{"type": "input_file"}]}], "input.0.content.0"),
        (
            [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}],
            "input.0.content.0.file_id",
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]}],
            "input.0.content.0.image_url",
        ),
        (
            [{"role": "system", "content": [{"type": "input_image", "image_url": PIXEL}]}],
            "input.0.content.0",
        ),
        ([CALL | {"arguments": {}}], "input.0.arguments"),
        ([CALL | {"call_id": ""}], "input.0.call_id"),
        ([RESULT | {"output": 7}], "input.0.output"),
        (
            [{"type": "reasoning", "summary": [], "encrypted_content": "podium.opaque.!"}],
            "input.0.encrypted_content",
        ),
    ],
)
def test_item_errors_are_named(items: Any, field: str) -> None:
    assert refused(items).field == field


@pytest.mark.parametrize("kind", ["compaction", "compaction_trigger"])
def test_a_compaction_request_is_refused_with_codexs_own_alternative(kind: str) -> None:
    assert "[model_providers]" in str(refused([QUESTION, {"type": kind}]))


def test_many_items_are_read_in_time() -> None:
    items = [CALL | {"call_id": f"call_{where}"} for where in range(5_000)]
    results = [RESULT | {"call_id": f"call_{where}"} for where in range(5_000)]
    assert len(read_items([QUESTION, *items, *results])) == 3
