"""Every promise names tests that break things to check it; here is checked that there are such."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("docs/reference/promises.md", "SECURITY.md")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@cache
def named_in(path: str) -> frozenset[str]:
    """The names of the tests in that file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = NAMED.findall((ROOT / page).read_text("utf-8"))
    assert len(named) > 10
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or (name and name not in named_in(path))
    ]
    assert missing == []


def test_every_promise_names_a_test() -> None:
    rows = [
        line
        for line in (ROOT / "docs/reference/promises.md").read_text("utf-8").splitlines()
        if line.startswith("| ") and not line.startswith(("| promise", "|---"))
    ]
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row)] == []
