"""Delimiting tags around untrusted text that the text itself cannot close."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from typing import Final


def unused_suffix(tags: tuple[str, ...], texts: Iterable[str]) -> str:
    """Return a suffix for the tags that no text contains.

    Empty if no text holds such a tag; otherwise from the texts' hash, which their author cannot
    predict. Deterministic.
    """
    whole = "\0".join(texts)
    if "<" not in whole and (whole.isascii() or not (_WIDE in whole or _SMALL in whole)):
        return ""
    if _pattern(tags).search(whole) is None:
        return ""
    return "-" + hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:12]


_WIDE: Final = "\uff1c"
_SMALL: Final = "\ufe64"
"""Characters that look like `<`."""

_BETWEEN: Final = r"\s/\uff0f\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
"""Invisible characters and slashes before a tag's name."""


@cache
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"[<{_WIDE}{_SMALL}][{_BETWEEN}]*+(?:{'|'.join(tags)})", re.IGNORECASE)
