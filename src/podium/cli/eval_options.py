"""The options that several commands of `podium eval` share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from podium.cli import options

Seed = Annotated[
    int | None,
    typer.Option(metavar="N", help="What the tasks and all chance come from; 0, when left out."),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="How many tasks at once; what suits the pool, when left out."
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keep replies there. When left out, they are kept in DIR, or in your cache.",
    ),
]
Samples = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="DIR",
        help="Write every sample with its whole run there: a new DIR, or one to go on with.",
    ),
]
TableCache = Annotated[
    Path | None,
    typer.Option(
        "--cache", metavar="FILE", help="Keep replies there, and ask no worker the same again."
    ),
]
TableSamples = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="DIR", help="Write every sample with its whole run there; a new DIR."
    ),
]
Untrained = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Who plans for the strategy untrained: provider/model. When left out, the "
        "conductor's own model without its adapter.",
    ),
]


Judge = Annotated[
    str | None,
    typer.Option(
        metavar="WORKER", help="Who grades where a task has a model decide: a worker of the pool."
    ),
]
SuiteName = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="etudes, everyday, a benchmark's name, a recorded suite, a .jsonl or .csv file of "
        "tasks, or a .toml file that says all of this.",
    ),
]
Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="A,B,…",
        help="conductor, recursion, rules, best-single, single:WORKER, majority, majority-N, "
        "best-of-N, moa, moa-3, reflection, ideal, random, untrained; what podium eval fit wrote, "
        "as routerdc:FILE, or router:FILE@BIAS; what podium train evolve wrote, as evolved:DIR; a "
        "function of yours, as module:function. Several with commas; when "
        "left out, conductor.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="How many tasks; when left out, all of your own file and of recorded suites, 1000 of "
        "the table, and 100 else.",
    ),
]
Repeats = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="How often each task is put, each time drawn anew."),
]
BudgetUsd = Annotated[
    float | None,
    typer.Option(
        metavar="USD",
        min=0,
        callback=options.finite,
        help="The most that the whole may cost; it stops there, and a higher one goes on.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Ask everybody anew, and keep no reply longer than this lasts."),
]
RetryFaults = Annotated[
    bool,
    typer.Option("--retry-faults", help="Measure those samples of DIR again that had a fault."),
]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Spread it over the Ray cluster at that address; auto for the one of this machine.",
    ),
]
Questions = Annotated[int, typer.Option(metavar="N", min=1, help="How many questions.")]
WorkerCount = Annotated[
    int, typer.Option("--workers", metavar="N", min=1, help="How many workers are asked each.")
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Where a benchmark's files are, if not on the hub."),
]
Oracle = Annotated[
    bool,
    typer.Option("--oracle", help="Perfect workers in the pool's place: only plans can fail."),
]
Shapes = Annotated[
    str | None,
    typer.Option(metavar="A,B,…", help="Only études of these shapes, such as one,chain-5."),
]
PoolOrder = Annotated[
    Literal["drawn", "shuffled"] | None,
    typer.Option(
        metavar="drawn|shuffled", help="Each pool as it is drawn, or in yet another order."
    ),
]
DropOne = Annotated[
    bool, typer.Option("--drop-one", help="Leave out a worker that the étude does not need.")
]
Flaky = Annotated[
    float | None,
    typer.Option(metavar="SHARE", min=0, max=1, help="How many requests the specialists decline."),
]
TableFile = Annotated[
    Path, typer.Option("--file", "-o", metavar="FILE", dir_okay=False, help="Where the figures go.")
]
Evolved = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR...",
        help="Trainings by podium train evolve, finished or not; the one that the others depart "
        "from first.",
    ),
]
Trainings = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="A training of the conductor, or its file of metrics, whose time and speed are told; "
        "once for each that went on from another.",
    ),
]
