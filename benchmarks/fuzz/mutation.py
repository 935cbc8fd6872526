"""Texts made odd: what a mutation does to a plan, one small damage at a time.

Every mutator takes a text and a source of chance and returns another text. They know the alphabet
of plans, so that damage falls where a reader could stumble, and nothing of how plans are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

LONGEST: Final = 3000
"""Longer texts teach nothing new and take their time; how time grows is asked apart."""

TOKENS: Final = (
    *("model_id = [", "subtasks = [", "access_list = [", "model_id", "subtasks", "access_list"),
    *("Model IDs: ", "access: ", "sub-task: [", "model\\_id=[", '"steps": [', "{'steps': ["),
    *('"worker": ', '"subtask": ', '"access": ', '{"', '"}', "[]", "[[]]", "[0]", '["all"]', "all"),
    *("<think>", "</think>", "<thinking>", "</thinking>", "```json\n", "```", "~~~", "**", "`"),
    *('"', "'", '"""', "'''", "“", "”", "‘", "’", "„", "\\", "\\u", "\\ud83d", "\\U0011ffff"),
    *("\\x", "\\x41", "\\\n", "\n", "\r\n", "\t", ",", ":", "=", "：", "[", "]", "{", "}", "# "),
    *("None", "null", "true", "nan", "none", "ALL", "-1", "0", "1", "2", "3", "4", "5", "0x1"),
)
ODD_CHARACTERS: Final = (
    *("\x00", "\x1b", "\x7f", "\x85", "\xa0", "\xad", "\u0130", "\u0131", "\u017f", "\u212a"),
    *("\u0660", "\u06f3", "\u0967", "\uff10", "\uff3b", "\uff02", "\u2028", "\u2029", "\u202e"),
    *("\u200b", "\u200d", "\ufeff", "\ufffd", "\ufffe", "\ud800", "\udfff", "\U0001f600", "é"),
    *("e\u0301", "ß", "ﬀ", "\U000e0041", "\U0010ffff", "\u3000", "\x1c", "\x0c"),
)
NUMBERS: Final = (
    *("-1", "00", "999999999", "1000000000", "9" * 30, "9" * 5000, "-" + "9" * 400, "1e9", "1.0"),
    *("+1", "0b1", "1_0", "²", "٣", "９", "inf", "-0", "2147483648", "18446744073709551616"),
)
OPENERS: Final = ("[", "{", '["', '{"a":', "[[", "<think>", "(", "```", "“")
CLOSERS: Final = ("]", "}", '"]', "}", "]]", "</think>", ")", "```", "”")

_NUMBER: Final = re.compile(r"[0-9]+")
_WORD: Final = re.compile(r"\w+|[^\w\s]")

Mutator = Callable[[str, Random], str]


def _between(text: str, chance: Random) -> tuple[int, int]:
    """A piece of the text, most often a short one."""
    start = int(chance.random() * (len(text) + 1))
    length = int(chance.random() ** 3 * 80)
    return start, min(len(text), start + length)


def changed(text: str, chance: Random) -> str:
    """Another character somewhere, from anywhere in the text or from anywhere at all."""
    start, _ = _between(text, chance)
    letter = text[start - 1 : start] if chance.random() < 0.5 else chr(chance.randrange(0x250))
    return text[:start] + letter + text[start + int(chance.random() * 2) :]


def cut(text: str, chance: Random) -> str:
    """Less a piece."""
    start, end = _between(text, chance)
    return text[:start] + text[end:]


def truncated(text: str, chance: Random) -> str:
    """Only the beginning, or only the end."""
    middle = int(chance.random() * (len(text) + 1))
    return text[:middle] if chance.random() < 0.8 else text[middle:]


def with_token(text: str, chance: Random) -> str:
    """A token of plans, put in or in the place of something."""
    start, end = _between(text, chance)
    kept = start if chance.random() < 0.6 else end
    return text[:start] + chance.choice(TOKENS) + text[kept:]


def with_odd_character(text: str, chance: Random) -> str:
    """A character that readers are known to disagree on."""
    start, _ = _between(text, chance)
    return text[:start] + chance.choice(ODD_CHARACTERS) + text[start:]


def with_number(text: str, chance: Random) -> str:
    """Another number, in the place of one that is there."""
    found = list(_NUMBER.finditer(text))
    if not found:
        return text + chance.choice(NUMBERS)
    here = chance.choice(found)
    return text[: here.start()] + chance.choice(NUMBERS) + text[here.end() :]


def repeated(text: str, chance: Random) -> str:
    """A piece of it again and again."""
    start, end = _between(text, chance)
    times = chance.choice((2, 3, 8, 40))
    return text[:start] + text[start:end] * times + text[end:]


def nested(text: str, chance: Random) -> str:
    """A piece of it inside of brackets, which may close or not."""
    start, end = _between(text, chance)
    which, depth = chance.randrange(len(OPENERS)), chance.choice((1, 1, 2, 5, 7, 30))
    closing = CLOSERS[which] * depth if chance.random() < 0.7 else ""
    return f"{text[:start]}{OPENERS[which] * depth}{text[start:end]}{closing}{text[end:]}"


def words_exchanged(text: str, chance: Random) -> str:
    """Two of its words, each in the other's place."""
    words = list(_WORD.finditer(text))
    if len(words) < 2:
        return text
    first, second = sorted(chance.sample(words, 2), key=lambda word: word.start())
    return (
        f"{text[: first.start()]}{second.group()}{text[first.end() : second.start()]}"
        f"{first.group()}{text[second.end() :]}"
    )


def quoted_otherwise(text: str, chance: Random) -> str:
    """One kind of its quotes replaced by another."""
    quotes = ('"', "'", "“", "”", "‘", '"""', "`", '\\"')
    old, new = chance.choice(quotes), chance.choice(quotes)
    return text.replace(old, new, chance.choice((1, 2, -1)))


MUTATORS: Final[Sequence[Mutator]] = (
    changed,
    changed,
    cut,
    truncated,
    with_token,
    with_token,
    with_odd_character,
    with_number,
    repeated,
    nested,
    words_exchanged,
    quoted_otherwise,
)


def mutated(text: str, other: str, chance: Random) -> str:
    """The text with one to four damages, now and then joined with a piece of another."""
    if chance.random() < 0.15:
        start, end = _between(other, chance)
        middle = int(chance.random() * (len(text) + 1))
        text = text[:middle] + (other[start:] if chance.random() < 0.5 else other[start:end])
    for _ in range(1 + int(chance.random() ** 2 * 4)):
        text = MUTATORS[int(chance.random() * len(MUTATORS))](text, chance)
    return text[:LONGEST]
