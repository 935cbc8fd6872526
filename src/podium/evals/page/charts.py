"""The charts of a report: accuracy over cost, steps by difficulty, workers and roles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from podium._util.plots import COLOURS, FONT_POINTS, INK, MUTED, new_figure, style_axes
from podium.core.roles import Role
from podium.evals.comparison import BEST_SINGLE, CEILING, SINGLE
from podium.evals.page.rendering import (
    amount,
    percent,
    shorten,
    usd,
    visible,
)
from podium.evals.results import IntervalEstimate, StrategyRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

Kind = Literal["conducted", "other", "alone", "ceiling"]
"""The kind of a strategy; also its CSS class."""

KINDS: Final[dict[Kind, str]] = {
    "conducted": "conductor",
    "other": "other strategies",
    "alone": "single worker",
    "ceiling": "upper bound",
}
KIND_COLOURS: Final[dict[Kind, str]] = {
    "conducted": COLOURS["c0"][0],
    "other": COLOURS["c4"][0],
    "alone": COLOURS["c8"][0],
    "ceiling": COLOURS["c3"][0],
}
_CONDUCTED: Final = ("conductor", "recursion", "rules", "baseline-conductor")
_CEILINGS: Final = ("ideal", CEILING)

WIDTH, HEIGHT = 460, 320
WIDE_RATIO: Final = 8.0
"""A cost axis is logarithmic if the largest cost is so many times the smallest."""

LINE_COLOURS: Final = tuple(COLOURS[f"c{number}"][0] for number in (0, 4, 2, 3, 5, 6, 7, 8))
"""Without red, which would look like an error. More strategies than these are not drawn."""

MAX_GROUPS: Final = 8
MAX_WORKERS: Final = 16
MAX_NAME: Final = 26
MIN_SHADE, MAX_SHADE = 0.05, 0.6
_SHORT_ROLES: Final = {Role.HAND_OVER: "hand over"}
_OFFSETS: Final = (
    (7, 0, "left", "center"),
    (-7, 0, "right", "center"),
    (0, 6, "center", "bottom"),
    (0, -6, "center", "top"),
    (6, 7, "left", "bottom"),
    (6, -7, "left", "top"),
    (-6, 7, "right", "bottom"),
    (-6, -7, "right", "top"),
)


def kind_of(strategy: str) -> Kind:
    """Return how the strategy answers."""
    if strategy in _CEILINGS:
        return "ceiling"
    if strategy.startswith(SINGLE) or strategy == BEST_SINGLE:
        return "alone"
    return "conducted" if strategy.partition(":")[0] in _CONDUCTED else "other"


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """A figure with a file name, a title, a description in words, and tooltips by `gid`."""

    name: str
    title: str
    description: str
    figure: Figure
    tooltips: Mapping[str, str] = field(default_factory=dict)


class Cost(NamedTuple):
    """A measure of cost: its unit, how to read it from a row, and how to format it."""

    unit: str
    of: Callable[[StrategyRow], float | None]
    format: Callable[[float | None], str]


_COSTS: Final = (
    Cost("US dollars per task", lambda row: row.cost_usd, usd),
    Cost("tokens per task", lambda row: row.tokens, amount),
    Cost("calls per task", lambda row: row.calls, amount),
)


def choose_cost(rows: Sequence[StrategyRow]) -> Cost:
    """Choose money if every row has a price, else tokens, else calls."""
    return next((cost for cost in _COSTS if all(cost.of(row) for row in rows)), _COSTS[-1])


def frontier_chart(rows: Sequence[StrategyRow]) -> Chart:
    """Draw accuracy over cost; a line joins the strategies that no cheaper one beats.

    The per-task best is a height and no point: no budget buys it.
    """
    strategies = sorted(
        (row for row in rows if row.strategy != CEILING), key=lambda row: -row.accuracy.value
    )
    ceilings = [row for row in rows if row.strategy == CEILING]
    cost = choose_cost(strategies)
    spent = [cost.of(row) or 0.0 for row in strategies]
    figure = new_figure(WIDTH, HEIGHT)
    axes = style_axes(figure.add_subplot())
    scale_cost_axis(axes, spent)
    _scale_share_axis(axes, [row.accuracy for row in rows])
    axes.set_xlabel(cost.unit, color=MUTED, fontsize=FONT_POINTS)
    _draw_frontier(axes, strategies, spent)
    for row in ceilings:
        height, colour = row.accuracy.value, KIND_COLOURS["ceiling"]
        axes.axhline(height, color=colour, linestyle=(0, (5, 4)), linewidth=1, gid="ceiling")
        _annotate(axes, row.strategy, (0, height), (3, 3), "left", "bottom", of_axes=True)
    tooltips: dict[str, str] = {}
    for number, (row, x) in enumerate(zip(strategies, spent, strict=True)):
        kind, share = kind_of(row.strategy), row.accuracy
        colour, gid = KIND_COLOURS[kind], f"point-{number}"
        axes.plot([x, x], [share.low, share.high], color=colour, linewidth=1, gid=f"bar-{number}")
        size = 9 if kind == "conducted" else 7
        axes.plot(
            [x], [share.value], "o", color=colour, markersize=size, markeredgewidth=0, gid=gid
        )
        tooltips[gid] = f"{row.strategy}: {percent(share.value)} correct at {cost.format(x)}"
    _label_points(axes, [(x, row) for x, row in zip(spent, strategies, strict=True)])
    bounds = [f"{row.strategy}: {percent(row.accuracy.value)} correct" for row in ceilings]
    description = "; ".join([*tooltips.values(), *bounds])
    return Chart("frontier", f"Accuracy over {cost.unit}", description, figure, tooltips)


def scale_cost_axis(axes: Axes, costs: Sequence[float]) -> None:
    """Scale the x axis from zero, or logarithmically if costs differ much."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    least, most = min(costs), max(costs)
    if least <= 0 or most / least < WIDE_RATIO:
        axes.set_xlim(0, most * 1.08 or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    else:
        axes.set_xscale("log")
        axes.set_xlim(least * 0.75, most * 1.33)
        decades = math.log10(most / least)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _scale_share_axis(axes: Axes, shares: Sequence[IntervalEstimate]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = min(share.low for share in shares), max(share.high for share in shares)
    room = max(0.03 * (high - low), 0.01)
    axes.set_ylim(max(low - room, 0 - room), min(high + room, 1 + room))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g} %"))


def _draw_frontier(axes: Axes, strategies: Sequence[StrategyRow], spent: Sequence[float]) -> None:
    best, xs, ys = -1.0, list[float](), list[float]()
    for x, row in sorted(zip(spent, strategies, strict=True), key=lambda pair: pair[0]):
        if row.accuracy.value > best and kind_of(row.strategy) != "ceiling":
            best = row.accuracy.value
            xs.append(x)
            ys.append(best)
    if len(xs) > 1:
        axes.plot(
            xs,
            ys,
            drawstyle="steps-post",
            color=KIND_COLOURS["conducted"],
            linewidth=0.9,
            linestyle=(0, (5, 4)),
            gid="frontier",
        )


def _annotate(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    horizontal: str,
    vertical: str,
    *,
    bold: bool = False,
    of_axes: bool = False,
) -> Annotation:
    annotation = axes.annotate(
        visible(text),
        at,
        offset,
        xycoords=("axes fraction", "data") if of_axes else "data",
        textcoords="offset points",
        ha=horizontal,
        va=vertical,
        color=INK,
        fontsize=FONT_POINTS,
        fontweight="bold" if bold else "normal",
        parse_math=False,
        annotation_clip=False,
    )
    annotation.set_in_layout(False)
    return annotation


def _label_points(axes: Axes, placed: Sequence[tuple[float, StrategyRow]]) -> None:
    """Name each point where the name covers no point and no other name; else leave it out."""
    from matplotlib.transforms import Bbox

    figure: Any = axes.figure
    figure.draw_without_rendering()  # fixes the layout, so that positions are known
    renderer = figure.canvas.get_renderer()
    inside = axes.get_window_extent(renderer)
    transform = axes.transData.transform
    centres = [transform((x, row.accuracy.value)) for x, row in placed]
    dots = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in centres]
    bars = [
        Bbox([transform((x, row.accuracy.low)) - 1, transform((x, row.accuracy.high)) + 1])
        for x, row in placed
    ]
    names = [text.get_window_extent(renderer) for text in axes.texts]
    for x, row in placed:
        for taken in ([*dots, *bars], dots):
            box = _label(axes, x, row, [*taken, *names], inside, renderer)
            if box is not None:
                names.append(box)
                break


def _label(
    axes: Axes, x: float, row: StrategyRow, taken: Sequence[Any], inside: Any, renderer: Any
) -> Any | None:
    for across, up, horizontal, vertical in _OFFSETS:
        annotation = _annotate(
            axes,
            shorten(row.strategy, MAX_NAME),
            (x, row.accuracy.value),
            (across, up),
            horizontal,
            vertical,
            bold=kind_of(row.strategy) == "conducted",
        )
        box = annotation.get_window_extent(renderer)
        fits = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0
        if fits and box.y1 <= inside.y1 and not any(box.overlaps(other) for other in taken):
            return box
        annotation.remove()
    return None


def steps_chart(rows: Sequence[StrategyRow]) -> Chart:
    """Draw the mean steps per task by difficulty, or by kind of task if no difficulty is known."""
    drawn = rows[: len(LINE_COLOURS)]
    by_level = any(row.levels for row in drawn)
    parts = [row.levels if by_level else row.kinds for row in drawn]
    groups = _largest_groups(parts)
    figure = new_figure(WIDTH, HEIGHT)
    axes = style_axes(figure.add_subplot())
    handles, tooltips, described = [], dict[str, str](), []
    for number, (row, part) in enumerate(zip(drawn, parts, strict=True)):
        steps = {group: part[group].steps() or 0.0 for group in groups if group in part}
        (line,) = axes.plot(
            [groups.index(group) for group in steps],
            [*steps.values()],
            "o-",
            color=LINE_COLOURS[number],
            linewidth=1.4,
            markersize=5,
            gid=f"line-{number}",
        )
        handles.append(line)
        values = ", ".join(f"{group} {amount(value)}" for group, value in steps.items())
        tooltips[f"line-{number}"] = f"{row.strategy}: {values}"
        described.append(f"{row.strategy}: {values}")
    axes.set_xticks(
        range(len(groups)),
        labels=[shorten(visible(group) or "all", 60 // len(groups)) for group in groups],
        parse_math=False,
    )
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))
    legend = figure.legend(
        handles,
        [shorten(visible(row.strategy), 28) for row in drawn],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        labelcolor=INK,
        fontsize=FONT_POINTS,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    by = "difficulty" if by_level else "kind of task"
    return Chart("steps", f"Mean steps per task, by {by}", "; ".join(described), figure, tooltips)


def _largest_groups(parts: Sequence[Mapping[str, StrategyRow]]) -> list[str]:
    sizes = Counter[str]()
    for part in parts:
        for group, row in part.items():
            sizes[group] += len(row.samples)
    largest = {group for group, _ in sizes.most_common(MAX_GROUPS)}
    return [group for group in sizes if group in largest]


def roles_chart(row: StrategyRow) -> Chart:
    """Draw the share of all steps for each worker and role as a heat map."""
    from matplotlib.patches import Rectangle

    counts = row.workers_by_role
    total, most = counts.total(), max(counts.values())
    workers = [name for name, _ in row.worker_counts.most_common(MAX_WORKERS)]
    figure = new_figure(WIDTH, 50 + 30 * len(workers))
    axes = style_axes(figure.add_subplot())
    axes.grid(visible=False)
    tooltips: dict[str, str] = {}
    for y, worker in enumerate(workers):
        for x, role in enumerate(Role):
            count, gid = counts[worker, role.value], f"cell-{y}-{x}"
            shade = MIN_SHADE + (MAX_SHADE - MIN_SHADE) * count / most
            colour = KIND_COLOURS["conducted"]
            cell = Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, color=colour, alpha=shade, lw=0)
            cell.set_gid(gid)
            axes.add_patch(cell)
            tooltips[gid] = f"{worker}, {role.value}: {count} of {total} steps"
            if count:
                _cell_text(axes, x, y, _share_of_steps(count, total))
        in_all_roles = sum(counts[worker, role.value] for role in Role)
        _cell_text(axes, len(Role), y, _share_of_steps(in_all_roles, total), bold=True)
    names = [shorten(visible(worker), 18) for worker in workers]
    roles = [*(_SHORT_ROLES.get(role, role.value) for role in Role), "all"]
    axes.set_yticks(range(len(workers)), labels=names, parse_math=False)
    axes.set_xticks(range(len(roles)), labels=roles)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, colors=MUTED, labelsize=FONT_POINTS)
    axes.set_xlim(-0.5, len(Role) + 0.5)
    axes.set_ylim(len(workers) - 0.5, -0.5)
    description = "; ".join(
        f"{worker} {role} {percent(count / total)}"
        for (worker, role), count in counts.most_common()
    )
    title = f"Workers and roles: {row.strategy}"
    return Chart("workers-and-roles", title, description, figure, tooltips)


def _cell_text(axes: Axes, x: float, y: float, text: str, *, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    axes.text(
        x, y, text, ha="center", va="center", color=INK, fontsize=FONT_POINTS, fontweight=weight
    )


def _share_of_steps(count: int, total: int) -> str:
    share = count / total * 100
    return f"{share:.0f}" if share >= 1 else "<1"
