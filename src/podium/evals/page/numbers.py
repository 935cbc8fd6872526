"""Numbers as people read them. What is not known is a dash."""

from __future__ import annotations

import math
from typing import Final

from podium.evals.tables.statistics import Share

UNKNOWN: Final = "–"
MINUS: Final = "−"


def percent(share: float | None) -> str:
    """A share, as in `72.4 %`."""
    return UNKNOWN if share is None else f"{share * 100:.1f} %"


def points(share: float) -> str:
    """A difference of shares in percentage points, with its sign."""
    number = round(share * 100, 1)
    sign = MINUS if number < 0 else "+" if number > 0 else "±"
    return f"{sign}{abs(number):.1f}"


def span(share: Share) -> str:
    """The two ends of an interval, in percent."""
    low, high = (_signed(end * 100) for end in (share.low, share.high))
    return f"{low} to {high}"


def usd(dollars: float | None) -> str:
    """Money, with as many digits as it takes."""
    if dollars is None:
        return UNKNOWN
    if dollars == 0:
        return "$0"
    digits = 1 - math.floor(math.log10(dollars)) if dollars < 1 else 2
    return f"${dollars:.{digits}f}"


def amount(number: float | None) -> str:
    """A count, or the mean of some, with three digits or so."""
    if number is None:
        return UNKNOWN
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}".rstrip("0").rstrip(".")


def seconds(number: float | None) -> str:
    """A time."""
    if number is None:
        return UNKNOWN
    if number >= 100:
        return f"{number:,.0f} s"
    return f"{number:.1f} s" if number >= 1 else f"{number * 1000:.0f} ms"


def chance(p_value: float) -> str:
    """A p-value; small ones only by how small they are."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """How many there are, as in `1 task` and `2 tasks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or f'{noun}s'}"


def _signed(number: float) -> str:
    return f"{number:.1f}".replace("-", MINUS)
