from __future__ import annotations

import builtins
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.evals.page.pictures import DOTS_PER_INCH, EDGE, HEAD, UNITS_PER_INCH, write_pictures
from podium.evals.page.scene import Box, Dot, Scene, Stroke, Words

SCENE = Scene(
    "small",
    "A title with $ and _^ that is no formula",
    "",
    300,
    120,
    [
        Box(10, 10, 50, 20, "conducted", 0.5),
        Stroke([(0, 0), (300, 120)], "faint", dashed=True),
        Dot(100, 50, 5, "right"),
        Words(20, 80, "日本語 $x^2$ <b>\ud800\x00", halo=True),
    ],
)


def test_a_picture_is_a_png_twice_as_fine_as_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (path,) = write_pictures([SCENE], tmp_path / "new", "1-")
    assert path == tmp_path / "new" / "1-small.png"
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    finer = DOTS_PER_INCH / UNITS_PER_INCH
    assert width == round((300 + 2 * EDGE) * finer)
    assert height == round((120 + 2 * EDGE + HEAD) * finer)


def test_the_same_picture_has_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (one,), (other,) = (write_pictures([SCENE], tmp_path / name) for name in ("a", "b"))
    assert one.read_bytes() == other.read_bytes()


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def refuse(name: str, *more: Any) -> ModuleType:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"\[eval\]"):
        write_pictures([SCENE], tmp_path)
