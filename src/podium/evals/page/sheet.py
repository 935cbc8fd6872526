"""The table of strategies as a picture, for where a page cannot go."""

from __future__ import annotations

from typing import Final

from podium.evals.page.axes import shortened
from podium.evals.page.evaluation import View
from podium.evals.page.families import family
from podium.evals.page.numbers import UNKNOWN, amount, percent, plural, points, seconds, span, usd
from podium.evals.page.scene import Anchor, Box, Dot, Scene, Shape, Stroke, Words
from podium.evals.tables.comparison import Yardsticks
from podium.evals.tables.row import Row

WIDTH: Final = 890.0
ROW, HEAD = 30.0, 30.0
_COLUMNS: Final[tuple[tuple[str, float, Anchor], ...]] = (
    ("strategy", 26.0, "start"),
    ("accuracy", 300.0, "end"),
    ("95 % interval", 425.0, "end"),
    ("against best", 525.0, "end"),
    ("cost", 600.0, "end"),
    ("tokens", 680.0, "end"),
    ("calls", 740.0, "end"),
    ("steps", 800.0, "end"),
    ("half in", 880.0, "end"),
)


def sheet(view: View) -> Scene:
    """The same strategies in the same order as on the page, with the figures that people quote."""
    title = f"{view.title}, {plural(view.measured.tasks, 'task')}"
    shapes: list[Shape] = [Words(x, 14, name, "muted", 11, anchor) for name, x, anchor in _COLUMNS]
    for place, row in enumerate(view.rows):
        top = HEAD + place * ROW
        if row is view.leading:
            shapes.append(Box(0, top - 4, WIDTH, ROW, "conducted", 0.10))
        shapes.append(Stroke([(0, top - 4), (WIDTH, top - 4)]))
        shapes.append(Dot(12, top + 11, 4.5, family(row.strategy)))
        for told, (_, x, anchor) in zip(_cells(row, view.measures), _COLUMNS, strict=True):
            bold = row is view.leading
            shapes.append(Words(x, top + 15, told, "ink", 12, anchor, bold))
    height = HEAD + len(view.rows) * ROW
    described = "; ".join(f"{row.strategy} {percent(row.accuracy.value)}" for row in view.rows)
    return Scene("table", title, described, WIDTH, height, shapes)


def _cells(row: Row, measures: Yardsticks) -> tuple[str, ...]:
    lead = measures.lead(row)
    return (
        shortened(row.strategy, 28),
        percent(row.accuracy.value),
        span(row.accuracy),
        UNKNOWN if lead is None else points(lead.share.value),
        usd(row.cost_usd),
        amount(row.tokens),
        amount(row.calls),
        amount(row.steps()),
        seconds(row.seconds(0.5)),
    )
