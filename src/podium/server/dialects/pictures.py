"""Pictures in a body: by an address, or by their bytes in base64.

Whether a worker can see them is decided elsewhere; here they are only what they say they are.
"""

from __future__ import annotations

import binascii
import re
from typing import Final, Literal
from urllib.parse import urlsplit

from podium.request import Image
from podium.server.dialects.fields import choice, text, wrong
from podium.server.refusal import Refusal, invalid

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
        raise Refusal(
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
