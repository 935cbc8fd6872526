"""Which ways through a package's code a call takes: the feedback that leads a fuzzer.

Tracing makes a call some ten times slower, so a fuzzer traces a share of its calls only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

_SHIFT: Final = 20
"""Room for a line's number beside another's."""


class Coverage:
    """The edges seen so far: from which line of a function to which."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._edges: set[tuple[CodeType, int]] = set()

    def __len__(self) -> int:
        return len(self._edges)

    def is_new(self, call: Callable[[], object]) -> bool:
        """Make the call; whether it went a way that none had gone before. What the call raises is
        raised here."""
        edges: set[tuple[CodeType, int]] = set()
        before = sys.gettrace()
        sys.settrace(_tracer(self._directory, edges))
        try:
            call()
        finally:
            sys.settrace(before)
            found = not edges <= self._edges
            self._edges |= edges
        return found


def _tracer(directory: str, edges: set[tuple[CodeType, int]]) -> Callable[..., Any]:
    def begun(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(directory):
            return None
        last = 0

        def stepped(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            nonlocal last
            line = frame.f_lineno
            edges.add((code, last << _SHIFT | line))
            last = line
            return stepped

        return stepped

    return begun
