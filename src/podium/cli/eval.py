"""`podium eval`: strategies measured over suites of tasks, with the same workers and budget.

How a measurement is held is `podium.cli.sitting`, how two are compared `podium.cli.compare`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import typer

from podium._version import __version__
from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.compare import compare
from podium.cli.graders import graders
from podium.cli.outcome import Exit
from podium.cli.output import complain, say, say_json
from podium.cli.settings import Choice
from podium.cli.sitting import Sitting
from podium.errors import UsageError

if TYPE_CHECKING:  # what measures is slow to import, and help must be quick
    from podium.evals.case import Variant
    from podium.evals.report import Report
    from podium.evals.suite_file import SuiteFile, VariantTable

app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

USUAL_TASKS: Final = 100
"""How many tasks of a suite with a name; of one's own file, all."""

Value = TypeVar("Value")

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
        help="etudes, everyday, a benchmark's name, a .jsonl or .csv file of tasks, or a .toml "
        "file that says all of this.",
    ),
]
Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="A,B,…",
        help="conductor, recursion, ideal, best-single, single:WORKER, majority, moa, "
        "reflection, reflection:WORKER, random, untrained; several with commas. When left out, "
        "conductor.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="How many tasks; when left out, 100, or all of your own file, or 1000 of the table.",
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
    Path, typer.Option("--file", "-o", metavar="FILE", help="Where the figures go.")
]
Trainings = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="A training of the conductor, whose time and speed are told; once for each that "
        "went on from another.",
    ),
]


@app.callback()
def evaluate() -> None:
    """Measure strategies over suites of tasks."""


@app.command()
def run(
    suite: SuiteName,
    strategy: Strategies = None,
    limit: Limit = None,
    data: Data = None,
    seed: Seed = None,
    repeats: Repeats = None,
    json: options.Json = False,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    untrained: Untrained = None,
    judge: Judge = None,
    oracle: Oracle = False,
    shapes: Shapes = None,
    pool_order: PoolOrder = None,
    drop_one: DropOne = False,
    flaky: Flaky = None,
    concurrency: Concurrency = None,
    budget_usd: BudgetUsd = None,
    cache: Cache = None,
    fresh: Fresh = False,
    output: Samples = None,
    retry_faults: RetryFaults = False,
    ray: Ray = None,
    offline: options.Offline = False,
) -> None:
    """Measure strategies over a suite of tasks, all with the same workers and budget.

    The same command again asks no worker what it has answered before, and goes on where it was
    cut off. The études are unseen ones, over pools described in words that no training has seen.
    Name their workers by --pool, or take perfect ones by --oracle; else they are the embedded
    pool's, where it has specialists. Runs are not kept in the store.
    """
    from podium.evals.report import Wanted, reported
    from podium.evals.suite_file import VariantTable, file_for

    file = file_for(suite)
    chosen = VariantTable(
        shapes=tuple(shapes.split(",")) if shapes else file.etudes.shapes,
        pool_order=_first(pool_order, file.etudes.pool_order, "drawn"),
        drop_one=drop_one or bool(file.etudes.drop_one),
        flaky=_first(flaky, file.etudes.flaky, 0.0),
    )
    named = tuple(filter(None, strategy.split(","))) if strategy is not None else file.strategies
    wanted = Wanted(
        suite=file.suite,
        data=data or _path(file.data),
        strategies=tuple(dict.fromkeys(("conductor",) if named is None else named)),
        limit=_first(limit, file.limit, _usual_tasks(file)),
        seed=_first(seed, file.seed, 0),
        variant=_variant(chosen),
        repeats=_first(repeats, file.repeats, 1),
        cap_usd=_first(budget_usd, file.budget_usd, None),
        retry_faults=retry_faults,
        judge=judge or file.judge,
    )
    if ray is not None and wanted.judge is not None:
        raise UsageError("a judge is asked from this machine alone: leave out --judge or --ray")
    sitting = Sitting(
        choice=Choice(
            pool=pool or _path(file.pool),
            config=config,
            conductor=conductor or file.conductor,
            offline=offline,
        ),
        suite=wanted.suite,
        strategies=wanted.strategies,
        untrained=untrained or file.untrained,
        oracle=oracle or bool(file.oracle),
        concurrency=concurrency or file.concurrency,
        cache=cache or _path(file.cache),
        output=output or _path(file.output),
        keeps_replies=not fresh,
        ray=ray,
        seed=wanted.seed,
        flaky=wanted.variant.flaky,
    )
    report = sitting.hold(
        lambda held: reported(
            held.ensemble,
            replace(wanted, concurrency=held.at_once),
            watch=held.watch,
            files=held.files,
            perform=held.perform,
        )
    )
    _tell(report, sitting, as_json=json)


@app.command(name="etudes-table")
def etudes_table(
    file: TableFile = Path("results/etudes.json"),
    limit: Limit = None,
    seed: Seed = None,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    untrained: Untrained = None,
    oracle: Oracle = False,
    training: Trainings = None,
    concurrency: Concurrency = None,
    cache: Cache = None,
    output: Samples = None,
    offline: options.Offline = False,
) -> None:
    """Measure all that a conductor of the études must show, and write it to a file.

    The ceiling, the conductor, every baseline, other pools, longer chains and the flaky pool,
    over the same unseen études; each bar with what was reached, met or not.
    """
    from podium.evals.etudes_table import MAIN, measure_etudes
    from podium.evals.text_table import bars_table, notes, rows_table
    from podium.evals.training import read_trainings
    from podium.evals.written import write_json
    from podium.run import timestamp
    from podium.tasks.suites import ETUDES, USUAL_ETUDES

    figures = read_trainings(training or ())
    count, chance = limit or USUAL_ETUDES, seed or 0
    sitting = Sitting(
        choice=Choice(pool=pool, config=config, conductor=conductor, offline=offline),
        suite=ETUDES,
        strategies=MAIN,
        untrained=untrained,
        oracle=oracle,
        concurrency=concurrency,
        cache=cache,
        output=output,
    )
    table = sitting.hold(
        lambda held: measure_etudes(
            held.ensemble,
            n=count,
            seed=chance,
            concurrency=held.at_once,
            training=figures,
            watch=held.watch,
            keep=held.files.keep if held.files is not None else None,
        )
    )
    document = {
        **table.document(),
        "seed": chance,
        "pool": pool.name if pool is not None else "embedded",
        "date": timestamp()[:10],
        "podium": __version__,
    }
    sitting.summarise(document)
    write_json(file, document)
    rows = list(table.all_rows())
    say("\n".join([rows_table(rows), *notes(rows), "", bars_table(table.bars()), "", str(file)]))


app.command()(compare)


@app.command()
def overhead(
    questions: Questions = 2000, workers: WorkerCount = 5, json: options.Json = False
) -> None:
    """Measure what an evaluation itself costs: the CPU time that it adds to each call.

    Every one of some scripted workers is asked every question, with kept replies and samples on
    disk. The command fails where it adds more than it may.
    """
    import asyncio

    from podium.evals.overhead import MOST_ADDED_MS, measure_overhead

    figures = asyncio.run(measure_overhead(questions, workers))
    if json:
        say_json(figures.document())
    else:
        say(
            f"{figures.calls:,} calls: {figures.added_ms:.3f} ms of CPU time added to each; "
            f"less than {MOST_ADDED_MS:g} {'met' if figures.is_met else 'MISSED'}"
        )
    if not figures.is_met:
        raise typer.Exit(Exit.FAILED)


app.command()(graders)


def _first(given: Value | None, in_file: Value | None, usual: Value) -> Value:
    """What the command line says, else the suite file, else what is usual."""
    if given is not None:
        return given
    return usual if in_file is None else in_file


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _usual_tasks(file: SuiteFile) -> int | None:
    from podium.tasks.own import ENDINGS

    return None if Path(file.suite).suffix in ENDINGS else USUAL_TASKS


def _variant(chosen: VariantTable) -> Variant:
    from podium.evals.case import Variant
    from podium.evals.report import shapes_of

    variant = Variant(
        shuffled=chosen.pool_order == "shuffled",
        drop_one=bool(chosen.drop_one),
        flaky=chosen.flaky or 0.0,
    )
    return replace(variant, shapes=shapes_of(chosen.shapes)) if chosen.shapes else variant


def _tell(report: Report, sitting: Sitting, *, as_json: bool) -> None:
    """Print the table, write it beside the samples, and say what failed."""
    from podium.evals.text_table import notes, rows_table

    sitting.summarise(report.document())
    for line in report.left_out:
        complain(f"left out: {line}")
    for problem in report.problems:
        complain(
            f"{problem.strategy}: {problem.at_fault} failed in {problem.count} samples, first "
            f"with: {problem.first}"
        )
    if as_json:
        say_json(report.document())
    elif report.rows:
        rows = [(row.strategy, row) for row in report.rows]
        say("\n".join([rows_table(rows), *notes(rows)]))
    if report.stop is not None:
        complain(str(report.stop))
        raise typer.Exit(Exit.EXHAUSTED)
