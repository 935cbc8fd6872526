"""Options that several commands of `podium eval` and `podium lab` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from podium.cli.options import Omit

TableCache = Annotated[
    Path | None, typer.Option("--cache", metavar="FILE", help="Cache replies in this file.")
]
TableSamples = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="DIR", help="Write every sample with its whole run there; a new DIR."
    ),
]
TableFile = Annotated[
    Path, typer.Option("--file", "-o", metavar="FILE", dir_okay=False, help="The file to write.")
]
ResultsFile = Annotated[
    Path | None,
    typer.Option(
        "--file", "-o", metavar="FILE", dir_okay=False, help="Write the results there, as JSON."
    ),
]
BaselineConductor = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="The model that plans for the strategy baseline-conductor: provider/model; default "
        "the conductor's model without its adapter.",
    ),
]
RetryErrors = Annotated[
    bool, typer.Option("--retry-errors", help="Repeat the samples of DIR that had an error.")
]
TrainingMetrics = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="A training run of the conductor, or its metrics file, to report time and speed; "
        "repeat it for runs that continued another.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """The options of the commands that call workers."""

    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many tasks; default all of a file, 1000 for the tables, else 100.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The directory or file of a benchmark, if not on the hub."
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(metavar="N", help="The random seed; default 0.")] = (
        None
    )
    repeats: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Samples per task, each drawn anew.")
    ] = None
    oracle: Annotated[
        bool,
        typer.Option("--oracle", help="Replace the workers by perfect ones: only plans can fail."),
    ] = False
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="How many tasks at once; default depends on the pool."
        ),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Cache replies in this file; default in DIR or the user's cache."
        ),
    ] = None
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore cached replies, and do not keep new ones.")
    ] = False


TableOptions = Annotated[EvalOptions, Omit(("data", "repeats", "cache", "fresh"))]
