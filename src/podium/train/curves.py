"""How trainings went, as one picture: small plots of what `metrics.jsonl` holds, in SVG.

    write_curves([Path("trained/etudes")], Path("curves.svg"))

Several trainings share every plot, a colour each; what has many lines by itself, such as the
accuracy of each kind of task, gets a plot for each training. The same metrics give the same
bytes. What the numbers mean is told in `podium.train.diagnostics`; files are read by
`podium.train.course`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from xml.sax.saxutils import escape

from podium._util.files import write_atomically
from podium._util.svg import DARK, LIGHT, SURFACES, Scale, ticks
from podium.core.errors import ConfigError, StoreError
from podium.train.training_log import METRICS

HELD_OUT: Final = "held_out/"
"""What the name of a series begins with that was measured on held-out questions."""

LARGEST: Final = 1e15
"""No number that means anything here is larger; infinity is, and what is no number is not."""

_BEGINNING: Final = re.compile(r'\n|(?=\{"step")')
"""Where an entry begins: on a line of its own, or behind one that a crash left half written."""


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """How one training went: its series by name, each by step. `left_out` counts lines that were
    no metrics."""

    name: str
    series: Mapping[str, Mapping[int, float]]
    left_out: int = 0


def read_histories(paths: Sequence[Path]) -> list[TrainingHistory]:
    """Each training under a name of its own: its directory's, or the path where two are alike."""
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
    """The step of an entry, and its numbers."""
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
    """Put the numbers of a step to the others. One that was there before is a step repeated
    after a break, and everything that came after it then is lost."""
    if "rollouts" not in numbers:
        numbers.pop("seconds", None)  # of the whole training, where they are not of a step
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
    "sigma": ("how far candidates lie apart, sigma", None),
    "entropy_bits": ("worker entropy, bits", None),
    "groups_with_spread": ("share of groups with spread", 1.0),
    "mean_tokens": ("mean tokens of a completion", None),
    "seconds": ("seconds a step", None),
    "loss": ("loss", None),
}
"""What all trainings share a plot of: its title, and where its scale ends if not by the values."""

ONE_EACH: Final[Mapping[str, str]] = {
    f"{HELD_OUT}accuracy/": "held-out accuracy by kind",
    "accuracy/": "accuracy by kind",
    STEPS: "share of plans by their steps",
    "role/": "share of turns by role",
    "eval/": "accuracy of recitals",
}
"""What has many lines, all of them shares: the beginning of their names, and the title."""

NEVER_MEASURED: Final = frozenset({"groups_with_spread"})
"""What is written down for held-out questions and means nothing there: each is tried once."""

COLUMNS: Final = 3
WIDTH, HEIGHT = 320, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 30, 22
"""The size of a plot, and the room around it."""

HEAD, KEY_ROW, KEY_COLUMNS = 34, 15, 3
LONGEST_LABEL: Final = 15
FEW_POINTS: Final = 25
"""So few are shown as dots too."""

MOST_POINTS: Final = 250
"""A line has no more; of several that fall together, it shows the mean."""

FEWEST_STEPS: Final = 5
"""Where the scale of the steps ends at the earliest, so that it counts whole ones."""

Points = Sequence[tuple[float, float]]
Item = TypeVar("Item")


class Line(NamedTuple):
    """A line of a plot. `is_measured` says that it was measured on held-out questions."""

    label: str
    points: Points
    colour: int
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """One of the small pictures; `top` is where its scale ends if not by the values."""

    title: str
    lines: Sequence[Line]
    top: float | None = None
    has_key: bool = False

    @property
    def height(self) -> int:
        """How much room it needs from top to bottom."""
        rows = math.ceil(len(self.lines) / KEY_COLUMNS) if self.has_key else 0
        return TOP + HEIGHT + BOTTOM + rows * KEY_ROW


def write_curves(paths: Sequence[Path], output: Path) -> list[TrainingHistory]:
    """Draw the trainings in these directories, or of these files of metrics, into one file."""
    if output.suffix != ".svg":
        raise ConfigError(f"curves are drawn as SVG; name a file that ends in .svg, not {output}")
    courses = read_histories(paths)
    picture = draw(courses)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, picture)
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror or error}") from error
    return courses


# ---- what is drawn


def plots(courses: Sequence[TrainingHistory]) -> list[Plot]:
    """The plots for which there is anything to show."""
    drawn = [
        Plot(title, _shared_lines(courses, name), top) for name, (title, top) in SHARED.items()
    ]
    for beginning, title in ONE_EACH.items():
        for course in courses:
            whose = f"{title}: {course.name}" if len(courses) > 1 else title
            lines = _own_lines(course, beginning, _colours(courses, beginning))
            drawn.append(Plot(whose, lines, 1.0, has_key=True))
    return [plot for plot in drawn if plot.lines]


def _shared_lines(courses: Sequence[TrainingHistory], name: str) -> list[Line]:
    lines = []
    for colour, course in enumerate(courses):
        if values := course.series.get(name):
            lines.append(Line(course.name, _thinned(values), colour))
        measured = course.series.get(HELD_OUT + name)
        if measured and name not in NEVER_MEASURED:
            lines.append(Line(f"{course.name}, held out", _thinned(measured), colour, True))
    return lines


def _own_lines(course: TrainingHistory, beginning: str, colours: Mapping[str, int]) -> list[Line]:
    """A line for every name that begins so. A length that no plan of a step had is not written
    down there, and its share was nothing."""
    named = {
        name.removeprefix(beginning): values
        for name, values in sorted(course.series.items())
        if name.startswith(beginning) and values
    }
    if beginning == STEPS:
        nothing = dict.fromkeys(course.series.get("mean_steps", ()), 0.0)
        named = {label: nothing | dict(values) for label, values in named.items()}
    return [Line(label, _thinned(values), colours[label]) for label, values in named.items()]


def _colours(courses: Sequence[TrainingHistory], beginning: str) -> dict[str, int]:
    """The same colour for the same label in all plots, held-out or not."""
    name = beginning.removeprefix(HELD_OUT)
    labels = {
        series.removeprefix(HELD_OUT).removeprefix(name)
        for course in courses
        for series in course.series
        if series.removeprefix(HELD_OUT).startswith(name)
    }
    return {label: colour for colour, label in enumerate(sorted(labels))}


def _thinned(values: Mapping[int, float]) -> Points:
    together = math.ceil(len(values) / MOST_POINTS)
    if together < 2:
        return sorted(values.items())
    return [
        (sum(step for step, _ in some) / len(some), sum(value for _, value in some) / len(some))
        for some in _in_rows(sorted(values.items()), together)
    ]


def _in_rows(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[begin : begin + size] for begin in range(0, len(items), size)]


# ---- drawing


def draw(courses: Sequence[TrainingHistory]) -> str:
    """The picture, as the text of an SVG file."""
    small = plots(courses)
    if not small:
        raise ConfigError("there is nothing in these metrics that can be drawn")
    last = max(at for plot in small for line in plot.lines for at, _ in line.points)
    width = WIDTH * COLUMNS + RIGHT
    heading, y = _heading(courses, small, width)
    body = []
    for row in _in_rows(small, COLUMNS):
        body += [_plot(plot, column * WIDTH, y, last) for column, plot in enumerate(row)]
        y += max(plot.height for plot in row)
    names = _text(", ".join(course.name for course in courses))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y:.0f}" '
            f'viewBox="0 0 {width} {y:.0f}" role="img">',
            f"<title>Training curves: {names}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="paper" width="{width}" height="{y:.0f}"/>',
            *heading,
            *body,
            "</svg>\n",
        ]
    )


def _heading(
    courses: Sequence[TrainingHistory], small: Sequence[Plot], width: int
) -> tuple[list[str], float]:
    """Which colour is which training, and what the dots are, in as many rows as it takes; and
    where the plots begin below."""
    x, y = float(LEFT), HEAD - 14.0
    has_measured = any(line.is_measured for plot in small for line in plot.lines)
    told = "by step; thin, with dots: on held-out questions" if has_measured else "by step"
    entries = []
    for colour, name in enumerate([*(course.name for course in courses), told]):
        room = 34 + 7 * len(name)
        if x > LEFT and x + room > width:
            x, y = float(LEFT), y + KEY_ROW
        if colour < len(courses):
            entries.append(_key_entry(name, colour, x, y))
        else:
            entries.append(f'<text x="{x:.0f}" y="{y:.0f}">{told}</text>')
        x += room
    return entries, y + 14


def _plot(plot: Plot, left: float, top: float, last: float) -> str:
    values = [value for line in plot.lines for _, value in line.points]
    highest = plot.top if plot.top is not None else max(values)
    x = Scale(ticks(0, max(last, FEWEST_STEPS)), left + LEFT, left + WIDTH - RIGHT)
    y = Scale(ticks(min(0.0, *values), highest), top + TOP + HEIGHT, top + TOP)
    parts = [f'<text class="title" x="{x.begin:.0f}" y="{top + 20:.0f}">{_text(plot.title)}</text>']
    for tick in y.ticks:
        place = y(tick)
        parts.append(f'<path class="scale" d="M{x.begin:.1f},{place:.1f} H{x.end:.1f}"/>')
        parts.append(
            f'<text class="beside" x="{x.begin - 6:.1f}" y="{place + 4:.1f}">{tick:g}</text>'
        )
    parts += [
        f'<text class="below" x="{x(tick):.1f}" y="{y.begin + 15:.1f}">{tick:g}</text>'
        for tick in x.ticks
    ]
    parts += [_line(line, x, y) for line in plot.lines]
    if plot.has_key:
        for place, line in enumerate(plot.lines):
            row, column = divmod(place, KEY_COLUMNS)
            room = (x.end - x.begin) / KEY_COLUMNS
            below = y.begin + BOTTOM + 10 + row * KEY_ROW
            short = _shortened(line.label)
            parts.append(_key_entry(short, line.colour, x.begin + column * room, below))
    return "\n".join(["<g>", *parts, "</g>"])


def _line(line: Line, x: Scale, y: Scale) -> str:
    places = [f"{x(at):.1f},{y(value):.1f}" for at, value in line.points]
    (_, first), (_, final) = line.points[0], line.points[-1]
    kind = "measured" if line.is_measured else "line"
    said = _text(f"{line.label}: from {first:.4g} to {final:.4g}")
    drawn = (
        f'<path class="{kind} {_colour(line.colour)}" d="M{" L".join(places)}">'
        f"<title>{said}</title></path>"
    )
    if line.is_measured or len(places) <= FEW_POINTS:
        for place in places:
            across, down = place.split(",")
            drawn += f'<circle class="{_colour(line.colour)}" cx="{across}" cy="{down}" r="2"/>'
    return drawn


def _key_entry(label: str, colour: int, x: float, y: float) -> str:
    return (
        f'<path class="line {_colour(colour)}" d="M{x:.1f},{y - 4:.1f} h14"/>'
        f'<text x="{x + 19:.1f}" y="{y:.1f}">{_text(label)}</text>'
    )


def _shortened(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def _colour(number: int) -> str:
    """The classes of the colour of that number; dashed where the colours begin anew."""
    colour = f"c{number % len(LIGHT)}"
    return colour if number < len(LIGHT) else f"{colour} again"


def _text(words: str) -> str:
    """The words as XML holds them; it has no place for most control characters."""
    return escape("".join(letter if letter.isprintable() else "�" for letter in words))


def _style() -> str:
    rules = [
        "text { font: 11px system-ui, sans-serif } .title { font-weight: 600; font-size: 12px }",
        ".beside { text-anchor: end } .below { text-anchor: middle }",
        "path { fill: none } .line { stroke-width: 1.6 } .measured { stroke-width: 0.8 }",
        ".again { stroke-dasharray: 4 3 }",
        _surface("light", LIGHT),
        f"@media (prefers-color-scheme: dark) {{ {_surface('dark', DARK)} }}",
    ]
    return "\n".join(rules)


def _surface(name: str, colours: Sequence[str]) -> str:
    paper, ink, faint = SURFACES[name]
    lines = [f".paper {{ fill: {paper} }} text {{ fill: {ink} }} .scale {{ stroke: {faint} }}"]
    for number, colour in enumerate(colours):
        lines.append(f"path.c{number} {{ stroke: {colour} }} circle.c{number} {{ fill: {colour} }}")
    return " ".join(lines)
