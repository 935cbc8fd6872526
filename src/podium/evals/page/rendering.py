"""The templates of the pages, and how numbers and texts are shown in them.

Templates escape everything. A content security policy in the page forbids the browser to load or
run anything but the page's own style, so that a mistake in escaping could not be used.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from podium._version import __version__
from podium.core.run import timestamp
from podium.evals.results import IntervalEstimate

UNKNOWN: Final = "–"
MINUS: Final = "−"
SHADES: Final = 10
"""Shades of a cell in a table of accuracies."""

MAX_SHADE_PERCENT: Final = 60
"""Percent of colour in the darkest cell, so that its number stays easy to read."""

MAX_TEXT: Final = 4_000
MAX_TITLE: Final = 160
_TEMPLATES: Final = Path(__file__).with_name("templates")
_ALLOWED_INVISIBLE: Final = frozenset("\n\t\u200c\u200d")
"""Not printable, and yet part of texts: line breaks, and the joiners of some scripts."""


def replace_invisible(text: str) -> str:
    """Replace characters that are invisible or change the reading direction."""
    shown = text.replace("\r\n", "\n")
    if shown.isprintable():
        return shown
    return "".join(
        letter if letter.isprintable() or letter in _ALLOWED_INVISIBLE else "\ufffd"
        for letter in shown
    )


def shorten(text: str, longest: int = MAX_TITLE) -> str:
    """Return the text in one line, cut off with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def percent(share: float | None) -> str:
    """Format a share, as in `72.4 %`."""
    return UNKNOWN if share is None else f"{share * 100:.1f} %"


def points(share: float) -> str:
    """Format a difference of shares in percentage points, with its sign."""
    number = round(share * 100, 1)
    sign = MINUS if number < 0 else "+" if number > 0 else "±"
    return f"{sign}{abs(number):.1f}"


def interval(share: IntervalEstimate) -> str:
    """Format the two ends of an interval, in percent."""
    low, high = (f"{end * 100:.1f}".replace("-", MINUS) for end in (share.low, share.high))
    return f"{low} to {high}"


def usd(dollars: float | None) -> str:
    """Format money with two significant digits."""
    if dollars is None:
        return UNKNOWN
    if dollars == 0:
        return "$0"
    digits = 1 - math.floor(math.log10(dollars)) if dollars < 1 else 2
    return f"${dollars:.{digits}f}"


def amount(number: float | None) -> str:
    """Format a count, or a mean of counts, with about three digits."""
    if number is None:
        return UNKNOWN
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}".rstrip("0").rstrip(".")


def seconds(number: float | None) -> str:
    if number is None:
        return UNKNOWN
    if number >= 100:
        return f"{number:,.0f} s"
    return f"{number:.1f} s" if number >= 1 else f"{number * 1000:.0f} ms"


def p_value(probability: float) -> str:
    return "p < 0.001" if probability < 0.001 else f"p = {probability:.3f}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Format a count of things, as in `1 task` and `2 tasks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {nouns or f'{noun}s'}"


_FILTERS: Final[tuple[Callable[..., str], ...]] = (
    *(percent, points, interval, usd, amount, seconds, p_value, plural, shorten),
)


def render(template: str, **context: Any) -> str:
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),  # noqa: S704 - our own file
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            f"form-action 'none'",
            version=__version__,
            date=timestamp()[:10],
            **context,
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters.update({function.__name__: function for function in _FILTERS})
    environment.globals.update(UNKNOWN=UNKNOWN, SHADES=SHADES, MAX_TEXT=MAX_TEXT)
    return environment


def _finalize(value: Any) -> Any:
    """Make every text visible before it is escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return replace_invisible(value)
    return value


@cache
def _style() -> str:
    percents = [shade * MAX_SHADE_PERCENT // SHADES for shade in range(SHADES + 1)]
    shades = "\n".join(
        f".h{shade} {{ background: color-mix(in srgb, var(--conducted) {percent}%, var(--paper)) }}"
        for shade, percent in enumerate(percents)
    )
    written = (_TEMPLATES / "style.css").read_text("utf-8")
    return "\n".join((shades, written))
