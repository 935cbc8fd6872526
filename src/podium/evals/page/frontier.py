"""The accuracy-cost frontier: how often each strategy is right, for what it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from podium.evals.page.axes import (
    HEIGHT,
    LEFT,
    RIGHT,
    SMALL,
    WIDTH,
    Axis,
    across,
    grid,
    named,
    upright,
)
from podium.evals.page.families import family
from podium.evals.page.numbers import amount, percent, usd
from podium.evals.page.scene import Dot, Scene, Shape, Stroke, Words
from podium.evals.tables.comparison import CEILING
from podium.evals.tables.row import Row

_PARTS: Final = tuple(part / 8 for part in range(-8, 9))


class Cost(NamedTuple):
    """What a task takes: its unit, how it is read from a row, and how it is told."""

    unit: str
    of: Callable[[Row], float | None]
    told: Callable[[float | None], str]


_COSTS: Final = (
    Cost("US dollars a task", lambda row: row.cost_usd, usd),
    Cost("tokens a task", lambda row: row.tokens, amount),
    Cost("calls a task", lambda row: row.calls, amount),
)


def cost_of(rows: Sequence[Row]) -> Cost:
    """Money where everything has a price, else tokens, else calls."""
    return next((cost for cost in _COSTS if all(cost.of(row) for row in rows)), _COSTS[-1])


def frontier(rows: Sequence[Row]) -> Scene:
    """Accuracy over cost; a line joins the strategies of which none is cheaper and better.

    The best worker for each task is a height and no place: nobody could buy it.
    """
    strategies = [row for row in rows if row.strategy != CEILING]
    ceilings = [row for row in rows if row.strategy == CEILING]
    cost = cost_of(strategies)
    placed = sorted(
        ((cost.of(row) or 0.0, row) for row in strategies),
        key=lambda pair: -pair[1].accuracy.value,
    )
    x = across([spent for spent, _ in placed])
    y = upright([row.accuracy for row in rows])
    shapes: list[Shape] = [
        *grid(x.marks, y.marks),
        Words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, cost.unit, "muted", SMALL, "middle"),
        *_best_for_the_money(placed, x, y),
        *(shape for row in ceilings for shape in _ceiling(row, y)),
    ]
    dots = [_dot(spent, row, cost, x, y) for spent, row in placed]
    for dot, (_, row) in zip(dots, placed, strict=True):
        ends = [(dot.x, y(row.accuracy.low)), (dot.x, y(row.accuracy.high))]
        shapes.append(Stroke(ends, dot.paint, 1.3))
    names = list[Words]()
    above = [shape for shape in shapes if isinstance(shape, Words) and shape.halo]
    bars = [*_along(shapes)]
    for dot, (_, row) in zip(dots, placed, strict=True):
        name = named(dot, row.strategy, dots, [*above, *names], bars)
        if name is not None:
            names.append(name)
    heights = [f"{row.strategy}: {percent(row.accuracy.value)} right" for row in ceilings]
    described = "; ".join([*(dot.hint for dot in dots), *heights])
    title = f"Accuracy over {cost.unit}"
    return Scene("frontier", title, described, WIDTH, HEIGHT, [*shapes, *dots, *names])


def _ceiling(row: Row, y: Axis) -> Iterator[Shape]:
    at = y(row.accuracy.value)
    yield Stroke([(LEFT, at), (WIDTH - RIGHT, at)], "ceiling", 1.4, dashed=True)
    yield Words(LEFT + 4, at - 5, row.strategy, "ceiling", SMALL, halo=True)


def _along(shapes: Sequence[Shape]) -> Iterator[Dot]:
    """Places on the upright bars, which no name should cover."""
    for shape in shapes:
        if isinstance(shape, Stroke) and len(shape.points) == 2 and not shape.dashed:
            (x, top), (also, bottom) = shape.points
            if x == also:
                middle, reach = (top + bottom) / 2, abs(bottom - top) / 2
                yield from (Dot(x, middle + reach * part, 1, shape.paint) for part in _PARTS)


def _dot(spent: float, row: Row, cost: Cost, x: Axis, y: Axis) -> Dot:
    paint, accuracy = family(row.strategy), row.accuracy.value
    hint = f"{row.strategy}: {percent(accuracy)} right at {cost.told(spent)}"
    return Dot(x(spent), y(accuracy), 6.0 if paint == "conducted" else 4.5, paint, hint)


def _best_for_the_money(placed: Sequence[tuple[float, Row]], x: Axis, y: Axis) -> Iterator[Stroke]:
    """Steps from each strategy that is the best so far to the next one. Ceilings are no
    strategies: nobody can have them."""
    best, corners = -1.0, list[tuple[float, float]]()
    for spent, row in sorted(placed, key=lambda pair: pair[0]):
        accuracy = row.accuracy.value
        if accuracy > best and family(row.strategy) != "ceiling":
            best = accuracy
            if corners:
                corners.append((x(spent), corners[-1][1]))
            corners.append((x(spent), y(best)))
    if len(corners) > 1:
        yield Stroke(corners, "conducted", 1.2, dashed=True)
