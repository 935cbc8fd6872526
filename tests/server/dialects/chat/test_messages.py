"""The messages of a Chat Completions body."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from podium.core.request import (
    PDF,
    Detail,
    Image,
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    system,
    user,
)
from podium.server.api_error import ApiError
from podium.server.dialects.chat_messages import conversation
from podium.server.dialects.fields import collect_unknown

ASKED = {"role": "user", "content": "Why?"}
PICTURE = base64.b64encode(b"\x89PNG and some more").decode()


def call(identity: str, name: str = "clock", arguments: str = "{}") -> dict[str, Any]:
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def calling(*identities: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [call(identity) for identity in identities]}


def result(identity: str, content: Any = "noon") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": content}


def read(*messages: Any) -> tuple[Message, ...]:
    return conversation(list(messages), "messages")


def refusal(*messages: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(*messages)
    return caught.value


def test_words_are_words_as_text_or_as_parts() -> None:
    parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "y?"}]
    assert read(ASKED) == (user("Why?"),)
    assert read({"role": "user", "content": parts})[0].text == "Why?"


def test_a_developer_speaks_as_the_system() -> None:
    messages = read({"role": "developer", "content": "Be brief"}, ASKED)
    assert messages == (system("Be brief"), user("Why?"))


def test_earlier_messages_keep_their_order() -> None:
    messages = read(
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello you"},
        ASKED,
    )
    assert messages == (system("Be brief"), user("Hello"), assistant("Hello you"), user("Why?"))


def test_messages_keep_their_order() -> None:
    messages = read(
        {"role": "assistant", "content": "Yes"}, ASKED, {"role": "system", "content": "Be"}
    )
    assert messages == (assistant("Yes"), user("Why?"), system("Be"))
    messages = read(ASKED, calling("c"), result("c"), {"role": "system", "content": "Be brief"})
    assert [message.role for message in messages] == ["user", "assistant", "tool", "system"]


def test_system_only_conversations_ask_their_last_message() -> None:
    messages = read(
        {"role": "system", "content": "Be brief"}, {"role": "system", "content": "Why?"}
    )
    assert messages == (system("Be brief"), user("Why?"))


def test_a_participant_is_named_in_words() -> None:
    (message,) = read({"role": "user", "name": "ada", "content": "Why?"})
    assert (message.text, message.name) == ("ada: Why?", "ada")
    assert read({"role": "user", "name": "", "content": "Why?"}) == (user("Why?"),)


def test_a_picture_may_be_an_address_or_bytes() -> None:
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
    ]
    assert read({"role": "user", "content": parts})[0].parts == (
        Text("What is it?"),
        Image(url="https://example.org/a.png"),
        Image(media_type="image/png", data=PICTURE),
    )


def test_a_picture_alone_is_a_question() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://example.org/a", "detail": "auto"}}
    assert len(read({"role": "user", "content": [part]})) == 1


def test_a_hint_at_the_cache_is_taken() -> None:
    part = {"type": "text", "text": "Why?", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert read({"role": "user", "content": [part]}) == (user("Why?"),)


def test_a_call_and_its_result_are_a_turn_each() -> None:
    messages = read(ASKED, calling("c1"), result("c1"))
    assert messages[1:] == (
        Message("assistant", (ToolCall("c1", "clock", "{}"),)),
        Message("tool", (ToolResult("c1", "noon"),)),
    )


def test_results_of_parallel_calls_are_one_message() -> None:
    messages = read(ASKED, calling("c1", "c2"), result("c2", "two"), result("c1", "one"))
    assert messages[-1] == Message("tool", (ToolResult("c2", "two"), ToolResult("c1", "one")))


def test_several_turns_with_tools_may_use_one_id_again() -> None:
    messages = read(ASKED, calling("c"), result("c"), calling("c"), result("c"), ASKED)
    assert [message.role for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
    ]


def test_a_result_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "no"}, {"type": "text", "text": "on"}]
    assert read(ASKED, calling("c"), result("c", parts))[-1].parts == (ToolResult("c", "noon"),)


def test_a_result_may_repeat_the_tools_name() -> None:
    assert read(ASKED, calling("c"), result("c") | {"name": "clock"})[-1].role == "tool"


def test_words_before_a_call_are_kept() -> None:
    messages = read(ASKED, calling("c") | {"content": "Let me look."}, result("c"))
    assert messages[1].parts == (Text("Let me look."), ToolCall("c", "clock", "{}"))


def test_reasoning_that_comes_back_is_thinking_of_no_known_model() -> None:
    said = {"role": "assistant", "content": "So.", "reasoning_content": "Hm"}
    assert read(said, ASKED)[0].parts == (Thinking("Hm"), Text("So."))


def test_a_refusal_is_assistant_text() -> None:
    parts = [{"type": "refusal", "refusal": "I will not."}]
    assert read({"role": "assistant", "content": parts}, ASKED)[0] == assistant("I will not.")
    said = {"role": "assistant", "content": None, "refusal": "I will not."}
    assert read(said, ASKED)[0] == assistant("I will not.")


@pytest.mark.parametrize(
    "addition",
    [
        {"provider_specific_fields": {"a": 1}},
        {"reasoning_details": [{"type": "x"}]},
        {"cache_control": {"type": "ephemeral"}},
        {"id": "m1"},
        {"createdAt": "2026-01-01"},
    ],
)
def test_extra_message_fields_are_ignored_and_named(addition: dict[str, Any]) -> None:
    unknown = collect_unknown()
    assert read(ASKED | addition) == (user("Why?"),)
    assert [(key.path, key.name) for key in unknown] == [("messages.0", next(iter(addition)))]


def test_extra_part_and_call_fields_are_ignored_and_named() -> None:
    part = {"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}}
    called = {**call("c"), "provider_specific_fields": {}}
    turns = ({"role": "assistant", "tool_calls": [called]}, result("c"))
    unknown = collect_unknown()
    assert read({"role": "user", "content": [part]}, *turns)[0] == user("Why?")
    assert [(key.path, key.name) for key in unknown] == [
        ("messages.0.content.0", "cache_control"),
        ("messages.1.tool_calls.0", "provider_specific_fields"),
    ]


def test_an_empty_assistant_message_is_an_empty_turn() -> None:
    silent: dict[str, Any] = {"role": "assistant"}
    for turn in (silent, silent | {"content": None, "tool_calls": []}):
        assert read(ASKED, turn, ASKED)[1] == Message("assistant", ())


def test_an_image_may_be_a_text() -> None:
    part = {"type": "image_url", "image_url": "https://a.org/b.png"}
    assert read({"role": "user", "content": [part]})[0].parts == (Image(url="https://a.org/b.png"),)


def test_a_call_needs_no_type() -> None:
    untyped = {name: value for name, value in call("c").items() if name != "type"}
    assert read(ASKED, {"role": "assistant", "tool_calls": [untyped]}, result("c"))[1].parts == (
        ToolCall("c", "clock", "{}"),
    )


def test_sdk_additions_to_messages_are_ignored() -> None:
    said: dict[str, Any] = {
        "role": "assistant",
        "content": '{"a": 1}',
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "parsed": {"a": 1},
        "tool_calls": None,
    }
    assert read(said, ASKED)[0] == assistant('{"a": 1}')


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Why?", ""),
        ({"content": "Why?"}, ".role"),
        ({"role": "robot", "content": "Why?"}, ".role"),
        ({"role": "function", "name": "f", "content": "1"}, ".role"),
        ({"role": "user"}, ".content"),
        ({"role": "user", "content": None}, ".content"),
        ({"role": "user", "content": 5}, ".content"),
        ({"role": "user", "content": []}, ".content"),
        ({"role": "user", "content": "Why?", "name": 7}, ".name"),
        ({"role": "user", "content": "Why?", "name": "a" * 65}, ".name"),
        ({"role": "user", "content": ["Why?"]}, ".content.0"),
        ({"role": "user", "content": [{"text": "Why?"}]}, ".content.0.type"),
        ({"role": "user", "content": [{"type": "text"}]}, ".content.0.text"),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, ".content.0"),
        ({"role": "user", "content": [{"type": "file", "file": {}}]}, ".content.0.file"),
        ({"role": "user", "content": [{"type": "video"}]}, ".content.0.type"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": "a.png"}]},
            ".content.0.image_url",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]},
            ".content.0.image_url.url",
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://a.org/b", "detail": "dim"}}
                ],
            },
            ".content.0.image_url.detail",
        ),
        (
            {"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            ".content.0.type",
        ),
        ({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}, ".function_call"),
        ({"role": "assistant", "content": "a", "audio": {"id": "x"}}, ".audio"),
        (
            {"role": "assistant", "tool_calls": [{"type": "custom", "id": "c"}]},
            ".tool_calls.0.type",
        ),
        (
            {"role": "assistant", "tool_calls": [{"type": "function", "id": "c"}]},
            ".tool_calls.0.function",
        ),
        (
            {"role": "assistant", "tool_calls": [call("c") | {"function": {"name": "f"}}]},
            ".tool_calls.0.function.arguments",
        ),
        ({"role": "tool", "content": "noon"}, ".tool_call_id"),
        ({"role": "tool", "content": "noon", "tool_call_id": "c"}, ".tool_call_id"),
    ],
)
def test_message_errors_are_named(message: Any, field: str) -> None:
    assert refusal(ASKED, message, ASKED).field == f"messages.1{field}"


def test_audio_is_refused_with_what_to_send_instead() -> None:
    found = refusal({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]})
    assert "send a transcript" in str(found)


@pytest.mark.parametrize(
    ("file", "part"),
    [
        (
            {"filename": "a.txt", "file_data": "data:text/plain;base64,Y2Fmw6k="},
            Text("[document: a.txt]\ncafé\n\n", "a.txt"),
        ),
        (
            {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
            Image(PDF, "JVBERi0="),
        ),
        ({"filename": "a.PDF", "file_data": "JVBERi0="}, Image(PDF, "JVBERi0=")),
    ],
)
def test_files_are_text_or_pdfs(file: dict[str, str], part: Part) -> None:
    found = read({"role": "user", "content": [{"type": "file", "file": file}]})
    assert found[-1].parts == (part,)


@pytest.mark.parametrize(
    "file",
    [{"file_id": "file-1"}, {"filename": "a.zip", "file_data": "data:application/zip;base64,UEs="}],
)
def test_other_files_are_refused_with_what_to_send_instead(file: dict[str, str]) -> None:
    found = refusal({"role": "user", "content": [{"type": "file", "file": file}]})
    assert "expected file_data with UTF-8 text" in str(found)


def test_no_messages_are_no_conversation() -> None:
    assert refusal().field == "messages"


def test_the_last_message_may_be_the_start_of_the_answer() -> None:
    messages = read(ASKED, {"role": "assistant", "content": "Because"})
    assert messages == (user("Why?"), assistant("Because"))


@pytest.mark.parametrize("content", ["", " \n", [{"type": "text", "text": ""}]])
def test_an_empty_question_is_refused(content: Any) -> None:
    assert refusal(ASKED, {"role": "user", "content": content}).field == "messages.1"


def test_empty_words_earlier_are_taken() -> None:
    assert len(read({"role": "assistant", "content": ""}, ASKED)) == 2


def test_a_result_for_an_unknown_call_is_refused_by_its_id() -> None:
    found = refusal(ASKED, calling("c1"), result("c1"), result("c9"))
    assert found.field == "messages.3.tool_call_id"
    assert "'c9'" in str(found)


def test_a_second_result_for_one_call_is_refused() -> None:
    assert refusal(ASKED, calling("c"), result("c"), result("c")).field == "messages.3.tool_call_id"


@pytest.mark.parametrize("after", [[], [ASKED], [result("c1")], [result("c1"), ASKED]])
def test_a_call_without_a_result_is_refused_by_its_id(after: list[Any]) -> None:
    assert "'c2'" in str(refusal(ASKED, calling("c1", "c2"), *after))


def test_two_calls_of_one_id_are_refused() -> None:
    assert refusal(ASKED, calling("c", "c"), result("c")).field == "messages.1"


@pytest.mark.parametrize("detail", ["auto", "low", "high", "original"])
def test_image_detail_is_sent_with_the_image(detail: Detail) -> None:
    url = {"url": "https://a.org/b", "detail": detail}
    content = [{"type": "text", "text": "This?"}, {"type": "image_url", "image_url": url}]
    (message,) = conversation([{"role": "user", "content": content}], "messages")
    assert message.parts[1] == Image(url="https://a.org/b", detail=detail)
