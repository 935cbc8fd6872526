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


def test_router_page_shows_usage_before_internals() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.M)
    assert headings == ["Serving", "Training", "How it works"]


@pytest.mark.parametrize("heading", ["## Serving", "## Training"])
def test_first_command_of_a_section_installs(heading: str) -> None:
    assert INSTALLING in section(heading).split("```")[1].splitlines()[1]
