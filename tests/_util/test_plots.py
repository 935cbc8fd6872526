from __future__ import annotations

import builtins
import struct
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from podium._util.plots import (
    COLOURS,
    PNG_SCALE,
    css_classes,
    css_variables,
    new_figure,
    style_axes,
    to_svg,
    write_png,
)
from podium.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOSTILE = "日本語 $x^2$ <b>&\"'"


def figure() -> Figure:
    pytest.importorskip("matplotlib")
    made = new_figure(300, 120)
    axes = style_axes(made.add_subplot())
    axes.plot([1, 2], [3, 4], "o-", color=COLOURS["c0"][0], gid="line")
    axes.annotate(HOSTILE, (1, 3), parse_math=False, color=COLOURS["ink"][0])
    return made


def svg(**more: Any) -> str:
    return to_svg(figure(), name="demo", title=HOSTILE, description="a line", **more)


def test_a_png_is_twice_as_fine_as_the_page(tmp_path: Path) -> None:
    write_png(figure(), tmp_path / "small.png", "A title with $ and _^ that is no formula")
    data = (tmp_path / "small.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (300 * PNG_SCALE, 120 * PNG_SCALE)


def test_the_same_figure_has_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_png(figure(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert svg() == svg()


def test_svg_has_no_styles_scripts_or_outside_references() -> None:
    root = ElementTree.fromstring(svg())
    for element in root.iter():
        assert element.tag not in ("style", "script", "image", "metadata")
        for name, value in element.attrib.items():
            assert name != "style"
            assert not name.startswith("on")
            assert "://" not in value
            if name == "href":
                assert value.startswith("#demo-")
            if name == "id":
                assert value.startswith("demo-")


def test_svg_says_in_words_what_it_shows() -> None:
    root = ElementTree.fromstring(svg())
    assert root.attrib["role"] == "img"
    assert root.findtext("title") == HOSTILE
    assert root.findtext("desc") == "a line"
    assert HOSTILE in {text.text for text in root.iter("text")}


def test_colours_become_classes_for_light_and_dark() -> None:
    root = ElementTree.fromstring(svg())
    classes = {name for e in root.iter() for name in e.attrib.get("class", "").split()}
    assert {"s-c0", "f-ink", "s-faint"} <= classes
    for name, (light, dark) in COLOURS.items():
        assert f"--{name}: {light};" in css_variables()
        assert f"--{name}: {dark};" in css_variables()
        assert f".f-{name} " in css_classes()


def test_tooltips_are_found_by_gid() -> None:
    root = ElementTree.fromstring(svg(tooltips={"line": "from <3> to 4"}))
    (group,) = [e for e in root.iter("g") if e.attrib.get("id") == "demo-line"]
    assert group.findtext("title") == "from <3> to 4"


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *more: Any) -> ModuleType:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"\[eval\]"):
        new_figure(100, 100)
