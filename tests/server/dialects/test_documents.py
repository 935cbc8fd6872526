"""Documents as text."""

from __future__ import annotations

import pytest

from podium.core.request import Text
from podium.server.dialects.attachments import read, unread, words_in_address, words_in_base64

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
    assert words_in_address(address) == "café"


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
def test_what_is_no_text_says_nothing(address: str) -> None:
    assert words_in_address(address) is None


def test_bytes_without_a_kind_are_no_text() -> None:
    assert words_in_base64("text/plain", CAFE) == "café"
    assert words_in_base64("", CAFE) is None


def test_what_is_known_of_a_document_is_told() -> None:
    assert read("a.txt", None, "words") == Text("[document: a.txt]\nwords")
    assert read(None, "words") == Text("words")
    assert unread("a.pdf", None) == Text("[a document that you cannot read: a.pdf]")
    assert unread() == Text("[a document that you cannot read]")
