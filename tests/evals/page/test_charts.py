from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from evals.samples import sample
from podium.core.roles import Role
from podium.evals.page.axes import WIDTH, across
from podium.evals.page.frontier import cost_of, frontier
from podium.evals.page.heat import who_does_what
from podium.evals.page.lengths import steps_by_difficulty
from podium.evals.page.scene import Box, Dot, Scene, Stroke, Words, svg
from podium.evals.tables.comparison import CEILING
from podium.evals.tables.row import Row


def row(strategy: str, rate: float, **more: object) -> Row:
    return Row(strategy, tuple(sample(n < rate * 20, **more) for n in range(20)))


ROWS = [
    row("conductor", 0.8, cost_usd=0.02),
    row("moa", 0.6, cost_usd=0.05),
    row("single:gpt-5", 0.6, cost_usd=0.01),
    row("single:small", 0.3, cost_usd=0.0001),
    row(CEILING, 0.7, cost_usd=0.008),
]


def dots(scene: Scene) -> dict[str, Dot]:
    """The dots that say something, by the strategy that they are of."""
    named = [shape for shape in scene.shapes if isinstance(shape, Dot) and shape.hint]
    return {dot.hint.partition(": ")[0]: dot for dot in named}


def rooms(words: Sequence[Words]) -> list[tuple[float, float, float, float]]:
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}
    lefts = [(w, w.x - before[w.anchor] * w.width) for w in words]
    return [(left, w.y - w.size * 0.8, left + w.width, w.y) for w, left in lefts]


def test_better_is_higher_and_dearer_is_further_right() -> None:
    placed = dots(frontier(ROWS))
    assert set(placed) == {row.strategy for row in ROWS} - {CEILING}
    assert placed["conductor"].y < placed["moa"].y < placed["single:small"].y
    assert placed["single:small"].x < placed["single:gpt-5"].x < placed["moa"].x
    assert placed["conductor"].hint == "conductor: 80.0 % right at $0.020"


def test_the_line_joins_what_nothing_cheaper_beats_and_no_ceiling() -> None:
    scene, placed = frontier(ROWS), dots(frontier(ROWS))
    (line,) = [s for s in scene.shapes if isinstance(s, Stroke) and s.dashed and len(s.points) > 2]
    on_it = {name for name, dot in placed.items() if (dot.x, dot.y) in line.points}
    assert on_it == {"single:small", "single:gpt-5", "conductor"}


def test_the_ceiling_is_a_height_that_nobody_can_buy() -> None:
    scene = frontier(ROWS)
    (line,) = [s for s in scene.shapes if isinstance(s, Stroke) and s.paint == "ceiling"]
    placed = dots(scene)
    assert placed["conductor"].y < line.points[0][1] == line.points[1][1] < placed["moa"].y
    assert scene.described.endswith("per-task best: 70.0 % right")


def test_every_interval_is_drawn_through_its_dot() -> None:
    scene = frontier(ROWS)
    for name, dot in dots(scene).items():
        bar = next(
            s.points
            for s in scene.shapes
            if isinstance(s, Stroke) and len(s.points) == 2 and s.points[0][0] == dot.x
            and s.points[0][0] == s.points[1][0]
        )  # fmt: skip
        assert bar[1][1] < dot.y < bar[0][1], name


def test_names_cover_neither_dots_nor_each_other() -> None:
    crowd = [row(f"single:worker-{n}", 0.5 + n / 100, cost_usd=0.01 + n / 5000) for n in range(12)]
    scene = frontier(crowd)
    names = [shape for shape in scene.shapes if isinstance(shape, Words) and shape.halo]
    assert len(names) >= 6
    placed = rooms(names)
    for place, (left, top, right, bottom) in enumerate(placed):
        assert left >= 0
        assert right <= WIDTH
        for other in placed[:place]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart
        for dot in dots(scene).values():
            assert not (left < dot.x < right and top < dot.y < bottom)


def test_cost_is_money_where_everything_has_a_price_else_tokens_else_calls() -> None:
    assert cost_of(ROWS).unit == "US dollars a task"
    assert cost_of([*ROWS, row("vague", 0.5)]).unit == "tokens a task"
    unknown = row("vague", 0.5, worker_tokens=None, calls=3)
    assert cost_of([unknown]).unit == "calls a task"
    assert dots(frontier([unknown]))["vague"].hint.endswith("at 3")


def test_a_scale_is_logarithmic_where_costs_differ_much() -> None:
    wide, narrow = across([0.0001, 0.05]), across([1.0, 4.0])
    assert (wide.is_logarithmic, narrow.is_logarithmic) == (True, False)
    assert wide(0.01) - wide(0.001) == pytest.approx(wide(0.001) - wide(0.0001))
    assert [told for _, told in wide.marks] == ["0.0001", "0.001", "0.01"]
    assert [told for _, told in narrow.marks] == ["0", "1", "2", "3", "4"]


def test_harder_tasks_stand_further_right_and_longer_workflows_higher() -> None:
    planned = Row(
        "conductor",
        tuple(
            sample(True, skills=None, difficulty=level, workers=("a",) * steps)
            for level, steps in (("hard", 5), ("easy", 1), ("medium", 2), ("medium", 4))
        ),
    )
    scene = steps_by_difficulty([planned])
    found = [shape for shape in scene.shapes if isinstance(shape, Dot) and shape.hint]
    assert [dot.hint for dot in found] == [
        "conductor, easy: 1 steps",
        "conductor, medium: 3 steps",
        "conductor, hard: 5 steps",
    ]
    assert found[0].x < found[1].x < found[2].x
    assert found[0].y > found[1].y > found[2].y
    assert "by difficulty" in scene.title


def test_where_nothing_says_how_hard_a_task_is_steps_are_told_by_kind() -> None:
    plain = Row("conductor", tuple(sample(True, skills=None, kind=kind) for kind in ("b", "a")))
    scene = steps_by_difficulty([plain])
    assert scene.title == "Mean steps of a task, by kind of task"
    assert scene.described == "conductor: a 1, b 1"


def test_the_heat_map_has_a_cell_for_every_worker_and_role() -> None:
    planned = Row(
        "conductor",
        (
            sample(True, workers=("a", "b"), roles=(Role.PLAN, Role.SOLVE)),
            sample(True, workers=("b", "b"), roles=(Role.SOLVE, Role.VERIFY)),
        ),
    )
    scene = who_does_what(planned)
    cells = {box.hint: box for box in scene.shapes if isinstance(box, Box)}
    assert len(cells) == 2 * len(Role)
    assert cells["b, solve: 2 of 4 steps"].opacity > cells["a, plan: 1 of 4 steps"].opacity
    assert cells["a, plan: 1 of 4 steps"].opacity > cells["a, verify: 0 of 4 steps"].opacity
    assert scene.described.startswith("b solve 50.0 %")


def test_a_picture_says_in_words_what_it_shows_and_is_sound_xml() -> None:
    scene = frontier([row("single:<&\"'>", 0.5, cost_usd=1.0), *ROWS])
    drawing = ElementTree.fromstring(svg(scene))
    assert drawing.attrib["role"] == "img"
    assert drawing.findtext("title") == "Accuracy over US dollars a task"
    assert "single:<&\"'>: 50.0 % right" in (drawing.findtext("desc") or "")
