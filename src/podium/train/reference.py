"""What the pages on training have from the code: every key of a recipe.

    python -m podium.train.reference docs/training.md
    python -m podium.train.reference docs/routing.md

writes it into the page, between its two marks. The test suite checks that the pages are current.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from podium.config.reference import reference, replace_parts
from podium.train.recipe import Recipe
from podium.train.router import RouterRecipe
from podium.workers.catalogue import Table

_MADE: Final = "made by python -m podium.train.reference, not by hand"


def update_page(page: str) -> str:
    """The page with what is between its marks brought up to date."""
    forms: tuple[tuple[str, type[Table]], ...] = (("recipe", Recipe), ("router", RouterRecipe))
    parts = {name: reference(form) for name, form in forms if f"<!-- {name}: {_MADE}" in page}
    return replace_parts(page, _MADE, parts)


def main() -> None:
    """Bring the page named on the command line up to date."""
    page = Path(sys.argv[1])
    page.write_text(update_page(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
