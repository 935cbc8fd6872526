"""The examples of docs/reference/python-api.md, run from top to bottom as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import podium

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python-api.md"


def test_the_examples_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.M)
    assert len(examples) == 7
    exec("\n".join(examples), {})
    assert "2 calm done" in capsys.readouterr().out


def test_every_public_name_exists_and_none_is_hidden() -> None:
    exported = set(podium.__all__) - {"__version__"}
    assert all(getattr(podium, name) is not None for name in exported)
    public = {name for name in vars(podium) if not name.startswith("_")}
    modules = {name for name in public if type(vars(podium)[name]).__name__ == "module"}
    assert public - modules - {"Any", "TYPE_CHECKING"} == exported
