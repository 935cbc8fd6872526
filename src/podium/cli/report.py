"""`podium eval report`: evaluations as a page that people can show each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from podium.cli.output import say

REPORT: Final = "report"

Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR…", help="What podium eval run --output wrote.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help=f"Where the page and pictures go; when left out, {REPORT} in the evaluation, or here "
        f"for several of them.",
    ),
]


def report(directories: Directories, output: Output = None) -> None:
    """Write evaluations as one page, with the table, charts and failures to read.

    The page is a single file that loads nothing and runs nothing; beside it are its pictures as
    PNG, for which matplotlib is needed (the extra eval). An evaluation that was cut off is shown
    as far as it came.
    """
    from podium.evals.page import write_report

    beside = directories[0] if len(directories) == 1 else Path()
    say("\n".join(str(path) for path in write_report(directories, output or beside / REPORT)))
