from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from podium._util.svg import DARK, LIGHT
from podium.core.errors import ConfigError
from podium.train.curves import (
    MOST_POINTS,
    TrainingHistory,
    draw,
    plots,
    read_histories,
    write_curves,
)

REPOSITORY = Path(__file__).parents[2]
TRIALS, PICTURES = REPOSITORY / "results" / "trials", REPOSITORY / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


def course(**series: dict[int, float]) -> TrainingHistory:
    return TrainingHistory("a", series)


def plot_of(picture: str, title: str) -> ElementTree.Element:
    """The small picture of that title."""
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        if group.findtext(f"{SVG}text") == title:
            return group
    raise AssertionError(f"no plot is called {title}")


def lines_of(group: ElementTree.Element) -> dict[str, list[tuple[float, float]]]:
    """The points of every line, by what the line is called."""
    return {
        said.rpartition(": from ")[0]: list(points(path))
        for path in group.iter(f"{SVG}path")
        if (said := path.findtext(f"{SVG}title"))
    }


def points(path: ElementTree.Element) -> Iterator[tuple[float, float]]:
    for across, down in re.findall(r"([\d.]+),([\d.]+)", path.attrib["d"]):
        yield float(across), float(down)


def scale_of(group: ElementTree.Element, kind: str, along: str) -> dict[float, float]:
    """Where the values stand that are written beside an axis."""
    return {
        float(text.text or ""): float(text.attrib[along])
        for text in group.iter(f"{SVG}text")
        if text.get("class") == kind
    }


def test_every_series_is_a_line_in_the_plot_of_its_name() -> None:
    first = TrainingHistory("one", {"reward": {1: 0.1, 2: 0.3}, "held_out/reward": {2: 0.2}})
    second = TrainingHistory("two", {"reward": {1: 0.5}, "seconds": {1: 4.0}})
    picture = draw([first, second])
    reward = lines_of(plot_of(picture, "reward"))
    assert {name: len(found) for name, found in reward.items()} == {
        "one": 2,
        "one, held out": 1,
        "two": 1,
    }
    assert set(lines_of(plot_of(picture, "seconds a step"))) == {"two"}
    assert len(plots([first, second])) == 2, "what nobody has is not drawn"


def test_what_is_only_measured_is_drawn_too() -> None:
    (plot,) = plots([course(**{"held_out/everyday": {20: 0.9, 40: 0.95}})])
    assert [(line.label, line.is_measured) for line in plot.lines] == [("a, held out", True)]


def test_points_stand_where_the_scales_say() -> None:
    group = plot_of(draw([course(accuracy={0: 0.0, 10: 0.5, 20: 1.0})]), "accuracy")
    (line,) = lines_of(group).values()
    across, down = scale_of(group, "below", "x"), scale_of(group, "beside", "y")
    assert set(down) == {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}
    height = down[0.0] - down[1.0]
    assert [at for at, _ in line] == [across[0], (across[0] + across[20]) / 2, across[20]]
    lowest = down[0.0] - 4  # words stand a little below their line
    assert [value for _, value in line] == pytest.approx(
        [lowest, lowest - height / 2, lowest - height]
    )


def test_shares_are_drawn_up_to_one_and_other_values_to_the_next_round_one() -> None:
    picture = draw([course(accuracy={1: 0.1}, mean_tokens={1: 43.0}, reward={1: -0.3, 2: 0.4})])
    assert max(scale_of(plot_of(picture, "accuracy"), "beside", "y")) == 1.0
    assert max(scale_of(plot_of(picture, "mean tokens of a completion"), "beside", "y")) == 50
    reward = scale_of(plot_of(picture, "reward"), "beside", "y")
    assert (min(reward), max(reward)) == (-0.4, 0.4)


def test_a_value_that_never_changes_has_a_scale() -> None:
    picture = draw([course(loss={1: 0.0, 2: 0.0})])
    assert set(scale_of(plot_of(picture, "loss"), "beside", "y")) >= {0.0, 1.0}


def test_all_plots_have_the_same_steps() -> None:
    picture = draw([course(reward={1: 0.1, 40: 0.2}, **{"held_out/accuracy": {20: 0.5}})])
    steps = [scale_of(plot_of(picture, title), "below", "x") for title in ("reward", "accuracy")]
    assert [set(scale) for scale in steps] == [{0, 10, 20, 30, 40}] * 2


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
    group = plot_of(draw([TrainingHistory("a", kinds)]), "accuracy by kind")
    classes = [
        path.attrib["class"]
        for path in group.iter(f"{SVG}path")
        if path.find(f"{SVG}title") is not None
    ]
    assert len(set(classes)) == len(kinds) > len(LIGHT)


def test_names_of_many_trainings_all_stand_within_the_picture() -> None:
    many = [TrainingHistory(f"training-{number:02}", {"reward": {1: 0.1}}) for number in range(20)]
    tree = ElementTree.fromstring(draw(many))
    width = float(tree.attrib["width"])
    heading = {text.text: text.attrib for text in tree.findall(f"{SVG}text")}
    assert len(heading) == 21  # and what the axis is
    for name, at in heading.items():
        assert float(at["x"]) + 6 * len(name or "") <= width
    places = {(at["x"], at["y"]) for at in heading.values()}
    assert len(places) == 21
    first_plot = plot_of(draw(many), "reward").find(f"{SVG}text")
    assert first_plot is not None
    assert float(first_plot.attrib["y"]) > max(float(at["y"]) for at in heading.values())


def test_names_cannot_break_the_picture() -> None:
    name = '</title><script>alert("1")</script>&\x1b\x00'
    series: dict[str, dict[int, float]] = {"reward": {1: 0.1}, f"accuracy/{name}": {1: 0.2}}
    picture = draw([TrainingHistory(name, series), TrainingHistory("b", series)])
    tree = ElementTree.fromstring(picture)
    assert not list(tree.iter(f"{SVG}script"))
    assert name[:-2] + "��" in (tree.findtext(f"{SVG}title") or "")


def test_the_picture_is_readable_on_light_and_on_dark() -> None:
    picture = draw([course(reward={1: 0.1})])
    light, _, dark = picture.partition("@media (prefers-color-scheme: dark)")
    assert all(colour in light for colour in LIGHT)
    assert all(colour in dark and colour not in light for colour in DARK)


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
    with pytest.raises(ConfigError, match="nothing in these metrics"):
        draw([course(unheard_of={1: 1.0})])


def test_another_format_than_svg_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ends in .svg"):
        write_curves([tmp_path], tmp_path / "curves.png")


@pytest.mark.parametrize("trial", sorted(TRIALS.glob("*.jsonl")), ids=lambda trial: trial.stem)
def test_the_pictures_of_the_notebook_are_those_of_the_trials(trial: Path) -> None:
    picture = (PICTURES / f"{trial.stem}.svg").read_text("utf-8")
    command = f"podium train curves results/trials/{trial.name} -o docs/pictures/{trial.stem}.svg"
    assert picture == draw(read_histories([trial])), f"run: {command}"
