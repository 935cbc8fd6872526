from __future__ import annotations

import base64

import pytest

from podium.core.request import Image
from podium.server.dialects.content import MAX_IMAGE_BYTES, base64_image, image_url
from support.readers import refusal

PICTURE = base64.b64encode(b"\x89PNG and some more").decode()


def test_an_image_may_be_an_address() -> None:
    assert image_url("https://example.org/a.png", "f") == Image(url="https://example.org/a.png")


def test_an_image_may_be_a_data_address() -> None:
    words = f"data:image/PNG;base64,{PICTURE}"
    assert image_url(words, "f") == Image(media_type="image/png", data=PICTURE)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "ftp://example.org/a.png",
        "file:///etc/passwd",
        "http://",
        "https://[broken",
        "https://example.org/a b",
        "https://example.org/\n",
        f"https://example.org/{'a' * 10_000}",
        "data:image/png,raw",
        "data:image/png;base64",
        "data:image/png;base64,",
        "data:image/png;base64,!!!!",
        "data:image/png;base64,QUJ",
        f"data:image/tiff;base64,{PICTURE}",
        f"data:text/html;base64,{PICTURE}",
    ],
)
def test_an_image_that_is_none_is_refused(words: str) -> None:
    found = refusal(image_url, words, "image_url.url")
    assert found.reason == "invalid"
    assert found.field == "image_url.url"


def test_an_oversized_image_is_too_large_and_says_the_bound() -> None:
    words = "data:image/png;base64," + "A" * (28 * 1024 * 1024)
    found = refusal(image_url, words)
    assert found.status == 413
    assert "20 MiB" in str(found)


def test_an_image_of_just_the_bound_is_taken() -> None:
    data = base64.b64encode(bytes(MAX_IMAGE_BYTES)).decode()
    assert base64_image("image/webp", data, "f").media_type == "image/webp"
