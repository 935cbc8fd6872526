"""`podium eval report`: evaluations as a page that people can show each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podium.cli.output import say

Directories = Annotated[
    list[Path], typer.Argument(metavar="DIR…", help="What podium eval run --output wrote.")
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Where the page and pictures go.")
]


def report(directories: Directories, output: Output = Path("report")) -> None:
    """Write evaluations as one page, with the table, charts and failures to read.

    The page is a single file that loads nothing and runs nothing; beside it are its pictures as
    PNG, for which matplotlib is needed (the extra eval). An evaluation that was cut off is shown
    as far as it came.
    """
    from podium.evals.page import write_report

    say("\n".join(str(path) for path in write_report(directories, output)))
