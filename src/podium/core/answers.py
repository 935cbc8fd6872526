"""The answer of a reply in a comparable form, for the condition `differs` of a step.

The comparison is fixed and linear in the replies' length: nothing that a reply says changes it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

LONGEST_REPLY: Final = 20_000
"""Characters at the end of a reply that are read; an answer stands at the end."""

_TAGGED: Final = re.compile(r"<answer>([^<]{1,500})</answer>", re.IGNORECASE)
_BOXED: Final = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]{0,100}\}){1,200})\}")
_DECLARED: Final = re.compile(
    r"(?:####|\banswer(?:\s+is\b|\s*:))\**\s*([^\n]{1,500})", re.IGNORECASE
)
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{\s*(-?\d{1,12})\s*\}\s*\{\s*(-?\d{1,12})\s*\}")
_NUMBER: Final = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d{1,30})(?:\.\d{1,30})?(?:/\d{1,12})?")
_MARKS: Final = " \t\n.!;:,\"'`*_$()[]{}\\"


def short_answer(reply: str) -> str:
    """Return the answer of a reply in a comparable form.

    It is what stands in answer tags, in a box, or after "answer is", and else the last line; of
    that, the last number, or the words without case and punctuation.
    """
    text = unicodedata.normalize("NFKC", reply[-LONGEST_REPLY:])
    for pattern in (_TAGGED, _BOXED, _DECLARED):
        if found := pattern.findall(text):
            text = found[-1]
            break
    else:
        lines = text.strip().splitlines()
        text = lines[-1] if lines else ""
    text = _FRACTION.sub(r"\1/\2", text)
    if numbers := _NUMBER.findall(text):
        return _number(numbers[-1])
    return " ".join(text.casefold().split()).strip(_MARKS)


def _number(text: str) -> str:
    top, _, bottom = text.replace(",", "").partition("/")
    divisor = float(bottom or 1)
    value = float(top) / divisor if divisor else math.nan
    return f"{value:.6g}"
