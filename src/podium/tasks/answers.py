"""Extract the answer of a reply and normalise it for comparison, in linear time.

`graders` decides whether an answer is right.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import Final

MAX_ANSWER_CHARS: Final = 2_000
MAX_ANSWER_LINE_CHARS: Final = 100
MAX_JUDGED_CHARS: Final = 50_000
_FENCED: Final = re.compile(
    r"^ {0,3}```\w*[ \t]*\n(.*?)(?:^ {0,3}```|\Z)", re.DOTALL | re.MULTILINE
)
"""As in Markdown, a fence indented by four spaces is none: docstrings have such."""

_TAG: Final = re.compile(r"<(/?)answer>", re.IGNORECASE)
_ANSWER_LINE: Final = re.compile(
    r"\W{0,5}(?:(?:the|final|correct) )*answer(?: is\b:?|\W{0,2}:)[\s*_`]*(\S.{0,500}?)[\s*_`]*",
    re.IGNORECASE,
)

_WRAPPING: Final = "\"'`*_“”‘’«» \t\n"
_ENDS: Final = ".!;,"

_BOX: Final = r"(?:\\boxed\{)?(?:\\text\{)?"
_LETTER_ALONE: Final = re.compile(
    rf"{_BOX}[(\[]?([A-Za-z])[)\]]?\}}*(?:[.:)]?|[.:)]\s.*)", re.DOTALL
)
_LETTER_DECLARED: Final = re.compile(
    r"\b(?:answer|option|choice)(?: is\b|:)[:\s]*[*_`$]*(?:option |choice )?"
    rf"{_BOX}[(\[]?((?-i:[A-Z]))\b(?![’'])",
    re.IGNORECASE,
)

_SHORT_WORD: Final = 3
"""Words this short occur in many sentences by chance."""

_NO_NUMERAL_BEFORE: Final = r"(?<![.,/+−–-])"
_NO_NUMERAL_AFTER: Final = r"(?![.,/]\d)"
"""Characters that make digits part of another number."""

_DIGITS: Final = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+"
_PLAIN: Final = rf"[-+]?(?:{_DIGITS})(?:e[-+]?\d+)?"
_NUMBER: Final = re.compile(_PLAIN, re.IGNORECASE)
_WHOLE_NUMBER: Final = re.compile(
    rf"(?P<top>{_PLAIN})"
    rf"(?:\s*/\s*(?P<bottom>{_PLAIN})|\s*(?:×|x|\*)\s*10\s*\^?\s*\{{?(?P<power>[-+]?\d{{1,3}})\}}?)?"
    r"\s*(?P<percent>%|percent)?",
    re.IGNORECASE,
)
_FRACTION: Final = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_SHORT_FRACTION: Final = re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)")
_EXPONENT_OF_A_UNIT: Final = re.compile(r"(?:(?<=[a-zA-Z])|(?<=[a-zA-Z]\}))\^\{?-?\d(?!\d)\}?")
_STATED: Final = re.compile(r"[=≈:\n]|\b(?:equals?|is|are)\b", re.IGNORECASE)
_EXPRESSION_OPERATORS: Final = re.compile(
    r"\\(?:sqrt|log|ln|exp|sin|cos|tan|pi|pm|mp|binom|sum|prod|int)(?![a-zA-Z])"
    r"|[π√±^]|\d\s*[ikM]\b"
)
"""Operators that make a number part of an expression."""

_SCALE: Final = re.compile(
    r"\b(?:hundred|thousand|million|billion|trillion|dozen)s?\b", re.IGNORECASE
)
_TYPESETTING: Final = str.maketrans({"−": "-", "–": "-", "$": " ", "€": " ", "£": " "})


def extract_answer(reply: str, *, tagged: bool) -> str | None:
    """Return the text in the last pair of answer tags.

    Without tags, return the whole reply, or None if `tagged`.
    """
    found = None
    opened = None
    for tag in _TAG.finditer(reply):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            found, opened = reply[opened : tag.start()].strip(), None
    if found is None and not tagged:
        return reply.strip()
    return found


def final_answer(reply: str, *, tagged: bool) -> str | None:
    """Return a short answer: in the last answer tags, the last box, or the line "Answer: …".

    Without these, return the whole reply, or None if `tagged` and it has more than one line.
    """
    if (found := extract_answer(reply, tagged=True)) is not None:
        return found
    if box := extract_boxed(reply):
        return box
    text = reply.strip()
    last = text.rpartition("\n")[2]
    if line := _ANSWER_LINE.fullmatch(last):
        return line[1]
    return None if tagged and (last != text or len(text) > MAX_ANSWER_LINE_CHARS) else text


def extract_boxed(text: str) -> str:
    """Return the content of the last box, or nothing."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return ""
    rest = text[start:].partition("box")[2].removeprefix("ed").lstrip()
    if not rest.startswith("{"):
        first, *_ = [*rest.partition("$")[0].split(), ""]
        return first
    depth = 0
    for position, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:position].strip()
    return ""


def strip_fence(text: str) -> str:
    """Return the content of the first code fence, or the text itself."""
    fenced = _FENCED.search(text)
    return fenced[1] if fenced else text


def normalise_text(text: str) -> str:
    """Normalise case, spaces, quotes and the full stop."""
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return text.strip(_WRAPPING).rstrip(_ENDS).strip(_WRAPPING)


def is_same_text(text: str, reference: str) -> bool:
    return (
        text.strip() == reference.strip() or normalise_text(text) == normalise_text(reference) != ""
    )


def contains_words(text: str, reference: str) -> bool:
    """True if the text contains the reference as whole words or a whole number.

    A single letter must be the chosen one; a word as short as "no" must be first or last.
    """
    wanted, within = normalise_text(reference), normalise_text(text)
    if len(wanted) == 1 and wanted.isalpha():
        return chosen_letter(text) == wanted.upper()
    if not wanted:
        return False
    before = _NO_NUMERAL_BEFORE if wanted[0].isdigit() else ""
    after = _NO_NUMERAL_AFTER if wanted[-1].isdigit() else ""
    whole = re.compile(rf"(?<![^\W_]){before}{re.escape(wanted)}(?![^\W_]){after}")
    places = [position.span() for position in whole.finditer(within)]
    if len(wanted) <= _SHORT_WORD and wanted.isalpha():
        return any(start == 0 or end == len(within) for start, end in places)
    return bool(places)


def chosen_letter(text: str) -> str | None:
    """Return the letter that the text chooses, as a capital; None if it is unclear."""
    bare = text.strip(_WRAPPING + "$")
    if alone := _LETTER_ALONE.fullmatch(bare):
        return alone[1].upper()
    declared = {found.upper() for found in _LETTER_DECLARED.findall(text)}
    return declared.pop() if len(declared) == 1 else None


@dataclass(frozen=True, slots=True)
class ParsedNumber:
    """A number, and whether it was written as a percentage."""

    value: float
    percent: bool = False

    def is_close(self, reference: ParsedNumber, tolerance: float) -> bool:
        """True if it equals the reference within that relative tolerance.

        If only one of the two has a percent sign, "50 %" matches both 50 and 0.5.
        """
        if self.percent == reference.percent:
            return _is_close(self.value, reference.value, tolerance)
        mine = (self.value, self.value / 100) if self.percent else (self.value,)
        wanted = (
            (reference.value, reference.value / 100) if reference.percent else (reference.value,)
        )
        return any(_is_close(one, other, tolerance) for one in mine for other in wanted)


def whole_number(text: str) -> ParsedNumber | None:
    """Parse a text that is one number: integer, decimal, fraction, power of ten, percentage or
    money."""
    found = _WHOLE_NUMBER.fullmatch(_untypeset(text))
    if found is None:
        return None
    value = _value(found["top"])
    if found["bottom"]:
        bottom = _value(found["bottom"])
        if bottom == 0:
            return None
        value /= bottom
    if found["power"]:
        value *= 10.0 ** int(found["power"])
    return ParsedNumber(value, bool(found["percent"])) if math.isfinite(value) else None


def only_number(text: str) -> ParsedNumber | None:
    """Parse a text that is one number or mentions exactly one: "18 dollars"."""
    if whole := whole_number(text):
        return whole
    text = _EXPONENT_OF_A_UNIT.sub("", _untypeset(text))
    mentioned = list(_NUMBER.finditer(text))
    if len(mentioned) != 1 or _SCALE.search(text) or _EXPRESSION_OPERATORS.search(text):
        return None
    (number,) = mentioned
    value = _value(number[0])
    percent = text[number.end() :].lstrip().startswith(("%", "percent"))
    return ParsedNumber(value, percent) if math.isfinite(value) else None


def stated_number(text: str) -> ParsedNumber | None:
    """Parse the only number of a text, or of what its last "=" or "is" is followed by."""
    return only_number(text) or only_number(_STATED.split(text)[-1])


def _untypeset(text: str) -> str:
    text = _SHORT_FRACTION.sub(r"\1/\2", _FRACTION.sub(r"\1/\2", text))
    for written, meant in (
        ("\\times", "×"),
        ("\\cdot", "×"),
        ("\\%", "%"),
        ("\\$", " "),
        ("\\!", ""),
        ("\\,", ""),
        ("{,}", ","),
    ):
        text = text.replace(written, meant)
    return text.translate(_TYPESETTING).strip(_WRAPPING).rstrip(_ENDS).strip(_WRAPPING)


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _is_close(value: float, reference: float, tolerance: float) -> bool:
    return math.isclose(value, reference, rel_tol=0, abs_tol=max(tolerance * abs(reference), 1e-12))


def nearest(word: str, known: Sequence[str], written: str = "{!r}") -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {written.format(near[0])}?" if near else f"there are {', '.join(known)}"


def quote(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def render_prompt(name: str, **texts: str) -> str:
    return _template(name).substitute(texts).strip()


@cache
def _template(name: str) -> Template:
    return Template(
        resources.files("podium.tasks").joinpath("prompts", f"{name}.txt").read_text("utf-8")
    )
