"""Conversations in Messages bodies."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from podium.core.request import Image, Message, Text, Thinking, ToolCall, ToolResult, system, user
from podium.server.dialects.anthropic_response import thinking_block
from podium.server.dialects.content import MAX_IMAGE_BYTES
from support.messages_sdk import asked, refusal, said

PNG = base64.b64encode(b"\x89PNG").decode()
CALL = {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}}
RESULT = {"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"}
HELLO = {"role": "user", "content": "Hello"}
PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
    "cache_control": {"type": "ephemeral"},
}


def after_call(*blocks: dict[str, Any], calls: int = 1) -> dict[str, Any]:
    """The `messages` of a body that answers the calls of an assistant."""
    asked_for = [CALL | {"id": f"call_{number}"} for number in range(1, calls + 1)]
    return {
        "messages": [
            HELLO,
            {"role": "assistant", "content": asked_for},
            {"role": "user", "content": list(blocks)},
        ]
    }


def test_content_may_be_text_or_blocks() -> None:
    assert asked(**said("Hello")).messages == (user("Hello"),)
    assert asked(**said([{"type": "text", "text": "Hello"}])).messages == (user("Hello"),)


def test_several_text_blocks_stay_apart() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert asked(**said(blocks)).messages[0].parts == (Text("a"), Text("b"))


def test_the_system_prompt_comes_first() -> None:
    assert asked(system="Be brief.").messages == (system("Be brief."), user("Hello"))


def test_blocks_of_the_system_prompt_are_one_text() -> None:
    hinted = {"cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"}}
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"} | hinted]
    assert asked(system=blocks).messages[0] == system("a\n\nb")


def test_a_note_to_anthropics_billing_reaches_no_worker() -> None:
    note = "x-anthropic-billing-header: cc_version=2.1.165.0d9; cc_entrypoint=cli; cch=fa690;"
    blocks = [{"type": "text", "text": note}, {"type": "text", "text": "You are Claude Code."}]
    assert asked(system=blocks).messages[0] == system("You are Claude Code.")


def test_system_messages_stay_where_they_are_in_the_conversation() -> None:
    note = {"role": "system", "content": [{"type": "text", "text": "The plan changed."}]}
    read = asked(messages=[HELLO, note]).messages
    assert read == (user("Hello"), system("The plan changed."))


def test_an_image_may_come_as_base64() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    read = asked(**said([{"type": "image", "source": source}])).messages[0]
    assert read.parts == (Image(media_type="image/png", data=PNG),)


def test_an_image_may_come_by_its_address() -> None:
    source = {"type": "url", "url": "https://example.org/cat.png"}
    read = asked(**said([{"type": "image", "source": source}])).messages[0]
    assert read.parts == (Image(url="https://example.org/cat.png"),)


@pytest.mark.parametrize(
    ("source", "field", "words"),
    [
        ({"type": "file", "file_id": "f"}, "type", "base64 or url"),
        ({"type": "base64", "media_type": "image/png", "data": "#"}, "", "base64"),
        ({"type": "base64", "media_type": "image/bmp", "data": PNG}, "", "image/png"),
        ({"type": "base64", "media_type": "image/png"}, "data", "required"),
        ({"type": "url", "url": "file:///etc/passwd"}, "url", "https"),
        ({"type": "telepathy"}, "type", "base64"),
    ],
)
def test_an_image_that_cannot_be_read_is_refused(
    source: dict[str, str], field: str, words: str
) -> None:
    refused = refusal(**said([{"type": "image", "source": source}]))
    path = "messages.0.content.0.source"
    assert refused.field == (f"{path}.{field}" if field else path)
    assert words in str(refused)


def test_an_image_that_is_too_large_is_refused_as_such() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * (MAX_IMAGE_BYTES * 3 // 2)}
    assert refusal(**said([{"type": "image", "source": source}])).status == 413


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("search_result", "as text"),
        ("container_upload", "send the file's text"),
        ("web_search_tool_result", "Anthropic's own tools"),
        ("server_tool_use", "Anthropic's own tools"),
        ("compaction", "send the messages"),
        ("nonsense", "leave out"),
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_block_that_is_not_served_is_refused_with_what_to_send_instead(
    role: str, kind: str, instead: str
) -> None:
    refused = refusal(**said([{"type": kind}], role))
    assert refused.field == f"messages.{0 if role == 'user' else 1}.content.0.type"
    assert instead in str(refused)


def test_a_document_in_a_tool_result_is_named() -> None:
    shown = [{"type": "text", "text": "Here it is."}, PDF | {"title": "plan.pdf"}]
    (result,) = asked(**after_call(RESULT | {"content": shown})).messages[-1].parts
    assert isinstance(result, ToolResult)
    assert result.text == "Here it is.\n[document: plan.pdf]"
    assert result.images == (Image("application/pdf", "JVBERi0="),)


NOTES = {"type": "text", "media_type": "text/plain", "data": "The answer is 42"}
IN_BASE64 = {"type": "base64", "media_type": "text/plain", "data": "VGhlIGFuc3dlciBpcyA0Mg=="}
IN_BLOCKS = {"type": "content", "content": [{"type": "text", "text": "The answer is 42"}]}
IN_WORDS = {"type": "content", "content": "The answer is 42"}


@pytest.mark.parametrize("source", [NOTES, IN_BASE64, IN_BLOCKS, IN_WORDS])
def test_words_of_a_document_are_handed_on(source: dict[str, Any]) -> None:
    notes = {"type": "document", "source": source}
    within = asked(**after_call(RESULT | {"content": [notes]})).messages[-1].parts
    assert within == (ToolResult("call_1", "The answer is 42"),)
    beside = asked(**after_call(RESULT, notes)).messages[-1].parts
    assert beside == (ToolResult("call_1", "sunny"), Text("The answer is 42"))


def test_document_title_and_context_precede_its_text() -> None:
    notes = {
        "type": "document",
        "source": NOTES,
        "title": "notes.txt",
        "context": "Of Deep Thought",
    }
    *_, result = asked(**after_call(RESULT, notes)).messages[-1].parts
    text = "[document: notes.txt]\nOf Deep Thought\nThe answer is 42"
    assert result == Text(text, title="notes.txt")


def test_pictures_within_a_document_are_seen() -> None:
    words = {"type": "text", "text": "A pixel:"}
    pixel = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    shown = {"type": "document", "source": {"type": "content", "content": [words, pixel]}}
    (result,) = asked(**after_call(RESULT | {"content": [shown]})).messages[-1].parts
    images = (Image(url="https://example.org/a.png"),)
    assert result == ToolResult("call_1", "A pixel:", images=images)


def test_a_document_holds_no_other() -> None:
    within = {"type": "content", "content": [{"type": "document", "source": NOTES}]}
    refused = refusal(**after_call(RESULT, {"type": "document", "source": within}))
    assert refused.field == "messages.2.content.1.source.content.0.type"


def test_a_document_that_says_nothing_adds_nothing() -> None:
    empty = {"type": "document", "source": NOTES | {"data": ""}}
    parts = asked(**after_call(RESULT, empty)).messages[-1].parts
    assert parts == (ToolResult("call_1", "sunny"),)


@pytest.mark.parametrize(
    "source",
    [
        IN_BASE64 | {"media_type": "application/zip"},
        IN_BASE64 | {"media_type": "text/plain; charset=utf-16"},
        {"type": "file", "file_id": "file_1"},
    ],
)
def test_of_a_document_that_no_worker_reads_it_is_reported_that_there_was_one(
    source: dict[str, Any],
) -> None:
    refused = refusal(**said([{"type": "document", "source": source}]))
    assert refused.field == "messages.0.content.0.source"
    assert "pages as images" in str(refused)
    *_, result = (
        asked(**after_call(RESULT, {"type": "document", "source": source})).messages[-1].parts
    )
    assert isinstance(result, Text)
    assert result.text.startswith("[a document that you cannot read")


def test_a_document_beside_results_belongs_to_the_tool() -> None:
    (result,) = asked(**after_call(RESULT, PDF)).messages[-1].parts
    assert result == ToolResult("call_1", "sunny", images=(Image("application/pdf", "JVBERi0="),))


@pytest.mark.parametrize("source", [NOTES, IN_BASE64, IN_BLOCKS, IN_WORDS])
def test_a_user_may_send_a_document(source: dict[str, Any]) -> None:
    notes = {"type": "document", "source": source, "title": "Notes"}
    (message,) = asked(**said([notes, {"type": "text", "text": "Why?"}])).messages
    assert message.parts == (
        Text("[document: Notes]\nThe answer is 42\n\n", title="Notes"),
        Text("Why?"),
    )


def test_a_user_may_send_a_pdf() -> None:
    url = {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}
    (message,) = asked(**said([PDF | {"context": "A plan."}, url])).messages
    assert message.parts == (
        Text("A plan.\n\n"),
        Image("application/pdf", "JVBERi0="),
        Image("application/pdf", url="https://example.org/a.pdf"),
    )


@pytest.mark.parametrize("data", ["", "no base64!", 7, None])
def test_an_invalid_pdf_is_refused(data: Any) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    refused = refusal(**said([{"type": "document", "source": source}]))
    assert refused.field == "messages.0.content.0.source"


def test_an_invalid_document_is_refused() -> None:
    refused = refusal(**after_call(RESULT, {"type": "document"}))
    assert refused.field == "messages.2.content.1.source"


def test_a_reference_to_a_tool_names_the_setting_of_claude_code() -> None:
    content = [{"type": "tool_reference", "tool_name": "x"}]
    assert "ENABLE_TOOL_SEARCH=false" in str(refusal(**after_call(RESULT | {"content": content})))


@pytest.mark.parametrize(
    ("role", "block"), [("user", CALL), ("assistant", RESULT), ("assistant", {"type": "image"})]
)
def test_a_block_in_the_wrong_role_is_refused(role: str, block: dict[str, Any]) -> None:
    assert "message" in str(refusal(**said([block], role)))


def test_calls_and_results_are_read() -> None:
    read = asked(**after_call(RESULT)).messages
    assert read[1] == Message("assistant", (ToolCall("call_1", "weather", '{"city": "Rome"}'),))
    assert read[2] == Message("tool", (ToolResult("call_1", "sunny"),))


def test_fields_that_the_sdk_adds_to_calls_are_taken() -> None:
    added = CALL | {"caller": {"type": "direct"}, "toolset_name": None}
    turns = [
        HELLO,
        {"role": "assistant", "content": [added]},
        {"role": "user", "content": [RESULT]},
    ]
    assert asked(messages=turns).messages[1].parts[0] == ToolCall(
        "call_1", "weather", '{"city": "Rome"}'
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ""),
        ("sunny", "sunny"),
        ([], ""),
        ([{"type": "text", "text": "sunny"}], "sunny"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_a_result_may_be_nothing_or_text_or_blocks(content: Any, words: str) -> None:
    read = asked(**after_call(RESULT | {"content": content})).messages[2]
    assert read.parts == (ToolResult("call_1", words),)


def test_a_failed_tool_says_so() -> None:
    read = asked(**after_call(RESULT | {"is_error": True})).messages[2]
    assert read.parts == (ToolResult("call_1", "sunny", is_error=True),)


def test_pictures_of_a_result_are_its_own() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    content = [{"type": "text", "text": "See"}, picture]
    read = asked(**after_call(RESULT | {"content": content})).messages[2]
    shown = (Image(url="https://example.org/a.png"),)
    assert read.parts == (ToolResult("call_1", "See", images=shown),)


def test_results_come_before_the_words_beside_them() -> None:
    words = {"type": "text", "text": "Go on."}
    read = asked(**after_call(words, RESULT)).messages[2]
    assert read == Message("tool", (ToolResult("call_1", "sunny"), Text("Go on.")))


def test_results_of_parallel_calls_may_come_in_any_order_and_in_two_messages() -> None:
    second = RESULT | {"tool_use_id": "call_2"}
    body = after_call(second, calls=2)
    body["messages"].append({"role": "user", "content": [RESULT]})
    read = asked(**body).messages
    assert [
        part.call_id for turn in read[2:] for part in turn.parts if isinstance(part, ToolResult)
    ] == ["call_2", "call_1"]


def test_a_result_for_an_unknown_call_is_refused() -> None:
    refused = refusal(**said([RESULT]))
    assert refused.field == "messages.0.content.0.tool_use_id"
    assert "does not exist" in str(refused)


def test_a_call_is_answered_once() -> None:
    refused = refusal(**after_call(RESULT, RESULT))
    assert refused.field == "messages.2.content.1.tool_use_id"
    assert "already has a result" in str(refused)


def test_a_call_without_a_result_is_refused_at_the_end() -> None:
    refused = refusal(**after_call(RESULT, calls=2))
    assert refused.field == "messages.1.content.1"
    assert "call_2" in str(refused)


def test_a_call_without_a_result_is_refused_in_the_middle() -> None:
    later = [{"role": "assistant", "content": "Hm"}, HELLO]
    body = after_call({"type": "text", "text": "Never mind"})
    assert refusal(messages=body["messages"] + later).field == "messages.1.content.0"


def test_two_calls_of_one_id_are_refused() -> None:
    assert "two tool_use" in str(refusal(**said([CALL, CALL], "assistant")))


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
def test_a_turn_with_nothing_in_it_is_left_out(content: Any) -> None:
    assert asked(**said(content, "assistant")).messages == (user("Hello"), user("Hello"))


def test_an_answer_continues_the_assistants_last_words() -> None:
    began = {"role": "assistant", "content": "The answer is ( "}
    request = asked(messages=[HELLO, began])
    assert request.prefill == "The answer is ("
    assert request.response_options.is_prefilled
    assert not asked(messages=[HELLO]).response_options.is_prefilled


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "adaptive"}},
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    ],
)
def test_an_answer_that_is_begun_has_neither_thinking_nor_a_schema(fields: Any) -> None:
    began = {"role": "assistant", "content": "The answer is ("}
    refused = refusal(messages=[HELLO, began], **fields)
    assert refused.field == "messages"
    assert asked(messages=[HELLO, began], thinking={"type": "disabled"}).prefill


@pytest.mark.parametrize(
    "messages",
    [
        [HELLO, {"role": "assistant", "content": "Hm"}, {"role": "system", "content": "Go on."}],
        [{"role": "user", "content": ""}],
        [{"role": "system", "content": "Be brief."}],
    ],
)
def test_the_last_turn_must_ask_for_something(messages: Any) -> None:
    assert refusal(messages=messages).field == "messages"


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ([], "messages"),
        ("Hello", "messages"),
        ([7], "messages.0"),
        ([{"content": "Hello"}], "messages.0.role"),
        ([{"role": "tool", "content": "Hello"}], "messages.0.role"),
        ([{"role": "user"}], "messages.0.content"),
        ([{"role": "user", "content": 7}], "messages.0.content"),
        ([{"role": "user", "content": ["Hello"]}], "messages.0.content.0"),
        ([{"role": "user", "content": "Hello", "name": "Eve"}], "messages.0.name"),
        ([{"role": "user", "content": [{"text": "Hello"}]}], "messages.0.content.0.type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages.0.content.0.text"),
        ([{"role": "user", "content": "\ud83d"}], "messages.0.content"),
    ],
)
def test_a_malformed_conversation_is_refused_with_its_field(messages: Any, field: str) -> None:
    assert refusal(messages=messages).field == field


def test_hints_on_caching_are_taken_everywhere() -> None:
    hinted = {"cache_control": {"type": "ephemeral"}}
    body = after_call(RESULT | hinted, {"type": "text", "text": "So?"} | hinted)
    body["messages"][1]["content"][0] |= hinted
    assert asked(**body).messages[2].text == "So?"


def turns_with_thinking() -> list[dict[str, Any]]:
    """Two turns of an assistant that thinks, the second of them with a call in between."""

    def thought(words: str) -> dict[str, Any]:
        return thinking_block((Thinking(words, "", "opus"),), in_words=True)

    return [
        HELLO,
        {"role": "assistant", "content": [thought("one"), {"type": "text", "text": "Hi"}]},
        HELLO,
        {"role": "assistant", "content": [thought("two"), CALL]},
        {"role": "user", "content": [RESULT]},
        {"role": "assistant", "content": [thought("three")]},
        HELLO,
    ]


@pytest.mark.parametrize(
    ("edit", "kept"),
    [
        ({"keep": "all"}, ["one", "two", "three"]),
        ({"keep": {"type": "all"}}, ["one", "two", "three"]),
        ({"keep": {"type": "thinking_turns", "value": 2}}, ["one", "two", "three"]),
        ({"keep": {"type": "thinking_turns", "value": 1}}, ["two", "three"]),
        ({}, ["two", "three"]),
    ],
)
def test_thinking_is_cleared_from_all_but_the_latest_turns(
    edit: dict[str, Any], kept: list[str]
) -> None:
    edits = [{"type": "clear_thinking_20251015"} | edit]
    read = asked(messages=turns_with_thinking(), context_management={"edits": edits}).messages
    thoughts = [part.text for turn in read for part in turn.parts if isinstance(part, Thinking)]
    assert thoughts == kept
    assert [turn.role for turn in read if turn.role != "assistant"] == [
        "user",
        "user",
        "tool",
        "user",
    ]


def test_without_edits_all_thinking_is_kept() -> None:
    read = asked(messages=turns_with_thinking()).messages
    assert sum(isinstance(part, Thinking) for turn in read for part in turn.parts) == 3
