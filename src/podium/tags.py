"""Tags around other people's words, such that nothing inside can close them.

Prompts put questions, subtasks and replies between tags. Whoever wrote those texts must not be
able to end them early and go on as if they were the prompt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache


def unused_mark(tags: tuple[str, ...], texts: Iterable[str]) -> str:
    """A suffix for the tags that no text can contain.

    It is empty as long as nobody writes such a tag; otherwise it is taken from the texts' own
    hash, which their author cannot write into them. The same texts always give the same mark.
    """
    pattern = _pattern(tags)
    texts = list(texts)
    for text in texts:
        if "<" in text and pattern.search(text):
            inside = "\0".join(texts)
            return "-" + hashlib.sha256(inside.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return ""


@cache
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<[\s/]*+(?:{'|'.join(tags)})", re.IGNORECASE)
