"""Thinking that Anthropic's clients hand back."""

from __future__ import annotations

from typing import Any

import pytest

from podium.core.request import Text, Thinking
from podium.server.dialects.anthropic_response import (
    NO_SIGNATURE,
    redacted_block,
    thinking_block,
    thinking_effort,
)
from podium.server.dialects.content import encode_thinking
from support.messages_sdk import asked, refusal, said

OPUS = Thinking("Let me see.", '{"signature": "s"}', "claude-opus")
QWEN = Thinking("Hm.", "", "qwen")


def handed_back(*blocks: dict[str, Any]) -> tuple[Any, ...]:
    """The parts of an assistant turn with these blocks and a word."""
    turn = asked(**said([*blocks, {"type": "text", "text": "Hi"}], "assistant")).messages[1]
    return turn.parts


@pytest.mark.parametrize("in_words", [True, False])
def test_thinking_comes_back_with_the_model_that_did_it(in_words: bool) -> None:
    block = thinking_block((OPUS, QWEN), in_words=in_words)
    assert handed_back(block) == (OPUS, QWEN, Text("Hi"))


def test_a_redacted_thinking_block_is_read_back() -> None:
    assert handed_back(redacted_block(encode_thinking((OPUS,)))) == (OPUS, Text("Hi"))


def test_thinking_is_put_first_wherever_the_client_has_it() -> None:
    late = [{"type": "text", "text": "Hi"}, redacted_block(encode_thinking((OPUS,)))]
    assert asked(**said(late, "assistant")).messages[1].parts == (OPUS, Text("Hi"))


def test_thinking_without_a_signature_is_not_read_back() -> None:
    block = {"type": "thinking", "thinking": "Planning", "signature": NO_SIGNATURE}
    assert handed_back(block) == (Text("Hi"),)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "Hm", "signature": "EqoBCkYIARgCKkDfoo=="},
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
    ],
)
def test_thinking_of_another_service_belongs_to_no_model_here(block: dict[str, Any]) -> None:
    assert handed_back(block) == (Text("Hi"),)


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed[:-7],
        lambda sealed: sealed[:20] + "!" + sealed[20:],
        lambda sealed: "podium.opaque.bnVsbA==",
        lambda sealed: "podium.opaque.W1sxLDIsM11d",
    ],
)
def test_a_seal_that_was_changed_is_refused_with_its_field(change: Any) -> None:
    block = {"type": "thinking", "thinking": "", "signature": change(encode_thinking((OPUS,)))}
    refused = refusal(**said([block], "assistant"))
    assert refused.field == "messages.1.content.0.signature"
    assert "unchanged" in str(refused)


def test_thinking_without_a_signature_is_refused() -> None:
    refused = refusal(**said([{"type": "thinking", "thinking": "Hm"}], "assistant"))
    assert refused.field == "messages.1.content.0.signature"


def test_a_budget_for_thinking_is_an_effort() -> None:
    assert thinking_effort(None) is None
    assert [thinking_effort(tokens) for tokens in (1024, 8000, 32_000)] == [
        "low",
        "medium",
        "high",
    ]
