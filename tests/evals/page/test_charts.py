from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("matplotlib")

from evals.samples import sample
from podium._util.plots import new_figure
from podium.core.roles import Role
from podium.evals.comparison import CEILING
from podium.evals.page.charts import (
    Chart,
    choose_cost,
    frontier_chart,
    roles_chart,
    scale_cost_axis,
    steps_chart,
)
from podium.evals.results import StrategyRow


def row(strategy: str, rate: float, **more: object) -> StrategyRow:
    return StrategyRow(strategy, tuple(sample(n < rate * 20, **more) for n in range(20)))


ROWS = [
    row("conductor", 0.8, cost_usd=0.02),
    row("moa", 0.6, cost_usd=0.05),
    row("single:gpt-5", 0.6, cost_usd=0.01),
    row("single:small", 0.3, cost_usd=0.0001),
    row(CEILING, 0.7, cost_usd=0.008),
]


def lines(chart: Chart, gid: str) -> list[Any]:
    """The lines whose gid begins so."""
    (axes,) = chart.figure.axes
    return [line for line in axes.lines if str(line.get_gid()).startswith(gid)]


def points(chart: Chart) -> dict[str, tuple[float, float]]:
    """Cost and accuracy of each strategy's point."""
    return {
        chart.tooltips[line.get_gid()].partition(": ")[0]: (
            float(line.get_xdata()[0]),
            float(line.get_ydata()[0]),
        )
        for line in lines(chart, "point")
    }


def test_points_are_at_cost_and_accuracy() -> None:
    chart = frontier_chart(ROWS)
    placed = points(chart)
    assert set(placed) == {row.strategy for row in ROWS} - {CEILING}
    assert placed["conductor"] == (0.02, 0.8)
    assert placed["single:small"] == (0.0001, 0.3)
    assert "conductor: 80.0 % correct at $0.020" in chart.tooltips.values()


def test_the_line_joins_what_nothing_cheaper_beats_and_no_ceiling() -> None:
    chart = frontier_chart(ROWS)
    (line,) = lines(chart, "frontier")
    on_it = set(zip(line.get_xdata(), line.get_ydata(), strict=True))
    placed = points(chart)
    assert {name for name, place in placed.items() if place in on_it} == {
        "single:small",
        "single:gpt-5",
        "conductor",
    }


def test_the_per_task_best_is_a_height_without_a_cost() -> None:
    chart = frontier_chart(ROWS)
    (line,) = lines(chart, "ceiling")
    assert set(line.get_ydata()) == {0.7}
    assert chart.description.endswith("per-task best: 70.0 % correct")


def test_every_point_has_its_interval() -> None:
    chart = frontier_chart(ROWS)
    bars = lines(chart, "bar")
    assert len(bars) == len(points(chart))
    for bar, (cost, accuracy) in zip(bars, points(chart).values(), strict=True):
        assert set(bar.get_xdata()) == {cost}
        low, high = bar.get_ydata()
        assert low < accuracy < high


def test_names_cover_neither_points_nor_each_other() -> None:
    crowd = [row(f"single:worker-{n}", 0.5 + n / 100, cost_usd=0.01 + n / 5000) for n in range(12)]
    chart = frontier_chart(crowd)
    (axes,) = chart.figure.axes
    renderer = chart.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    assert len(boxes) >= 6
    inside = axes.get_window_extent(renderer)
    for place, box in enumerate(boxes):
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1
        assert not any(box.overlaps(other) for other in boxes[:place])
        for at in points(chart).values():
            assert not box.contains(*axes.transData.transform(at))


def test_cost_is_money_if_everything_has_a_price_else_tokens_else_calls() -> None:
    assert choose_cost(ROWS).unit == "US dollars per task"
    assert choose_cost([*ROWS, row("vague", 0.5)]).unit == "tokens per task"
    unknown = row("vague", 0.5, worker_tokens=None, calls=3)
    assert choose_cost([unknown]).unit == "calls per task"
    (tooltip,) = frontier_chart([unknown]).tooltips.values()
    assert tooltip.endswith("at 3")


def test_the_cost_axis_is_logarithmic_if_costs_differ_much() -> None:
    wide, narrow = new_figure(400, 300).add_subplot(), new_figure(400, 300).add_subplot()
    scale_cost_axis(wide, [0.0001, 0.05])
    scale_cost_axis(narrow, [1.0, 4.0])
    assert (wide.get_xscale(), narrow.get_xscale()) == ("log", "linear")
    for axes, expected in (
        (wide, ["0.0001", "0.001", "0.01"]),
        (narrow, ["0", "1", "2", "3", "4"]),
    ):
        low, high = axes.get_xlim()
        axes.figure.draw_without_rendering()  # type: ignore[union-attr]
        labels = [
            label.get_text()
            for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
            if low <= place <= high
        ]
        assert labels == expected


def test_steps_are_drawn_by_difficulty_the_easiest_first() -> None:
    planned = StrategyRow(
        "conductor",
        tuple(
            sample(True, skills=None, difficulty=level, workers=("a",) * steps)
            for level, steps in (("hard", 5), ("easy", 1), ("medium", 2), ("medium", 4))
        ),
    )
    chart = steps_chart([planned])
    (line,) = lines(chart, "line")
    assert list(line.get_xdata()) == [0, 1, 2]
    assert list(line.get_ydata()) == [1, 3, 5]
    (axes,) = chart.figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["easy", "medium", "hard"]
    assert chart.tooltips["line-0"] == "conductor: easy 1, medium 3, hard 5"
    assert "by difficulty" in chart.title


def test_without_a_difficulty_steps_are_drawn_by_kind() -> None:
    plain = StrategyRow(
        "conductor", tuple(sample(True, skills=None, kind=kind) for kind in ("b", "a"))
    )
    chart = steps_chart([plain])
    assert chart.title == "Mean steps per task, by kind of task"
    assert chart.description == "conductor: a 1, b 1"


def test_the_heat_map_has_a_cell_for_every_worker_and_role() -> None:
    planned = StrategyRow(
        "conductor",
        (
            sample(True, workers=("a", "b"), roles=(Role.PLAN, Role.SOLVE)),
            sample(True, workers=("b", "b"), roles=(Role.SOLVE, Role.VERIFY)),
        ),
    )
    chart = roles_chart(planned)
    (axes,) = chart.figure.axes
    shades = {chart.tooltips[str(cell.get_gid())]: cell.get_alpha() for cell in axes.patches}
    assert len(shades) == 2 * len(Role)
    one, two, none = (
        shades[name] or 0.0
        for name in ("a, plan: 1 of 4 steps", "b, solve: 2 of 4 steps", "a, verify: 0 of 4 steps")
    )
    assert two > one > none
    assert chart.description.startswith("b solve 50.0 %")
