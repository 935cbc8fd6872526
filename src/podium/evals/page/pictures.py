"""Pictures as PNG files, for papers and chats: what the page shows, on light paper.

matplotlib does nothing here but turn shapes into pixels; it comes with the extra `eval` and is
loaded when a picture is asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from podium._util.files import writing
from podium.core.errors import ConfigError, installing
from podium.evals.page.markup import visible
from podium.evals.page.scene import PAINTS, Box, Dot, Scene, Stroke, Words

UNITS_PER_INCH: Final = 96
POINTS_PER_UNIT: Final = 72 / UNITS_PER_INCH
DOTS_PER_INCH: Final = 2 * UNITS_PER_INCH
"""Twice as many as the page has, so that letters stay sharp."""

EDGE, HEAD, TITLE = 16.0, 30.0, 15.0
"""The room around a picture and for its title, and how large that is written."""

_ALIGNED: Final = {"start": "left", "middle": "center", "end": "right"}


def write_pictures(scenes: Iterable[Scene], directory: Path, prefix: str = "") -> list[Path]:
    """Write each picture under its name, and say where they are."""
    written = []
    for scene in scenes:
        path = directory / f"{prefix}{scene.name}.png"
        with writing(directory, 0, option="--output"), warnings.catch_warnings():
            # A name in letters that the font lacks is drawn as boxes, and its reader sees that.
            warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
            _figure(scene).savefig(
                path, dpi=DOTS_PER_INCH, facecolor=_light("paper"), metadata={"Software": None}
            )
        written.append(path)
    return written


def _figure(scene: Scene) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            f"the page is written, but its pictures need matplotlib: {installing('eval')}"
        ) from error
    width, height = scene.width + 2 * EDGE, scene.height + 2 * EDGE + HEAD
    figure = Figure(figsize=(width / UNITS_PER_INCH, height / UNITS_PER_INCH))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-EDGE, scene.width + EDGE)
    axes.set_ylim(scene.height + EDGE, -EDGE - HEAD)
    axes.axis("off")
    title = Words(0, -HEAD / 2, scene.title, size=TITLE, bold=True)
    for depth, shape in enumerate([title, *scene.shapes]):
        _draw(axes, shape, depth)
    return figure


def _draw(axes: Any, shape: Words | Stroke | Dot | Box, depth: int) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch
    from matplotlib.patheffects import withStroke

    match shape:
        case Words():
            axes.text(
                shape.x,
                shape.y,
                visible(shape.text),
                color=_light(shape.paint),
                fontsize=shape.size * POINTS_PER_UNIT * 0.96,
                fontweight="bold" if shape.bold else "normal",
                ha=_ALIGNED[shape.anchor],
                va="baseline",
                zorder=depth,
                parse_math=False,
                path_effects=(
                    [withStroke(linewidth=2.5, foreground=_light("paper"))] if shape.halo else None
                ),
            )
        case Stroke():
            axes.plot(
                [x for x, _ in shape.points],
                [y for _, y in shape.points],
                color=_light(shape.paint),
                linewidth=shape.width * POINTS_PER_UNIT,
                linestyle=(0, (5, 4)) if shape.dashed else "solid",
                solid_capstyle="butt",
                zorder=depth,
            )
        case Dot():
            place = (shape.x, shape.y)
            axes.add_patch(
                Circle(place, shape.radius, color=_light(shape.paint), lw=0, zorder=depth)
            )
        case Box():
            rounding = min(3.0, shape.width / 2, shape.height / 2)
            axes.add_patch(
                FancyBboxPatch(
                    (shape.x + rounding, shape.y + rounding),
                    max(shape.width - 2 * rounding, 0.0),
                    max(shape.height - 2 * rounding, 0.0),
                    boxstyle=f"round,pad={rounding},rounding_size={rounding}",
                    color=_light(shape.paint),
                    alpha=shape.opacity,
                    lw=0,
                    zorder=depth,
                )
            )


def _light(paint: str) -> str:
    return PAINTS[paint][0]
