"""Literals as models write them: lists, objects, strings, whole numbers and bare words.

One scanner reads both Python and JSON, and what models make of them: any kind of quotes,
newlines inside strings, trailing commas, comments. It evaluates nothing.

A scan fails at the first character that cannot belong to a literal. That keeps parsing linear,
although a broken list is searched again for the labels inside it: of the scans that reach the same
character, no two are at the same depth and in the same kind of quotes. Comments hold neither
brackets nor quotes for that reason.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_DEPTH: Final = 6
"""A plan is at most a list of objects of lists; the rest is room for ignored keys."""

MAX_SHOWN_CHARS: Final = 40
_DOUBLE: Final = "“”„‟"
_SINGLE: Final = "‘’‚‛"
_QUOTES: Final = f"\"'{_DOUBLE}{_SINGLE}"
_OPENING: Final = ("[", "{")

_SPACE: Final = re.compile(rf"(?:\s++|#[^\n\[\]{{}}{_QUOTES}]*+(?:\n|\Z))*+")
_WORD: Final = re.compile(rf"[^,\[\]{{}}:=#\n{_QUOTES}]++")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")


def _quoted_pattern(closing: str) -> re.Pattern[str]:
    """Match a string that begins and ends with one of these quotes."""
    return re.compile(rf"[{closing}]([^{closing}\\]*+(?:\\.[^{closing}\\]*+)*+)[{closing}]", re.S)


def _until_three(quote: str) -> re.Pattern[str]:
    return re.compile(
        rf"{quote * 3}((?:[^{quote}\\]++|\\.|{quote}(?!{quote * 2}))*+){quote * 3}", re.S
    )


_STRINGS: Final[dict[str, re.Pattern[str]]] = {
    '"': _quoted_pattern('"'),
    "'": _quoted_pattern("'"),
    **dict.fromkeys(_DOUBLE, _quoted_pattern(_DOUBLE)),
    **dict.fromkeys(_SINGLE, _quoted_pattern(_SINGLE)),
    '"""': _until_three('"'),
    "'''": _until_three("'"),
}

_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.S
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "\n": "",
    **{itself: itself for itself in f"\\/{_QUOTES}"},
}


class Word(str):
    """A word without quotes."""

    __slots__ = ()


Value = None | int | str | list["Value"] | dict[str, "Value"]
"""The value of a literal; a `Word` is a `str` that had no quotes."""


class BrokenLiteral(Exception):
    """The text is not a literal from here on; `reason` is a sentence for the plan's writer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ScannedList(NamedTuple):
    """A list, and the position after it."""

    values: list[Value]
    end: int


def scan_list(text: str, start: int, depth: int = 1) -> ScannedList:
    """Read the list whose opening bracket is at `start`."""
    values: list[Value] = []
    position = skip_space(text, start + 1)
    while not text.startswith("]", position):
        if position == len(text):
            raise BrokenLiteral("the list does not end; close it with ]")
        value, position = scan_value(text, position, depth)
        values.append(value)
        position = skip_space(text, position)
        if text.startswith(",", position):
            position = skip_space(text, position + 1)
        elif position < len(text) and text[position] != "]":
            raise BrokenLiteral(
                f"a comma or ] was expected after entry {len(values) - 1}, and then came "
                f'{_preview(text, position)}; write a quote inside a string as \\"'
            )
    return ScannedList(values, position + 1)


def _scan_object(text: str, start: int, depth: int) -> tuple[dict[str, Value], int]:
    members: dict[str, Value] = {}
    position = skip_space(text, start + 1)
    while not text.startswith("}", position):
        key, position = _scan_key(text, position)
        if key in members:
            raise BrokenLiteral(f"the key {_quote(key)} appears twice in one object; keep one")
        members[key], position = scan_value(text, position, depth)
        position = skip_space(text, position)
        if text.startswith(",", position):
            position = skip_space(text, position + 1)
        elif not text.startswith("}", position):
            raise BrokenLiteral(
                f"a comma or }} was expected after {_quote(key)}, and then came "
                f'{_preview(text, position)}; write a quote inside a string as \\"'
            )
    return members, position + 1


def _scan_key(text: str, position: int) -> tuple[str, int]:
    if text[position : position + 1] not in _STRINGS:
        raise BrokenLiteral(
            f"a key in quotes was expected, and then came {_preview(text, position)}"
        )
    key, position = _scan_string(text, position)
    position = skip_space(text, position)
    if not text.startswith(":", position):
        raise BrokenLiteral(
            f"a colon was expected after the key {_quote(key)}, and then came "
            f"{_preview(text, position)}"
        )
    return key, skip_space(text, position + 1)


def scan_value(text: str, position: int, depth: int) -> tuple[Value, int]:
    """Read the value at that position; return it and the position after it."""
    first = text[position : position + 1]
    if first in _STRINGS:
        return _scan_string(text, position)
    if first in _OPENING:
        if depth == MAX_DEPTH:
            raise BrokenLiteral(f"brackets are nested more than {MAX_DEPTH} deep; a plan never is")
        return (scan_list if first == "[" else _scan_object)(text, position, depth + 1)
    match = _WORD.match(text, position)
    if match is None:
        raise BrokenLiteral(f"a value was expected, and then came {_preview(text, position)}")
    return _word(match.group().strip().strip("`*")), match.end()


def _scan_string(text: str, position: int) -> tuple[str, int]:
    quote = text[position]
    three = quote * 3
    if three in _STRINGS and text.startswith(three, position):
        quote = three
    match = _STRINGS[quote].match(text, position)
    if match is None:
        raise BrokenLiteral(f"the string {_preview(text, position)} does not end; close its quotes")
    inside = match.group(1)
    if "\\" in inside:
        inside = _ESCAPE.sub(_unescape, inside)
    return inside if inside.isascii() else _well_formed(inside), match.end()


def _unescape(match: re.Match[str]) -> str:
    """Return what an escape stands for; an unknown one is kept, as in Python."""
    *codes, character = match.groups()
    code = next((code for code in codes if code), None)
    if code is None:
        return _ESCAPED.get(character, match.group())
    number = int(code, 16)
    return chr(number) if number <= 0x10FFFF else match.group()


def _well_formed(text: str) -> str:
    """Join surrogate pairs and replace half pairs, so that the text can be sent."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _word(text: str) -> Value:
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    return None if text in ("None", "null") else Word(text)


def skip_space(text: str, position: int) -> int:
    """Return the position after white space and comments."""
    match = _SPACE.match(text, position)
    assert match is not None, "there is always room for no space"
    return match.end()


def _preview(text: str, position: int) -> str:
    ahead = text[position : position + MAX_SHOWN_CHARS].split("\n", 1)[0]
    return _quote(ahead) if ahead.strip() else "nothing"


def _quote(text: str) -> str:
    shown = repr(text[: MAX_SHOWN_CHARS + 1])
    return (
        shown if len(shown) <= MAX_SHOWN_CHARS + 2 else f"{shown[: MAX_SHOWN_CHARS + 1]}…{shown[0]}"
    )
