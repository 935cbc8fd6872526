"""`podium eval`: strategies measured over suites of tasks, with the same workers and budget.

The larger commands have modules of their own: `measure`, `fitting`, `compare`, `report`,
`graders`, `evolved_table`.
"""

from __future__ import annotations

from pathlib import Path

import typer

from podium.cli import eval_options as given
from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.compare import compare
from podium.cli.evolved_table import evolved_table
from podium.cli.fitting import fit, folds
from podium.cli.graders import graders
from podium.cli.measure import run
from podium.cli.outcome import Exit
from podium.cli.output import say, say_json
from podium.cli.report import report
from podium.cli.settings import Choice
from podium.cli.sitting import Sitting

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
    from podium.evals.tables.etudes import MAIN, measure_etudes
    from podium.evals.tables.text_table import bars_table, notes, rows_table
    from podium.evals.tables.training import read_trainings
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
