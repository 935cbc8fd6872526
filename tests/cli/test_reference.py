from __future__ import annotations

from cli.support import REPOSITORY
from scripts.cli_reference import page


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    written = (REPOSITORY / "docs" / "reference" / "cli.md").read_text("utf-8")
    assert written == page(), "run: python scripts/cli_reference.py > docs/reference/cli.md"
