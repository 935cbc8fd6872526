"""`podium eval`: strategies measured over suites of tasks, with the same workers and budget.

The larger commands have modules of their own: `measure`, `fitting`, `compare`, `report`,
`graders`, `evolved_table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from podium.cli import eval_options as given
from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.eval_fit import fit, folds
from podium.cli.eval_session import EvalSession
from podium.cli.eval_tables import evolved_table, graders
from podium.cli.measure import run
from podium.cli.output import Exit, complain, say, say_json
from podium.cli.settings import Choice

if TYPE_CHECKING:
    from podium.evals.tables.comparison import Comparison

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


First = Annotated[Path, typer.Argument(metavar="DIR", help="What --output of one run wrote.")]
Second = Annotated[Path, typer.Argument(metavar="DIR", help="The same of another run.")]
Strategy = Annotated[str, typer.Option(metavar="NAME", help="The strategy to compare.")]
Within = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", min=0, max=1, help="Fail where their accuracies differ by more than that."
    ),
]


PageDirectory = Annotated[
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
    output: PageDirectory = None,
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


app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)


@app.callback()
def evaluate() -> None:
    """Measure strategies over suites of tasks."""


for command in (run, fit, folds, report, compare):
    app.command()(command)


@app.command(name="etudes-table")
def etudes_table(
    file: given.TableFile = Path("results/etudes.json"),
    limit: given.Limit = None,
    seed: given.Seed = None,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    untrained: given.Untrained = None,
    oracle: given.Oracle = False,
    training: given.Trainings = None,
    concurrency: given.Concurrency = None,
    cache: given.TableCache = None,
    output: given.TableSamples = None,
    offline: options.Offline = False,
) -> None:
    """Measure all that a conductor of the études must show, and write it to a file.

    The ceiling, the conductor, every baseline, other pools, longer chains and the flaky pool,
    over the same unseen études; each bar with what was reached, met or not.
    """
    from podium._util.lab import ETUDES
    from podium.evals.tables.etudes import MAIN, measure_etudes
    from podium.evals.tables.text_table import bars_table, notes, rows_table
    from podium.evals.tables.training import read_trainings
    from podium.tasks.suites import USUAL_ETUDES

    figures = read_trainings(training or ())
    count, chance = limit or USUAL_ETUDES, seed or 0
    sitting = EvalSession(
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
            keep=held.keep,
        )
    )
    sitting.write_table(file, table.document(), seed=chance)
    rows = list(table.all_rows())
    say("\n".join([rows_table(rows), *notes(rows), "", bars_table(table.bars()), "", str(file)]))


app.command()(evolved_table)
app.command()(graders)


@app.command()
def overhead(
    questions: given.Questions = 2000, workers: given.WorkerCount = 5, json: options.Json = False
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
