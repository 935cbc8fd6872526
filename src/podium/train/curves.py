"""Training curves: small plots of `metrics.jsonl`, drawn with matplotlib as one SVG file.

    write_curves([Path("trained/etudes")], Path("curves.svg"))

Several trainings share every plot, each in its colour. Series with many lines, such as the
accuracy by kind, get a plot for each training. The same metrics give the same bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium._util.files import write_atomically
from podium._util.plots import (
    INK,
    SERIES,
    css_classes,
    css_variables,
    new_figure,
    style_axes,
    to_svg,
)
from podium.core.errors import ConfigError, StoreError
from podium.train.training_log import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HELD_OUT: Final = "held_out/"
"""The prefix of series that were measured on held-out questions."""

LARGEST: Final = 1e15
"""Larger numbers, infinity and NaN are left out."""

_BEGINNING: Final = re.compile(r'\n|(?=\{"step")')
"""The beginning of an entry: a new line, or behind an entry that a crash cut off."""


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """The series of one training by name and step; `left_out` counts unreadable lines."""

    name: str
    series: Mapping[str, Mapping[int, float]]
    left_out: int = 0


def read_histories(paths: Sequence[Path]) -> list[TrainingHistory]:
    """Read trainings, each named by its directory, or by its path where two are alike."""
    short = [_short_name(path) for path in paths]
    return [
        _read(path, name if short.count(name) == 1 else str(path))
        for path, name in zip(paths, short, strict=True)
    ]


def _short_name(path: Path) -> str:
    path = path.resolve()
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == METRICS else path.stem


def _read(path: Path, name: str) -> TrainingHistory:
    file = path / METRICS if path.is_dir() else path
    try:
        text = file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"{path} holds no metrics: {file}: {error.strerror}; name the directory of a training"
        ) from error
    series: dict[str, dict[int, float]] = {}
    entries = [_entry(piece) for piece in _BEGINNING.split(text) if piece.strip()]
    for entry in entries:
        if entry is not None:
            _take(series, *entry)
    if not series:
        raise ConfigError(
            f"{file} holds no step of a training yet; wait for the first, or name another training"
        )
    return TrainingHistory(name, series, entries.count(None))


def _entry(piece: str) -> tuple[int, dict[str, float]] | None:
    try:
        entry: Any = json.loads(piece)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(step := entry.pop("step", None), int):
        return None
    return step, {name: value for name, value in entry.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST


def _take(series: dict[str, dict[int, float]], step: int, numbers: dict[str, float]) -> None:
    """Add the numbers of a step. A step that was there before was repeated after a resume and
    replaces everything from there on."""
    if "rollouts" not in numbers:
        numbers.pop("seconds", None)  # these are seconds of the whole training
    if any(step in series.get(name, ()) for name in numbers):
        for values in series.values():
            for lost in [at for at in values if at >= step]:
                del values[lost]
    for name, value in numbers.items():
        series.setdefault(name, {})[step] = value


STEPS: Final = "steps/"

SHARED: Final[Mapping[str, tuple[str, float | None]]] = {
    "reward": ("reward", None),
    "accuracy": ("accuracy", 1.0),
    "best_candidate": ("accuracy of a step's best candidate", 1.0),
    "accuracy_given_valid": ("accuracy given a valid plan", 1.0),
    "valid_rate": ("share of valid plans", 1.0),
    "everyday": ("share of everyday questions left alone", 1.0),
    "regret": ("regret against the best worker", None),
    "ceiling_gap": ("gap to ideal plans", None),
    "mean_steps": ("mean steps of a plan", None),
    "mean_turns": ("mean turns of a run", None),
    "sigma": ("spread of candidates, sigma", None),
    "entropy_bits": ("worker entropy, bits", None),
    "groups_with_spread": ("share of groups with spread", 1.0),
    "mean_tokens": ("mean tokens of a completion", None),
    "seconds": ("seconds a step", None),
    "loss": ("loss", None),
}
"""Series that all trainings share a plot of: its title, and the end of its scale if fixed."""

ONE_EACH: Final[Mapping[str, str]] = {
    f"{HELD_OUT}accuracy/": "held-out accuracy by kind",
    "accuracy/": "accuracy by kind",
    STEPS: "share of plans by their steps",
    "role/": "share of turns by role",
    "eval/": "accuracy on held-out examples",
}
"""Series with many lines, all of them shares: the prefix of their names, and the title."""

NEVER_MEASURED: Final = frozenset({"groups_with_spread"})
"""Series without meaning on held-out questions, each of which is tried once."""

COLUMNS, WIDTH, HEIGHT = 3, 320, 200
FEW_POINTS: Final = 25
"""Lines with so few points show them as dots too."""

MOST_POINTS: Final = 250
"""Longer lines show means."""

FEWEST_STEPS: Final = 5

Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """A line of a plot; `is_measured` says that it is of held-out questions."""

    label: str
    points: Points
    colour: int
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """One of the small plots; `top` is the end of its scale if fixed."""

    title: str
    lines: Sequence[Line]
    top: float | None = None
    has_key: bool = False


def write_curves(paths: Sequence[Path], output: Path) -> list[TrainingHistory]:
    """Draw the trainings in these directories, or of these metrics files, into one file."""
    if output.suffix != ".svg":
        raise ConfigError(f"curves are drawn as SVG; name a file that ends in .svg, not {output}")
    histories = read_histories(paths)
    picture = draw(histories)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, picture)
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror or error}") from error
    return histories


def plots(histories: Sequence[TrainingHistory]) -> list[Plot]:
    """Return the plots that have anything to show."""
    found = [
        Plot(title, _shared_lines(histories, name), top) for name, (title, top) in SHARED.items()
    ]
    for prefix, title in ONE_EACH.items():
        colours = _colours(histories, prefix)
        for history in histories:
            own = f"{title}: {history.name}" if len(histories) > 1 else title
            found.append(Plot(own, _own_lines(history, prefix, colours), 1.0, has_key=True))
    return [plot for plot in found if plot.lines]


def _shared_lines(histories: Sequence[TrainingHistory], name: str) -> list[Line]:
    lines = []
    for colour, history in enumerate(histories):
        if values := history.series.get(name):
            lines.append(Line(history.name, _thin(values), colour))
        measured = history.series.get(HELD_OUT + name)
        if measured and name not in NEVER_MEASURED:
            lines.append(Line(f"{history.name}, held out", _thin(measured), colour, True))
    return lines


def _own_lines(history: TrainingHistory, prefix: str, colours: Mapping[str, int]) -> list[Line]:
    named = {
        name.removeprefix(prefix): values
        for name, values in sorted(history.series.items())
        if name.startswith(prefix) and values
    }
    if prefix == STEPS:  # a length that no plan of a step had is not in the metrics
        nothing = dict.fromkeys(history.series.get("mean_steps", ()), 0.0)
        named = {label: nothing | dict(values) for label, values in named.items()}
    return [Line(label, _thin(values), colours[label]) for label, values in named.items()]


def _colours(histories: Sequence[TrainingHistory], prefix: str) -> dict[str, int]:
    """Give equal labels equal colours in all plots, held-out or not."""
    name = prefix.removeprefix(HELD_OUT)
    labels = {
        series.removeprefix(HELD_OUT).removeprefix(name)
        for history in histories
        for series in history.series
        if series.removeprefix(HELD_OUT).startswith(name)
    }
    return {label: colour for colour, label in enumerate(sorted(labels))}


def _thin(values: Mapping[int, float]) -> Points:
    points = sorted(values.items())
    size = math.ceil(len(points) / MOST_POINTS)
    if size < 2:
        return points
    return [
        (sum(step for step, _ in some) / len(some), sum(value for _, value in some) / len(some))
        for some in (points[at : at + size] for at in range(0, len(points), size))
    ]


# ---- drawing


def draw(histories: Sequence[TrainingHistory]) -> str:
    """Return the text of an SVG file that is readable on light and on dark paper."""
    figure = make_figure(histories)
    names = _printable(", ".join(history.name for history in histories))
    title = f"Training curves: {names}"
    picture = to_svg(figure, name="curves", title=title, description="Metrics by step.")
    width, height = (96 * inches for inches in figure.get_size_inches())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">\n'
        f"<style>\ntext {{ font-family: system-ui, sans-serif }}\n"
        f"{css_variables()}\n{css_classes()}\n</style>\n"
        f'<rect class="f-paper" width="100%" height="100%"/>\n{picture}\n</svg>\n'
    )


def make_figure(histories: Sequence[TrainingHistory]) -> Figure:
    """Draw the plots side by side, with the trainings' colours above them."""
    small = plots(histories)
    if not small:
        raise ConfigError("these metrics have nothing that can be drawn")
    last = max(at for plot in small for line in plot.lines for at, _ in line.points)
    rows, legend_rows = math.ceil(len(small) / COLUMNS), math.ceil(len(histories) / 6)
    figure = new_figure(WIDTH * COLUMNS, HEIGHT * rows + 24 + 18 * legend_rows)
    grid = figure.subplots(rows, COLUMNS, squeeze=False).flat
    for axes, plot in zip(grid, small, strict=False):
        _draw_plot(style_axes(axes), plot, max(last, FEWEST_STEPS))
    for axes in figure.axes[len(small) :]:
        axes.remove()
    keys = [
        figure.axes[0].plot([], [], **_style(Line(_printable(history.name), (), colour)))[0]
        for colour, history in enumerate(histories)
    ]
    measured = any(line.is_measured for plot in small for line in plot.lines)
    note = "by step; thin, with dots: on held-out questions" if measured else "by step"
    legend = figure.legend(
        handles=keys, title=note, loc="outside upper left", ncols=6, frameon=False, fontsize=8
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set(parse_math=False, color=INK, fontsize=8)
    return figure


def _draw_plot(axes: Axes, plot: Plot, last: float) -> None:
    axes.set_title(_printable(plot.title), loc="left", fontsize=9, color=INK, parse_math=False)
    for line in plot.lines:
        steps, values = zip(*line.points, strict=True)
        axes.plot(steps, values, **_style(line))
    lowest = min(0.0, *(value for line in plot.lines for _, value in line.points))
    axes.set_xlim(0, last)
    axes.set_ylim(lowest, plot.top or None)
    if axes.get_ylim()[1] <= 0:
        axes.set_ylim(lowest, 1.0)
    if plot.has_key:
        legend = axes.legend(
            fontsize=6.5, ncols=3, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12)
        )
        for text in legend.get_texts():
            text.set(parse_math=False, color=INK)


def _style(line: Line) -> dict[str, Any]:
    return {
        "label": _printable(line.label),
        "color": SERIES[line.colour % len(SERIES)][0],
        "linestyle": "-" if line.colour < len(SERIES) else "--",
        "linewidth": 0.6 if line.is_measured else 1.2,
        "marker": "o" if line.is_measured or len(line.points) <= FEW_POINTS else "",
        "markersize": 2.5,
    }


def _printable(words: str) -> str:
    """Replace control characters, which XML does not allow."""
    return "".join(letter if letter.isprintable() else "�" for letter in words)
