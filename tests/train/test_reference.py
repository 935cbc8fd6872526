from __future__ import annotations

from pathlib import Path

from podium.config.reference import reference
from podium.train.recipe import Recipe
from podium.train.reference import updated

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_page_is_what_the_command_makes() -> None:
    page = PAGE.read_text("utf-8")
    assert page == updated(page), "run: python -m podium.train.reference docs/training.md"


def test_every_key_has_a_type_and_a_meaning() -> None:
    rows = [line.split(" | ") for line in reference(Recipe).splitlines() if line.startswith("| `")]
    assert len(rows) > 90
    for key, type_, _, meaning in rows:
        assert type_, key
        assert meaning not in ("None |", " |"), key
