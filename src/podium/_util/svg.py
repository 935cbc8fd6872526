"""Shared parts of SVG charts: scales, ticks and colours for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

LIGHT: Final = (
    "#0969da", "#cf222e", "#1a7f37", "#8250df", "#bc4c00",
    "#1b7c83", "#bf3989", "#7d4e00", "#57606a", "#4d7c0f",
)  # fmt: skip
DARK: Final = (
    "#58a6ff", "#ff7b72", "#3fb950", "#bc8cff", "#f0883e",
    "#39c5cf", "#f778ba", "#d29922", "#9ea7b3", "#a3e635",
)  # fmt: skip


class Surface(NamedTuple):
    """Background, text and grid colours."""

    paper: str
    ink: str
    faint: str


SURFACES: Final = {
    "light": Surface("#ffffff", "#1f2328", "#d1d9e0"),
    "dark": Surface("#0d1117", "#e6edf3", "#30363d"),
}


class Scale(NamedTuple):
    """Maps values of an axis to positions, with its ticks."""

    ticks: Sequence[float]
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the position of a value."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.begin + (value - low) / (high - low) * (self.end - self.begin)


def ticks(low: float, high: float) -> list[float]:
    """Return about five round values that enclose `low` and `high`."""
    if high <= low:
        high = low + 1.0
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(power * factor for factor in (1, 2, 5, 10) if power * factor > rough * 0.999)
    first, final = math.floor(low / apart + 1e-9), math.ceil(high / apart - 1e-9)
    return [float(f"{number * apart:.12g}") for number in range(first, final + 1)]
