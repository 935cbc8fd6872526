from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from podium._util.plots import SERIES
from podium.core.errors import ConfigError
from podium.train.curves import (
    MOST_POINTS,
    TrainingHistory,
    draw,
    make_figure,
    plots,
    read_histories,
    write_curves,
)

REPOSITORY = Path(__file__).parents[2]
TRIALS, PICTURES = REPOSITORY / "results" / "trials", REPOSITORY / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


def course(**series: dict[int, float]) -> TrainingHistory:
    return TrainingHistory("a", series)


def axes_of(*histories: TrainingHistory) -> dict[str, Any]:
    """The small plots by their titles."""
    return {axes.get_title(loc="left"): axes for axes in make_figure(histories).axes}


def lines_of(axes: Any) -> dict[str, list[tuple[float, float]]]:
    """The points of every line, by its label."""
    return {
        line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in axes.lines
        if len(line.get_xdata())
    }


def test_every_series_is_a_line_in_the_plot_of_its_name() -> None:
    first = TrainingHistory("one", {"reward": {1: 0.1, 2: 0.3}, "held_out/reward": {2: 0.2}})
    second = TrainingHistory("two", {"reward": {1: 0.5}, "seconds": {1: 4.0}})
    found = axes_of(first, second)
    assert lines_of(found["reward"]) == {
        "one": [(1, 0.1), (2, 0.3)],
        "one, held out": [(2, 0.2)],
        "two": [(1, 0.5)],
    }
    assert lines_of(found["seconds a step"]) == {"two": [(1, 4.0)]}
    assert len(found) == len(plots([first, second])) == 2, "series without values are not drawn"


def test_what_is_only_measured_is_drawn_too() -> None:
    (plot,) = plots([course(**{"held_out/everyday": {20: 0.9, 40: 0.95}})])
    assert [(line.label, line.is_measured) for line in plot.lines] == [("a, held out", True)]


def test_shares_are_drawn_up_to_one_and_other_scales_hold_all_values() -> None:
    found = axes_of(course(accuracy={1: 0.1}, mean_tokens={1: 43.0}, reward={1: -0.3, 2: 0.4}))
    assert found["accuracy"].get_ylim() == (0.0, 1.0)
    assert found["mean tokens of a completion"].get_ylim()[1] >= 43
    lowest, highest = found["reward"].get_ylim()
    assert lowest <= -0.3
    assert highest >= 0.4


def test_a_value_that_never_changes_has_a_scale() -> None:
    assert axes_of(course(loss={1: 0.0, 2: 0.0}))["loss"].get_ylim()[1] > 0


def test_all_plots_have_the_same_steps() -> None:
    found = axes_of(course(reward={1: 0.1, 40: 0.2}, **{"held_out/accuracy": {20: 0.5}}))
    assert [axes.get_xlim() for axes in found.values()] == [(0, 40)] * 2


def test_kinds_have_a_plot_for_each_training_and_their_own_colours() -> None:
    kinds: dict[str, dict[int, float]] = {
        "held_out/accuracy/one": {20: 0.6},
        "held_out/accuracy/join-2": {20: 0.1},
        "accuracy/everyday": {20: 0.9},
        "accuracy/one": {20: 0.7},
    }
    one, two = (
        TrainingHistory("a", kinds),
        TrainingHistory("b", {"held_out/accuracy/one": {20: 0.3}}),
    )
    drawn = {plot.title: plot for plot in plots([one, two])}
    assert set(drawn) == {
        "held-out accuracy by kind: a",
        "held-out accuracy by kind: b",
        "accuracy by kind: a",
    }
    colours = {line.colour for plot in drawn.values() for line in plot.lines if line.label == "one"}
    assert len(colours) == 1
    held_out = drawn["held-out accuracy by kind: a"].lines
    assert [line.label for line in held_out] == ["join-2", "one"]


def test_a_length_that_no_plan_had_has_no_share() -> None:
    shares: dict[str, dict[int, float]] = {"steps/1": {1: 0.5, 2: 1.0}, "steps/2": {1: 0.5}}
    _, plot = plots([course(mean_steps={1: 1.5, 2: 1.0}, **shares)])
    assert {line.label: list(line.points) for line in plot.lines} == {
        "1": [(1, 0.5), (2, 1.0)],
        "2": [(1, 0.5), (2, 0.0)],
    }


def test_many_points_become_means() -> None:
    values = {number: float(number % 2) for number in range(10 * MOST_POINTS)}
    (plot,) = plots([course(reward=values)])
    (line,) = plot.lines
    assert len(line.points) == MOST_POINTS
    assert {value for _, value in line.points} == {0.5}


def test_more_lines_than_colours_are_told_apart_by_dashes() -> None:
    kinds = {f"accuracy/{letter}": {1: 0.5} for letter in "abcdefghijkl"}
    (axes,) = axes_of(TrainingHistory("a", kinds)).values()
    drawn = [line for line in axes.lines if len(line.get_xdata())]
    styles = {(line.get_color(), line.get_linestyle()) for line in drawn}
    assert len(styles) == len(kinds) > len(SERIES)


def test_names_of_many_trainings_all_stand_within_the_picture() -> None:
    many = [TrainingHistory(f"training-{number:02}", {"reward": {1: 0.1}}) for number in range(20)]
    figure = make_figure(many)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [one.name for one in many]
    box, plot = legend.get_window_extent(), figure.axes[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert plot.y1 < box.y0


def test_names_cannot_break_the_picture() -> None:
    name = '</title><script>alert("1")</script>&\x1b\x00'
    series: dict[str, dict[int, float]] = {"reward": {1: 0.1}, f"accuracy/{name}": {1: 0.2}}
    picture = draw([TrainingHistory(name, series), TrainingHistory("b", series)])
    tree = ElementTree.fromstring(picture)
    assert not list(tree.iter(f"{SVG}script"))
    assert name[:-2] + "��" in (tree.findtext(f".//{SVG}title") or "")


def test_the_picture_is_readable_on_light_and_on_dark() -> None:
    picture = draw([course(reward={1: 0.1})])
    light, _, dark = picture.partition("@media (prefers-color-scheme: dark)")
    assert all(pair[0] in light for pair in SERIES)
    assert all(pair[1] in dark for pair in SERIES)
    assert 'class="s-c0"' in dark


def test_the_same_metrics_give_the_same_bytes(tmp_path: Path) -> None:
    directory = tmp_path / "a"
    directory.mkdir()
    line = '{"step": 1, "seconds": 4, "rollouts": 8, "accuracy/b": 0.5, "accuracy/a": 0.1}'
    (directory / "metrics.jsonl").write_text(line, "utf-8")
    for name in ("one.svg", "two.svg"):
        write_curves([directory], tmp_path / "new" / name)
    one, two = ((tmp_path / "new" / name).read_bytes() for name in ("one.svg", "two.svg"))
    assert one == two
    assert b"seconds a step" in one


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ConfigError, match="nothing that can be drawn"):
        draw([course(unheard_of={1: 1.0})])


def test_another_format_than_svg_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ends in .svg"):
        write_curves([tmp_path], tmp_path / "curves.png")


@pytest.mark.parametrize("trial", sorted(TRIALS.glob("*.jsonl")), ids=lambda trial: trial.stem)
def test_the_pictures_of_the_notebook_are_those_of_the_trials(trial: Path) -> None:
    picture = (PICTURES / f"{trial.stem}.svg").read_text("utf-8")
    command = f"podium train curves results/trials/{trial.name} -o docs/pictures/{trial.stem}.svg"
    assert picture == draw(read_histories([trial])), f"run: {command}"
