"""Steps by difficulty: whether harder tasks get longer workflows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from podium._util.svg import Scale, ticks
from podium.evals.page.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    SMALL,
    TOP,
    WIDTH,
    grid,
    shortened,
)
from podium.evals.page.numbers import amount
from podium.evals.page.scene import Dot, Scene, Shape, Stroke, Words
from podium.evals.tables.row import Row

LINE_PAINTS: Final = ("c0", "c4", "c2", "c3", "c5", "c6", "c7", "c8")
"""Without red, which would look like a fault; there are no more lines than these."""

MOST_GROUPS: Final = 8
"""Of more kinds than these, the most frequent are drawn."""

KEY_ROW: Final = 17.0


def steps_by_difficulty(rows: Sequence[Row]) -> Scene:
    """The mean steps of a task for each level, a line for each strategy; by kind of task where
    nothing says how hard one is."""
    drawn = list(rows[: len(LINE_PAINTS)])
    by_level = any(row.levels for row in drawn)
    parts = [row.levels if by_level else row.kinds for row in drawn]
    groups = _groups(parts)
    lengths = [
        {group: part[group].steps() or 0.0 for group in groups if group in part} for part in parts
    ]
    most = max((length for line in lengths for length in line.values()), default=1.0)
    y = Scale(ticks(0.0, max(most, 1.0)), HEIGHT - BOTTOM, TOP)
    apart = (WIDTH - RIGHT - LEFT) / max(len(groups), 1)
    places = {group: LEFT + apart * (place + 0.5) for place, group in enumerate(groups)}
    room = int(apart / (SMALL * 0.56))
    marks = [(place, shortened(group or "all", room)) for group, place in places.items()]
    shapes: list[Shape] = [*grid(marks, [(y(tick), f"{tick:g}") for tick in y.ticks])]
    for number, (row, line) in enumerate(zip(drawn, lengths, strict=True)):
        shapes += _line(row, line, places, y, LINE_PAINTS[number])
        shapes += _key(row.strategy, number)
    described = "; ".join(
        f"{row.strategy}: " + ", ".join(f"{group} {amount(at)}" for group, at in line.items())
        for row, line in zip(drawn, lengths, strict=True)
    )
    by = "difficulty" if by_level else "kind of task"
    height = HEIGHT + KEY_ROW * ((len(drawn) + 1) // 2) - 14
    return Scene("steps", f"Mean steps of a task, by {by}", described, WIDTH, height, shapes)


def _groups(parts: Sequence[Mapping[str, Row]]) -> list[str]:
    """The groups that there are, in order, less the rarest where they are many."""
    sizes = Counter[str]()
    for part in parts:
        for group, row in part.items():
            sizes[group] += len(row.samples)
    most = {group for group, _ in sizes.most_common(MOST_GROUPS)}
    return [group for group in sizes if group in most]


def _line(
    row: Row, lengths: Mapping[str, float], places: Mapping[str, float], y: Scale, paint: str
) -> list[Shape]:
    """What was cut off before the first of these groups has no line."""
    points = [(places[group], y(length)) for group, length in lengths.items()]
    hints = [f"{row.strategy}, {group}: {amount(at)} steps" for group, at in lengths.items()]
    dots = [Dot(x, at, 4, paint, hint) for (x, at), hint in zip(points, hints, strict=True)]
    return [Stroke(points, paint, 1.8), *dots] if points else []


def _key(strategy: str, number: int) -> list[Shape]:
    row, column = divmod(number, 2)
    x = LEFT + column * (WIDTH - LEFT - RIGHT) / 2
    y = HEIGHT - 12 + row * KEY_ROW
    paint = LINE_PAINTS[number]
    return [Dot(x + 5, y - 4, 4, paint), Words(x + 15, y, shortened(strategy, 28), size=SMALL)]
