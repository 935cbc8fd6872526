"""Words and numbers as people read them, and nothing in them that a terminal would obey.

Replies, questions and names are written by others. Before any of them is shown it passes
through `clean`, so that no text can move the cursor, recolour the screen or hide another.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from podium.usage import Price, Usage
from podium.workflow import Access

_ESCAPES: Final = re.compile(
    r"""
      \x1b\[ [0-?]* [ -/]* [@-~]                  # colours, cursor movements
    | \x1b\] [^\x07\x1b\x9c]* (?:\x07|\x1b\\|\x9c)  # titles, links, the clipboard
    | \x1b[PX^_] [^\x1b\x9c]* (?:\x1b\\|\x9c)     # strings for the terminal itself
    | \x1b [ -/]* [0-~]                           # resets, character sets
    """,
    re.VERBOSE,
)
"""Whole sequences, so that not even their harmless half is left over. Each alternative stops at
the next escape, so that the time is linear whatever the text."""

_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and newline, and those that reverse the direction of writing."""

_HALVES: Final = re.compile("[\ud800-\udfff]")
"""Halves of a character, which no encoding can write."""


def clean(text: str) -> str:
    """The text with nothing in it but what can be read."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _HALVES.sub("\ufffd", _CONTROLS.sub("", _ESCAPES.sub("", text)))


def one_line(text: str) -> str:
    """The text, clean and without line breaks."""
    return " ".join(clean(text).split())


def shortened(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    line = one_line(text)
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


def money(usd: float | None) -> str:
    """US dollars, with as many digits as small sums need: at least two that count."""
    if usd is None:
        return "cost unknown"
    if usd == 0:
        return "$0"
    if usd >= 0.1:
        return f"${usd:,.2f}"
    if usd >= 0.01:
        return f"${usd:.3f}".removesuffix("0")
    return f"${usd:.6f}".rstrip("0").rstrip(".") if usd >= 0.000001 else "under $0.000001"


def tokens(count: int | None) -> str:
    """A number of tokens."""
    if count is None:
        return "tokens unknown"
    return f"{count:,} token{'' if count == 1 else 's'}"


def tokens_of(usage: Usage) -> str:
    """The tokens of a usage, input and output together."""
    return tokens(usage.total_tokens)


def seconds(duration: float) -> str:
    """A time that was taken."""
    if duration < 60:
        return f"{duration:.1f} s"
    return f"{int(duration) // 60} min {int(duration) % 60} s"


def local_time(stamp: str) -> str:
    """A moment that was kept in UTC, as the clock on the wall has it."""
    return f"{datetime.fromisoformat(stamp).astimezone():%Y-%m-%d %H:%M}"


def megabytes(count: int | None) -> str:
    """The size of a file."""
    return "size unknown" if count is None else f"{count / 1_000_000:,.0f} MB"


def counted(count: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def reads(access: Access) -> str:
    """What a step may read, in words."""
    if access == "all":
        return "reads all before it"
    return f"reads {', '.join(map(str, access))}" if access else "reads nothing"


def price(prices: Price | None) -> str:
    """What a worker takes for a million tokens."""
    if prices is None:
        return "price unknown"
    if prices.input == 0 and prices.output == 0:
        return "free"
    return f"${prices.input:g} in, ${prices.output:g} out a million tokens"
