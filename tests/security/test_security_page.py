"""SECURITY.md is true: every test that it names is there, and every limit is what it says."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))
LIMITS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in PAGE.split("## Limits")[1].split("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| what")
]


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[f"{f}::{n}" for f, n in NAMED])
def test_a_test_that_is_named_is_there(file: str, name: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    assert f"def {name}(" in text if name else "def test_" in text


@pytest.mark.parametrize(("what", "most", "where", "test"), LIMITS, ids=[row[0] for row in LIMITS])
def test_a_limit_is_what_the_page_says(what: str, most: str, where: str, test: str) -> None:
    if where:
        module, _, path = where.strip("`").partition(":")
        value = import_module(module)
        for name in path.split("."):
            defaults = getattr(value, "model_fields", getattr(value, "__dataclass_fields__", {}))
            value = defaults[name].default if name in defaults else getattr(value, name)
        assert most.split()[0].rstrip(",") == f"{value:g}" or most.split()[0] == str(value), what
    if not test.startswith("`tests/"):
        assert test.strip("`") in (ROOT / "tests/security/test_limits.py").read_text("utf-8")


def test_every_threat_has_a_test() -> None:
    threats = PAGE.split("## What is defended")[1].split("\n## ")[0].splitlines()
    rows = [line for line in threats if line.startswith("| ") and "| the test |" not in line]
    assert len(rows) > 20
    assert [row for row in rows if "`tests/" not in row] == []
