"""Marks put back while the words come: a mark may be cut in two by the pieces of a stream, so what
could still become one is held back until it is known."""

from __future__ import annotations

from collections.abc import Callable

from podium.guardrails.redaction import LONGEST_MARK


class RestoredWords:
    """The words of one answer, restored piece by piece."""

    __slots__ = ("_held", "_restore")

    def __init__(self, restore: Callable[[str], str]) -> None:
        self._restore = restore
        self._held = ""

    def hear(self, text: str) -> str:
        """Take the next piece; what is to be told now."""
        text = self._held + text
        opened = text.rfind("[")
        whole = opened < 0 or "]" in text[opened:] or len(text) - opened >= LONGEST_MARK
        told, self._held = (text, "") if whole else (text[:opened], text[opened:])
        return self._restore(told)

    def rest(self) -> str:
        """What was held back, now that nothing follows."""
        held, self._held = self._held, ""
        return held
