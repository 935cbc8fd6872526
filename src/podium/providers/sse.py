"""Server-sent events, as bytes arrive: the framing in which every vendor streams.

Only the framing lives here. What the events mean is each vendor's own file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name, empty where the server gave none, and its data as text."""

    name: str
    data: str


class EventReader:
    """Turns pieces of a byte stream, cut anywhere, into whole events.

    An event that the stream breaks off in is dropped, as the standard says. Time is linear in
    the bytes, however small the pieces are.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._after_return = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that this piece completes. Raises UnicodeDecodeError if it is not UTF-8."""
        if self._after_return:  # a \r\n was cut in two, and its line is already taken
            piece = piece.removeprefix(b"\n")
        self._after_return = piece.endswith(b"\r")
        first, *rest = _LINE_END.split(piece)
        self._line.append(first)
        if not rest:
            return []
        *whole, last = rest
        lines = [b"".join(self._line), *whole]
        self._line = [last]
        return [event for line in lines if (event := self._take(line.decode())) is not None]

    def _take(self, line: str) -> ServerEvent | None:
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                self._data.append(value)
            elif field == "event":
                self._name = value
            return None
        name, data = self._name, "\n".join(self._data)
        self._name, self._data = "", []
        return ServerEvent(name, data) if data else None
