"""`podium eval compare`: two evaluations of the same tasks against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from podium.cli import options
from podium.cli.outcome import Exit
from podium.cli.output import complain, say, say_json

if TYPE_CHECKING:  # what measures is slow to import, and help must be quick
    from podium.evals.tables.comparison import Comparison

First = Annotated[Path, typer.Argument(metavar="DIR", help="What --output of one run wrote.")]
Second = Annotated[Path, typer.Argument(metavar="DIR", help="The same of another run.")]
Strategy = Annotated[str, typer.Option(metavar="NAME", help="The strategy to compare.")]
Within = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", min=0, max=1, help="Fail where their accuracies differ by more than that."
    ),
]


Output = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Also write a page there, with the runs that flipped."),
]

MOST_NAMED: Final = 10
"""So many of the tasks that flipped are named on a terminal."""


def compare(
    first: First,
    second: Second,
    strategy: Strategy = "conductor",
    within: Within = None,
    output: Output = None,
    json: options.Json = False,
) -> None:
    """Compare two evaluations of the same tasks, task by task.

    Both are directories that `podium eval run --output DIR` wrote, with the same suite, limit
    and seed: over two pools, say, or with two trainings.
    """
    from podium.evals.tables.comparison import compared

    comparison = compared(first, second, strategy)
    if json:
        say_json(comparison.document())
    else:
        say(_told(comparison, (str(first), str(second))))
    if output is not None:
        from podium.evals.page import write_comparison

        page = write_comparison(first, second, strategy, output)
        if not json:
            say(str(page))
    if within is not None and not comparison.is_within(within):
        apart = abs(comparison.difference.share.value)
        complain(f"their accuracies are {apart:.3f} apart, more than the {within:g} of --within")
        raise typer.Exit(Exit.FAILED)


def _told(comparison: Comparison, names: tuple[str, str]) -> str:
    from podium.evals.tables.text_table import shares_table

    difference = comparison.difference
    rows = [
        *zip(names, comparison.accuracies, strict=True),
        ("difference", difference.share),
        ("same answers", comparison.same_answers),
    ]
    gained = [flip.first.task for flip in comparison.flips if flip.is_gain]
    lost = [flip.first.task for flip in comparison.flips if not flip.is_gain]
    return "\n".join(
        [
            shares_table(rows),
            f"{len(comparison.first)} tasks; the second alone is right in {difference.gained}, the "
            f"first alone in {difference.lost}; p {_p_value(difference.p_value)}",
            *([f"gained by the second: {_named(gained)}"] if gained else []),
            *([f"lost by the second: {_named(lost)}"] if lost else []),
        ]
    )


def _p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _named(tasks: Sequence[str]) -> str:
    more = len(tasks) - MOST_NAMED
    return ", ".join(tasks[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
