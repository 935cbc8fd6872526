"""A picture as a list of shapes, before anybody decides whether it becomes SVG or PNG.

A shape is painted by a name. In the page the name is a class, so that the picture follows its
reader's light or dark; in a file it is the colour for light paper. Lengths are in units of which
a letter of usual size is about twelve high; y grows downwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from podium._util.svg import DARK, LIGHT, SURFACES
from podium.evals.page.markup import Markup, element

Anchor = Literal["start", "middle", "end"]

PAINTS: Final = {
    "ink": (SURFACES["light"].ink, SURFACES["dark"].ink),
    "paper": (SURFACES["light"].paper, SURFACES["dark"].paper),
    "faint": (SURFACES["light"].faint, SURFACES["dark"].faint),
    "muted": (LIGHT[8], DARK[8]),
    "conducted": (LIGHT[0], DARK[0]),
    "other": (LIGHT[4], DARK[4]),
    "alone": (LIGHT[8], DARK[8]),
    "ceiling": (LIGHT[3], DARK[3]),
    "right": (LIGHT[2], DARK[2]),
    "wrong": (LIGHT[1], DARK[1]),
    **{f"c{n}": pair for n, pair in enumerate(zip(LIGHT, DARK, strict=True))},
}
"""Each paint on light paper and on dark."""

LETTER: Final = 0.56
"""How wide a letter is on average, for its height."""


@dataclass(frozen=True, slots=True)
class Words:
    """A line of text; `y` is where its letters stand. With a `halo` it stays legible over lines."""

    x: float
    y: float
    text: str
    paint: str = "ink"
    size: float = 12
    anchor: Anchor = "start"
    bold: bool = False
    halo: bool = False

    @property
    def width(self) -> float:
        """How much room the words need, about."""
        return len(self.text) * self.size * LETTER


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line through some points."""

    points: Sequence[tuple[float, float]]
    paint: str = "faint"
    width: float = 1
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle; `hint` is what it says when pointed at."""

    x: float
    y: float
    radius: float
    paint: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle, let through as much as its `opacity` says."""

    x: float
    y: float
    width: float
    height: float
    paint: str
    opacity: float = 1.0
    hint: str = ""


Shape = Words | Stroke | Dot | Box


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture: its size, its shapes from the rearmost on, and what it shows, in words."""

    name: str
    title: str
    described: str
    width: float
    height: float
    shapes: Sequence[Shape]


def svg(scene: Scene) -> Markup:
    """The picture as a part of a page, as wide as its place."""
    return element(
        "svg",
        element("title", scene.title),
        element("desc", scene.described),
        *(_drawn(shape) for shape in scene.shapes),
        viewBox=f"0 0 {scene.width:g} {scene.height:g}",
        role="img",
        class_="picture",
    )


def _drawn(shape: Shape) -> Markup:
    match shape:
        case Words():
            return element(
                "text",
                shape.text,
                x=_place(shape.x),
                y=_place(shape.y),
                class_=f"f-{shape.paint} halo" if shape.halo else f"f-{shape.paint}",
                font_size=_place(shape.size),
                text_anchor=None if shape.anchor == "start" else shape.anchor,
                font_weight="600" if shape.bold else None,
            )
        case Stroke():
            places = " L".join(f"{_place(x)},{_place(y)}" for x, y in shape.points)
            return element(
                "path",
                d=f"M{places}",
                class_=f"s-{shape.paint}",
                stroke_width=_place(shape.width),
                stroke_dasharray="5 4" if shape.dashed else None,
            )
        case Dot():
            return element(
                "circle",
                *_hint(shape.hint),
                cx=_place(shape.x),
                cy=_place(shape.y),
                r=_place(shape.radius),
                class_=f"f-{shape.paint}",
            )
        case Box():
            return element(
                "rect",
                *_hint(shape.hint),
                x=_place(shape.x),
                y=_place(shape.y),
                width=_place(shape.width),
                height=_place(shape.height),
                rx=3,
                class_=f"f-{shape.paint}",
                fill_opacity=None if shape.opacity == 1.0 else f"{shape.opacity:.2f}",
            )


def _hint(words: str) -> list[Markup]:
    return [element("title", words)] if words else []


def _place(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
