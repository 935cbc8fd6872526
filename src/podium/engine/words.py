"""The words of one reply as they are told while they come, though it may take several calls.

A reader who has the first half of a reply must not get it again when the call breaks off and is
made anew. The next call is asked to go on from there; and if its worker begins from the start all
the same, what is already told is held back.
"""

from __future__ import annotations


class Words:
    """What has been told of a reply, and what of it the calls before the present one told."""

    __slots__ = ("_held", "_may_repeat", "_told", "kept")

    def __init__(self) -> None:
        self._told: list[str] = []
        self._held = 0
        self._may_repeat = False
        self.kept = ""

    @property
    def told(self) -> str:
        """All that was told so far."""
        return "".join(self._told)

    @property
    def has_begun(self) -> bool:
        """Whether anything was told."""
        return bool(self._told)

    def hear(self, text: str) -> str:
        """Take the next piece; what is to be told of it."""
        if self._may_repeat:
            if self.kept.startswith(text, self._held):
                self._held += len(text)
                return ""
            text = (self.kept[: self._held] + text).removeprefix(self.kept)
            self._may_repeat = False
        self._told.append(text)
        return text

    def break_off(self) -> None:
        """The present call has failed: the next one goes on with what was told."""
        self.kept = self.told
        self._may_repeat = bool(self.kept)
        self._held = 0

    def whole(self, text: str) -> str:
        """The whole reply, when the last call's is `text`."""
        return text if text.startswith(self.kept) else self.kept + text
