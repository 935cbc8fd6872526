"""Charts with matplotlib: colours for light and dark readers, SVG to inline, and PNG files.

    figure = new_figure(460, 320)
    axes = style_axes(figure.add_subplot())
    axes.plot([1, 2], [3, 4], color=COLOURS["c0"][0])
    svg = to_svg(figure, name="demo", title="Demo", description="A line from 3 to 4.")

Charts are drawn in the light colours. `to_svg` turns each of them into a class (`f-c0` fills,
`s-c0` strokes) that `css_variables` and `css_classes` give a colour for light and for dark.
matplotlib comes with the extra `eval` and is imported on first use.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from podium.core.errors import ConfigError, install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES: Final = (
    ("#0969da", "#58a6ff"),
    ("#cf222e", "#ff7b72"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#bc8cff"),
    ("#bc4c00", "#f0883e"),
    ("#1b7c83", "#39c5cf"),
    ("#bf3989", "#f778ba"),
    ("#7d4e00", "#d29922"),
    ("#57606a", "#9ea7b3"),
    ("#4d7c0f", "#a3e635"),
)
COLOURS: Final = {
    "ink": ("#1f2328", "#e6edf3"),
    "paper": ("#ffffff", "#0d1117"),
    "faint": ("#d1d9e0", "#30363d"),
    **{f"c{number}": pair for number, pair in enumerate(SERIES)},
}
"""Each colour by name, on light and on dark paper."""

INK, PAPER, FAINT, MUTED = (COLOURS[name][0] for name in ("ink", "paper", "faint", "c8"))
UNITS_PER_INCH: Final = 96
PNG_SCALE: Final = 2
FONT_POINTS: Final = 8.25
"""11 CSS pixels."""

_CLASS_BY_COLOUR: Final = {light: name for name, (light, _) in COLOURS.items()}
_ATTRIBUTES: Final = frozenset(
    (
        *("fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-linecap"),
        *("stroke-linejoin", "stroke-dasharray", "stroke-dashoffset", "opacity"),
        *("text-anchor", "font-size", "font-weight"),
    )
)
"""Style properties that SVG also takes as attributes, which a content security policy allows."""

_FONT: Final = re.compile(r"(?P<weight>bold|\d{3})?\s*(?P<size>[\d.]+px)")
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")


def has_matplotlib() -> bool:
    """True if charts can be drawn."""
    return find_spec("matplotlib") is not None


def new_figure(width: float, height: float) -> Figure:
    """Create a figure of that many CSS pixels; ConfigError if matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(f"charts need matplotlib: {install_command('eval')}") from error
    figure = Figure(
        figsize=(width / UNITS_PER_INCH, height / UNITS_PER_INCH),
        dpi=UNITS_PER_INCH,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    return figure


def style_axes(axes: Axes) -> Axes:
    """Leave only faint horizontal grid lines and muted labels."""
    axes.set_frame_on(False)
    axes.grid(axis="y", color=FAINT, linewidth=0.75)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=MUTED, labelsize=FONT_POINTS)
    return axes


def to_svg(
    figure: Figure,
    *,
    name: str,
    title: str,
    description: str,
    tooltips: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Draw the figure as an SVG element that a page can inline.

    It has no style attributes, scripts or external references. `name` must be unique on the
    page: every id begins with it. `tooltips` are texts by the `gid` of an artist.
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), _missing_glyphs_ignored():
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    drawn = ElementTree.fromstring(buffer.getvalue())  # noqa: S314 - matplotlib wrote it
    box = drawn.attrib["viewBox"]
    root = ElementTree.Element("svg", {"viewBox": box, "role": "img", "class": "picture"})
    ElementTree.SubElement(root, "title").text = title
    ElementTree.SubElement(root, "desc").text = description
    for child in drawn:
        if _tag(child) in ("g", "defs"):
            root.append(_cleaned(child, name))
    for element in root.iter("g"):
        if text := tooltips.get(element.attrib.get("id", "").removeprefix(f"{name}-")):
            tooltip = ElementTree.Element("title")
            tooltip.text = text
            element.insert(0, tooltip)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def write_png(figure: Figure, path: Path, title: str = "") -> None:
    """Write the figure on light paper, twice as fine as a page shows it."""
    if title:
        heading = figure.suptitle(title, x=0.02, ha="left", color=INK, fontsize=11)
        heading.set_parse_math(False)
    with _missing_glyphs_ignored():
        figure.savefig(
            path,
            format="png",
            dpi=UNITS_PER_INCH * PNG_SCALE,
            facecolor=PAPER,
            metadata={"Software": None},
        )


def css_variables() -> str:
    """Return CSS that sets a variable for each colour, for light and for dark readers."""
    light, dark = (
        " ".join(f"--{name}: {pair[theme]};" for name, pair in COLOURS.items()) for theme in (0, 1)
    )
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def css_classes() -> str:
    """Return CSS for the classes that `to_svg` writes, and `b-…` for backgrounds."""
    return "\n".join(
        f".f-{name} {{ fill: var(--{name}) }} .s-{name} {{ stroke: var(--{name}) }} "
        f".b-{name} {{ background: var(--{name}) }}"
        for name in COLOURS
    )


@contextmanager
def _missing_glyphs_ignored() -> Iterator[None]:
    """Silence the warning about letters that the font lacks: a reader sees boxes for them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        yield


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _cleaned(element: ElementTree.Element, name: str) -> ElementTree.Element:
    """Copy an element without namespaces, with attributes and classes in place of styles."""
    found = ElementTree.Element(_tag(element))
    found.text, found.tail = element.text, element.tail
    classes: list[str] = []
    for key, value in element.attrib.items():
        key = key.rpartition("}")[2]
        if key == "style":
            for attribute, setting in _declarations(value):
                colour = _CLASS_BY_COLOUR.get(setting)
                if attribute in ("fill", "stroke") and colour is not None:
                    classes.append(f"{attribute[0]}-{colour}")
                else:
                    found.set(attribute, setting)
        elif key == "id":
            found.set("id", f"{name}-{value}")
        elif key == "href":
            found.set("href", f"#{name}-{value.removeprefix('#')}")
        else:
            found.set(key, _REFERENCE.sub(rf"url(#{name}-\1)", value))
    if classes:
        found.set("class", " ".join(classes))
    for child in element:
        if _tag(child) != "style":
            found.append(_cleaned(child, name))
    return found


def _declarations(style: str) -> list[tuple[str, str]]:
    found = []
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font" and (font := _FONT.search(value)):
            found.append(("font-size", font["size"]))
            if font["weight"]:
                found.append(("font-weight", font["weight"]))
        elif key in _ATTRIBUTES:
            found.append((key, value))
    return found
