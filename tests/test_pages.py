"""The pages of this repository: their links lead somewhere, their commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium.cli.app import COMMANDS

ROOT = Path(__file__).parent.parent
PLACES = (
    "*.md",
    "docs/**/*.md",
    "benchmarks/**/*.md",
    "pools/*.md",
    "results/*.md",
    "examples/**/*.md",
)
PAGES = sorted(page for where in PLACES for page in ROOT.glob(where))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text("utf-8"))
    gone = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert gone == []


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8"))
    inside = [((page.parent / file) if file else page, anchor) for file, anchor in links]
    assert [f"{file.name}#{anchor}" for file, anchor in inside if anchor not in anchors(file)] == []


def test_every_command_in_the_readme_exists() -> None:
    called = re.findall(r"^\$? ?\./podium (\w+)", (ROOT / "README.md").read_text("utf-8"), re.M)
    assert len(called) >= 5
    assert set(called) <= set(COMMANDS)


def test_the_readme_leads_to_the_pages_and_the_index_to_every_other() -> None:
    readme, index = (
        (ROOT / name).read_text("utf-8") for name in ("README.md", "docs/reference.md")
    )
    docs = ROOT / "docs"
    assert [page.name for page in docs.glob("*.md") if f"docs/{page.name}" not in readme] == []
    deeper = docs.glob("reference/*.md")
    assert [page.name for page in deeper if f"(reference/{page.name})" not in index] == []


def test_no_page_shows_what_only_programs_know() -> None:
    shown = [page.name for page in PAGES if "Undefined" in page.read_text("utf-8")]
    assert shown == []


def test_the_list_of_results_has_those_that_are_here_and_says_which_are_not_yet() -> None:
    text = (ROOT / "results/README.md").read_text("utf-8")
    measured, _, waiting = (
        set(re.findall(r"^\| `(\S+\.json)` \|", part, re.M))
        for part in text.partition("Not measured yet")
    )
    here = {path.name for path in (ROOT / "results").glob("*.json")}
    assert measured == here
    assert not waiting & here


def test_the_documentation_stays_short() -> None:
    pages = (ROOT / "docs").rglob("*.md")
    assert sum(len(page.read_text("utf-8").split()) for page in pages) <= 35_000
