from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import Field

from podium._util.tables import Table
from podium.config import load
from podium.config.schema import ConfigFile
from podium.train.recipe import Recipe
from podium.train.router import RouterRecipe
from scripts.reference import DOCS, PAGES, reference, update_page

PAGE = DOCS / "configuration.md"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_command_makes(name: str) -> None:
    page = (DOCS / name).read_text("utf-8")
    assert page == update_page(page), "run: python scripts/reference.py"


def test_the_example_on_the_page_can_be_loaded(tmp_path: Path) -> None:
    example = PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    path = tmp_path / "podium.toml"
    path.write_text(example, "utf-8")
    settings = load(path)
    assert settings.pool.names == ("gpt-6.1-terra", "claude", "in-house", "deeper")
    assert settings.conductor.worker is settings["gpt-6.1-terra"]


@pytest.mark.parametrize(("form", "least"), [(ConfigFile, 40), (Recipe, 90), (RouterRecipe, 5)])
def test_every_key_has_a_type_and_a_meaning(form: type[Table], least: int) -> None:
    rows = re.findall(r"^- `([\w.]+)` \((.*?)\): (.*)$", reference(form), re.M)
    assert len(rows) > least
    for key, value, meaning in rows:
        assert value, key
        assert meaning not in ("None", ""), key


def test_every_table_is_in_it() -> None:
    text = reference()
    for name in ConfigFile.model_fields:
        assert f"[{name}]" in text or f"[{name}.NAME]" in text
    assert "- `price.long_input.above_tokens` (whole number, required): " in text


class Kitchen(Table):
    """Where meals are made."""

    pots: dict[str, int] = Field(default_factory=dict, description="how many of each")
    hands: int = Field(default_factory=lambda: 2, description="how many there are")


class Runtime(Table):
    kitchen: Kitchen = Kitchen()


def test_a_default_that_is_made_is_shown_as_it_is_made() -> None:
    text = reference(Runtime)
    assert "- `pots` (table): how many of each" in text
    assert "- `hands` (`2`): how many there are" in text


def test_keys_that_are_described_alike_are_described_once() -> None:
    text = reference(Recipe)
    assert "- as in `[sft]`: `steps`, `learning_rate`, " in text
    assert text.count("the highest learning rate") == 1


def test_choices_are_shown_with_the_default_first() -> None:
    text = reference()
    assert "- `prompt` (`full`, else `compact`, `trained`): " in text
    assert "- `few_shot` (`true`): " in text


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the marks"):
        update_page("# A page")
