"""Documents as text."""

from __future__ import annotations

import pytest

from podium.core.request import Text
from podium.server.dialects.content import (
    decode_base64_text,
    decode_data_url,
    document_text,
    unreadable_document,
)

CAFE = "Y2Fmw6k="


@pytest.mark.parametrize(
    "address",
    [
        f"data:text/plain;base64,{CAFE}",
        f"DATA:Text/Markdown; Charset=UTF-8;base64,{CAFE}",
        f"data:;base64,{CAFE}",
        "data:text/csv,caf%C3%A9",
        "data:,café",
    ],
)
def test_an_address_of_text_says_its_words(address: str) -> None:
    assert decode_data_url(address) == "café"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "data:text/plain",
        "https://example.org/a,b",
        CAFE,
        f"data:application/pdf;base64,{CAFE}",
        f"data:text/plain;charset=utf-16;base64,{CAFE}",
        "data:text/plain;base64,!!!!",
        "data:text/plain;base64,6Q==",
        "data:text/plain,%E9",
    ],
)
def test_non_texts_are_ignored(address: str) -> None:
    assert decode_data_url(address) is None


def test_bytes_without_a_kind_are_no_text() -> None:
    assert decode_base64_text("text/plain", CAFE) == "café"
    assert decode_base64_text("", CAFE) is None


def test_known_document_fields_are_reported() -> None:
    assert document_text("a.txt", None, "words") == Text("[document: a.txt]\nwords", "a.txt")
    assert document_text(None, "words") == Text("words")
    assert unreadable_document("a.pdf", None) == Text("[a document that you cannot read: a.pdf]")
    assert unreadable_document() == Text("[a document that you cannot read]")
