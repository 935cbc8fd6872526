"""What docs/reference/routing.md says, and in which order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE, NOTEBOOK = (
    (ROOT / "docs" / "reference" / name).read_text("utf-8") for name in ("routing.md", "etudes.md")
)
INSTALLING = "python -m pip install -e '.[router]'"


def section(heading: str, page: str = PAGE) -> str:
    """What stands under that heading, up to the next of its rank or a higher one."""
    rank = heading.partition(" ")[0]
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(rank)}}} |\Z)", page, re.M | re.S
    )
    assert found is not None, heading
    return found[1]


def test_how_a_router_is_used_comes_before_how_it_works() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.M)
    assert headings == ["Serving", "Training", "How it works"]


@pytest.mark.parametrize("heading", ["## Serving", "## Training"])
def test_what_to_install_is_the_first_command_of_the_section(heading: str) -> None:
    assert INSTALLING in section(heading).split("```")[1].splitlines()[1]


@pytest.mark.parametrize(
    ("script", "of_its_table"),
    [("embedded_choices.py", "to its specialist"), ("embedded_answers.py", "steps a question")],
)
def test_the_tables_that_scripts_make_are_where_they_say(script: str, of_its_table: str) -> None:
    part = section("### The router of the études' pool", NOTEBOOK)
    assert f"python scripts/{script}" in part
    assert of_its_table in part


def test_the_script_of_right_answers_names_the_heading_of_its_table() -> None:
    said = (ROOT / "scripts" / "embedded_answers.py").read_text("utf-8").split('"""')[1]
    heading = re.search(r'under "(.+?)"', said)
    assert heading is not None
    assert "| right |" in section(f"### {heading[1]}", NOTEBOOK)
