"""What the charts share: where they stand, their scales, and names that cover nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from podium._util.svg import Scale, ticks
from podium.evals.page.scene import Anchor, Dot, Shape, Stroke, Words
from podium.evals.tables.statistics import Share

WIDTH: Final = 460.0
HEIGHT: Final = 320.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 18.0, 16.0, 48.0
SMALL: Final = 11.0
"""How high the letters of names and scales are."""

WIDE_RATIO: Final = 8.0
"""Where the largest is so many times the smallest, a scale is logarithmic."""

LONGEST_NAME: Final = 26


class Axis(NamedTuple):
    """A scale along which values stand, and what is written at some of them."""

    scale: Scale
    marks: Sequence[tuple[float, str]]
    is_logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where the value is."""
        return self.scale(math.log10(value) if self.is_logarithmic else value)


def upright(shares: Sequence[Share]) -> Axis:
    """From the bottom to the top: shares, as far as their intervals reach."""
    low, high = min(share.low for share in shares), max(share.high for share in shares)
    marks = [tick for tick in ticks(low, high) if -1e-9 <= tick <= 1 + 1e-9]
    scale = Scale(marks if len(marks) > 1 else [0.0, 1.0], HEIGHT - BOTTOM, TOP)
    return Axis(scale, [(scale(tick), f"{tick * 100:g} %") for tick in scale.ticks])


def across(values: Sequence[float]) -> Axis:
    """From left to right: amounts, from nothing on, or by their magnitude where they differ
    much."""
    least, most = min(values), max(values)
    if least <= 0 or most / least < WIDE_RATIO:
        scale = Scale(ticks(0.0, most), LEFT, WIDTH - RIGHT)
        return Axis(scale, [(scale(tick), f"{tick:g}") for tick in scale.ticks])
    low, high = math.log10(least) - 0.12, math.log10(most) + 0.12
    scale = Scale([low, high], LEFT, WIDTH - RIGHT)
    steps = (1, 2, 5) if high - low < 2.2 else (1,)
    marks = [
        factor * 10.0**power
        for power in range(math.floor(low), math.ceil(high) + 1)
        for factor in steps
        if low <= math.log10(factor * 10.0**power) <= high
    ]
    return Axis(scale, [(scale(math.log10(mark)), f"{mark:g}") for mark in marks], True)


def grid(x: Sequence[tuple[float, str]], y: Sequence[tuple[float, str]]) -> Iterator[Shape]:
    """Faint lines at the marks on the left, and what is written at both axes."""
    for place, told in y:
        yield Stroke([(LEFT, place), (WIDTH - RIGHT, place)])
        yield Words(LEFT - 6, place + 4, told, "muted", SMALL, "end")
    for place, told in x:
        yield Words(place, HEIGHT - BOTTOM + 17, told, "muted", SMALL, "middle")


def named(
    dot: Dot, name: str, dots: Sequence[Dot], others: Sequence[Words], avoided: Sequence[Dot]
) -> Words | None:
    """The name beside its dot where it covers no dot and no other name, and if that can be
    nothing that should be avoided; None where there is no such place."""
    places = list(_places(dot, shortened(name, LONGEST_NAME)))
    names = [_room(words) for words in others]
    for taken in ([*dots, *avoided], dots):
        rooms = names + [_around(other) for other in taken]
        for words in places:
            if _fits(words) and not any(_overlap(_room(words), room) for room in rooms):
                return words
    return None


def _places(dot: Dot, name: str) -> Iterator[Words]:
    beside, bold = dot.radius + 4, dot.paint == "conducted"
    tries: tuple[tuple[float, float, Anchor], ...] = (
        (beside, 4, "start"),
        (-beside, 4, "end"),
        (0, -beside - 3, "middle"),
        (0, beside + 9, "middle"),
        (beside, -8, "start"),
        (beside, 16, "start"),
        (-beside, -8, "end"),
        (-beside, 16, "end"),
    )
    for across, down, anchor in tries:
        yield Words(dot.x + across, dot.y + down, name, "ink", SMALL, anchor, bold, halo=True)


def _fits(words: Words) -> bool:
    left, top, right, bottom = _room(words)
    return left >= LEFT and right <= WIDTH - 2 and top >= 2 and bottom <= HEIGHT - BOTTOM


def shortened(name: str, longest: int) -> str:
    """The name, or its beginning."""
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


_Room = tuple[float, float, float, float]


def _room(words: Words) -> _Room:
    before = {"start": 0.0, "middle": words.width / 2, "end": words.width}[words.anchor]
    left = words.x - before
    return left, words.y - words.size * 0.8, left + words.width, words.y + words.size * 0.2


def _around(dot: Dot) -> _Room:
    return dot.x - dot.radius, dot.y - dot.radius, dot.x + dot.radius, dot.y + dot.radius


def _overlap(one: _Room, other: _Room) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
