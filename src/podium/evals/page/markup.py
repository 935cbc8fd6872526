"""HTML that cannot be broken out of: every string is text, unless it was made here.

    element("p", "1 < 2 ", element("b", "indeed"), class_="note")

What models wrote is text like any other. `Markup` is made by `element` and `joined` alone, so that
no template exists into which somebody could forget to escape something.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

_VOID: Final = frozenset({"meta", "br"})
_KEPT: Final = frozenset("\n\t\u200c\u200d")
"""Not printable, and yet a part of texts: line breaks, and the joiners of some scripts."""

Value = str | int | float | bool | None
"""Of an attribute: True has it stand there without a value, None and False leave it out."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(words: str) -> Markup:
    """The words as HTML."""
    return words if isinstance(words, Markup) else Markup(escape(visible(words), quote=True))


def visible(words: str) -> str:
    """The words with a replacement character for what is invisible or turns the reading direction
    round, so that nobody reads something else than is there."""
    shown = words.replace("\r\n", "\n")
    if shown.isprintable():
        return shown
    return "".join(
        letter if letter.isprintable() or letter in _KEPT else "\ufffd" for letter in shown
    )


def joined(parts: Iterable[str]) -> Markup:
    """Several parts, one after the other."""
    return Markup("".join(text(part) for part in parts))


def element(name: str, /, *children: str, **attributes: Value) -> Markup:
    """An element. Attributes are named as in Python: `class_`, `aria_label`, `viewBox`."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(str(value))}"'
