from __future__ import annotations

from pathlib import Path

import pytest

from podium.config.reference import reference
from podium.train.recipe import Recipe
from podium.train.reference import update_page
from podium.train.router import RouterRecipe
from podium.workers.catalogue import Table

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["training.md", "routing.md"])
def test_the_page_is_what_the_command_makes(name: str) -> None:
    page = (DOCS / name).read_text("utf-8")
    assert page == update_page(page), f"run: python -m podium.train.reference docs/{name}"


@pytest.mark.parametrize(("form", "least"), [(Recipe, 90), (RouterRecipe, 9)])
def test_every_key_has_a_type_and_a_meaning(form: type[Table], least: int) -> None:
    rows = [line.split(" | ") for line in reference(form).splitlines() if line.startswith("| `")]
    assert len(rows) > least
    for key, type_, _, meaning in rows:
        assert type_, key
        assert meaning not in ("None |", " |"), key
