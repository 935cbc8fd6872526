"""`podium eval compare`: two evaluations of the same tasks against each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podium.cli import options
from podium.cli.outcome import Exit
from podium.cli.output import say, say_json

if TYPE_CHECKING:  # what measures is slow to import, and help must be quick
    from podium.evals.comparison import Comparison

First = Annotated[Path, typer.Argument(metavar="DIR", help="What --output of one run wrote.")]
Second = Annotated[Path, typer.Argument(metavar="DIR", help="The same of another run.")]
Strategy = Annotated[str, typer.Option(metavar="NAME", help="The strategy to compare.")]
Within = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", min=0, max=1, help="Fail where their accuracies differ by more than that."
    ),
]


def compare(
    first: First,
    second: Second,
    strategy: Strategy = "conductor",
    within: Within = None,
    json: options.Json = False,
) -> None:
    """Compare two evaluations of the same tasks, task by task.

    Both are directories that `podium eval run --output DIR` wrote, with the same suite, limit
    and seed: over two pools, say, or with two trainings.
    """
    from podium.evals.comparison import compared

    comparison = compared(first, second, strategy)
    if json:
        say_json(comparison.document())
    else:
        say(_told(comparison, (str(first), str(second))))
    if within is not None and not comparison.is_within(within):
        raise typer.Exit(Exit.FAILED)


def _told(comparison: Comparison, names: tuple[str, str]) -> str:
    from podium.evals.text_table import shares_table

    difference = comparison.difference
    rows = [
        *zip(names, comparison.accuracies, strict=True),
        ("difference", difference.share),
        ("same answers", comparison.same_answers),
    ]
    return (
        f"{shares_table(rows)}\n{len(comparison.first)} tasks; the second alone is right in "
        f"{difference.gained}, the first alone in {difference.lost}; p = {difference.p_value:.3f}"
    )
