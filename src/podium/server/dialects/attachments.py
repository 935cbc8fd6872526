"""Documents that tools show, such as a PDF or a text that an agent read.

What is plain text is handed on as text. No worker is handed another document. That there was one is
told in words, so that the worker can get at what it says in another way, and so that a conversation
does not end because a tool read a file: agents send all of it again with every turn.

A document of the user's own is refused in each dialect, for the user can send something else. One
beside results of tools in a message of Anthropic's counts as the tool's: Claude Code puts what it
read there, and nothing in it says whose it is.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from typing import Final, Literal
from urllib.parse import unquote_to_bytes, urlsplit

from podium.core.request import Image, Text
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.fields import choice, text, wrong

BIGGEST_IMAGE: Final = 20 * 1024 * 1024
"""In bytes, when decoded."""

LONGEST_ADDRESS: Final = 8192

ImageType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
IMAGE_TYPES: Final[tuple[ImageType, ...]] = ("image/png", "image/jpeg", "image/gif", "image/webp")

_ADDRESS: Final = re.compile(r"[!-~]+")


def address(value: object, path: str) -> str:
    """An http or https address."""
    words = text(value, path)
    try:
        parts = urlsplit(words) if len(words) <= LONGEST_ADDRESS else None
    except ValueError:
        parts = None
    sound = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    if not sound or not _ADDRESS.fullmatch(words):
        raise wrong(path, "an http or https address", value)
    return words


def image(value: object, path: str) -> Image:
    """A picture by its address: `https://…`, or `data:image/png;base64,…`."""
    words = text(value, path)
    if words[:5].lower() != "data:":
        return Image(url=address(words, path))
    head, comma, data = words[5:].partition(",")
    media_type, *parameters = head[:256].lower().split(";")
    if not comma or "base64" not in parameters:
        raise invalid(path, f"{path}: expected data:image/png;base64,… or an https address")
    return image_bytes(media_type, data, path)


def image_bytes(media_type: object, data: object, path: str) -> Image:
    """A picture by its bytes in base64."""
    kind = choice(IMAGE_TYPES)(media_type, path)
    if not isinstance(data, str):
        raise wrong(path, "a picture in base64", data)
    if len(data) * 3 // 4 > BIGGEST_IMAGE + 2:
        raise ApiError(
            "too_large",
            f"{path}: the picture is over {BIGGEST_IMAGE // 2**20} MiB; send a smaller one",
            field=path,
        )
    try:
        whole_picture = binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise invalid(path, f"{path}: the picture is not in base64: {error}") from None
    if not whole_picture:
        raise invalid(path, f"{path}: the picture is empty")
    return Image(media_type=kind, data=data)


UNREAD: Final = "a document that you cannot read"

_UTF_8: Final = ("", "utf-8", "utf8", "us-ascii")
"""The charsets that UTF-8 reads, and that of a text which names none."""


def read(title: str | None, *words: str | None) -> Text:
    """What a document says, under its title, where it has one."""
    heading = f"[document: {title}]" if title else None
    return Text("\n".join(each for each in (heading, *words) if each))


def unread(*known: str | None) -> Text:
    """That there was a document, with what is known of it, such as its title."""
    told = ", ".join(each for each in known if each)
    return Text(f"[{UNREAD}: {told}]" if told else f"[{UNREAD}]")


def words_in_address(address: str) -> str | None:
    """What an address `data:text/plain;base64,…` says; None where it is not one, or not of text."""
    scheme, _, rest = address.partition(":")
    media_type, comma, data = rest.partition(",")
    if scheme.lower() != "data" or not comma:
        return None
    if media_type.startswith(";") or not media_type:  # as such addresses have it
        media_type = f"text/plain{media_type}"
    if "base64" in media_type.lower().split(";"):
        return words_in_base64(media_type, data)
    return _decoded(data, unquote_to_bytes) if _is_text(media_type) else None


def words_in_base64(media_type: str, data: str) -> str | None:
    """What a text in base64 says; None where it is something else, or no text after all."""
    return _decoded(data, _from_base64) if _is_text(media_type) else None


def _from_base64(data: str) -> bytes:
    return binascii.a2b_base64(data, strict_mode=True)


def _is_text(media_type: str) -> bool:
    """Whether it is `text/…`, in UTF-8 as far as it says."""
    kind, *parameters = media_type.lower().replace(" ", "").split(";")
    charset = next((each[8:] for each in parameters if each.startswith("charset=")), "")
    return kind.startswith("text/") and charset.strip('"') in _UTF_8


def _decoded(data: str, unpacked: Callable[[str], bytes]) -> str | None:
    try:
        return unpacked(data).decode()
    except ValueError:  # neither base64 nor UTF-8, whatever it says
        return None
