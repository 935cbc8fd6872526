from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.core.request import Thinking
from podium.server.api_error import ApiError
from podium.server.dialects.content import decode_thinking, encode_thinking

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(st.builds(Thinking, WORDS, WORDS, WORDS.filter(bool)), min_size=1, max_size=4))
def test_sealed_data_is_recovered(thinking: list[Thinking]) -> None:
    assert decode_thinking(encode_thinking(thinking), "data") == tuple(thinking)


def test_thinking_of_no_model_is_not_sealed() -> None:
    assert encode_thinking([Thinking("Hm.")]) == ""


@pytest.mark.parametrize("words", ["", "gAAAAAB0", "a signature"])
def test_data_sealed_with_another_key_is_ignored(words: str) -> None:
    assert decode_thinking(words, "data") == ()


@pytest.mark.parametrize(
    "inside", [b"", b"{", b"7", b'[["Hm."]]', b'[["Hm.", "x", ""]]', b'[[1, "x", "m"]]', b"\xff"]
)
def test_a_seal_that_was_changed_is_refused(inside: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        decode_thinking(
            "podium.opaque." + base64.b64encode(inside).decode(), "input.0.encrypted_content"
        )
    assert caught.value.field == "input.0.encrypted_content"


@given(st.binary(max_size=60))
def test_anything_in_a_seal_is_read_or_refused(inside: bytes) -> None:
    with suppress(ApiError):
        found = decode_thinking("podium.opaque." + base64.b64encode(inside).decode(), "data")
        assert all(isinstance(part, Thinking) and part.model for part in found)
