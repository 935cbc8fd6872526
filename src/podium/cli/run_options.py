"""The options of `podium runs list`, each written once."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from podium.run import RunStatus, Tier

Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help="The most runs to list.")
]
Status = Annotated[
    RunStatus | None,
    typer.Option(
        metavar="STATUS",
        help="Only runs that are running, answered, partial, failed, exhausted, interrupted or "
        "waiting.",
    ),
]
Text = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only runs whose question or answer contains this."),
]
InTier = Annotated[
    Tier | None,
    typer.Option(metavar="TIER", help="Only runs of this tier: mini, podium or ultra."),
]
UsedWorker = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only runs of which a step used this worker.")
]
CostFrom = Annotated[
    float | None, typer.Option(metavar="USD", min=0, help="Only runs that cost this or more.")
]
CostTo = Annotated[
    float | None, typer.Option(metavar="USD", min=0, help="Only runs that cost this or less.")
]
Since = Annotated[
    datetime | None,
    typer.Option(metavar="DATE", help="Only runs begun then or later, by the local clock."),
]
Until = Annotated[
    datetime | None,
    typer.Option(metavar="DATE", help="Only runs begun then or earlier, by the local clock."),
]
