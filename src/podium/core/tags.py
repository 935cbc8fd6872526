"""Delimiting tags around untrusted text that the text itself cannot close."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from typing import Final


def unused_suffix(tags: tuple[str, ...], texts: Iterable[str]) -> str:
    """A suffix for the tags that no text can contain.

    It is empty as long as nobody writes such a tag; otherwise it is taken from the texts' own
    hash, which their author cannot write into them. The same texts always give the same mark.
    """
    pattern = _pattern(tags)
    texts = list(texts)
    for text in texts:
        if ("<" in text or _WIDE in text or _SMALL in text) and pattern.search(text):
            inside = "\0".join(texts)
            return "-" + hashlib.sha256(inside.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return ""


_WIDE: Final = "\uff1c"
_SMALL: Final = "\ufe64"
"""What a reader may take for the sign with which a tag begins."""

_BETWEEN: Final = r"\s/\uff0f\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
"""What may stand before a tag's name and not be seen, or be seen as a slash."""


@cache
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"[<{_WIDE}{_SMALL}][{_BETWEEN}]*+(?:{'|'.join(tags)})", re.IGNORECASE)
