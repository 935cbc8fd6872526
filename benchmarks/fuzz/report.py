"""The result of a fuzzing campaign, and the coverage that guides it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final

_SHIFT: Final = 20


class Coverage:
    """The edges seen so far, from line to line."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._edges: set[tuple[CodeType, int]] = set()

    def __len__(self) -> int:
        return len(self._edges)

    def is_new(self, call: Callable[[], object]) -> bool:
        """Call, and return whether it took a new edge. Exceptions of the call pass through."""
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


MOST_FINDINGS: Final = 20
"""A campaign stops after so many findings."""

LONGEST_SHOWN: Final = 2000


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise and the input that shows it."""

    broken: str
    input: str

    def __str__(self) -> str:
        return f"{self.broken}: {self.input[:LONGEST_SHOWN]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzRow:
    """One campaign.

    `corpus` counts inputs that took new paths, `covered` the edges. `slowest_growth` is the largest
    cost of doubling the length. `spoiled` requests failed by a worker's fault.
    """

    name: str
    inputs: int
    seconds: float
    findings: tuple[Finding, ...] = ()
    corpus: int = 0
    covered: int = 0
    slowest_growth: float | None = None
    spoiled: int = 0

    @property
    def per_second(self) -> float:
        """Inputs a second."""
        return self.inputs / self.seconds if self.seconds else 0.0

    @property
    def sound(self) -> bool:
        """True if every promise held."""
        return not self.findings


def gathered(name: str, rows: Iterable[FuzzRow], seconds: float) -> FuzzRow:
    """Combine the rows of several processes; of coverage, the largest counts."""
    parts = tuple(rows)
    growths = [row.slowest_growth for row in parts if row.slowest_growth is not None]
    found = [finding for row in parts for finding in row.findings]
    return FuzzRow(
        name=name,
        inputs=sum(row.inputs for row in parts),
        seconds=seconds,
        findings=tuple(found[:MOST_FINDINGS]),
        corpus=max((row.corpus for row in parts), default=0),
        covered=max((row.covered for row in parts), default=0),
        slowest_growth=max(growths, default=None),
        spoiled=sum(row.spoiled for row in parts),
    )
