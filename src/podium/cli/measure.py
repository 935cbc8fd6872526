"""`podium eval run`: strategies over a suite of tasks, one table.

How a measurement is held is `podium.cli.sitting`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from podium.cli import eval_options as given
from podium.cli import options
from podium.cli.eval_session import EvalSession
from podium.cli.output import Exit, complain, say, say_json
from podium.cli.settings import Choice
from podium.core.errors import UsageError

if TYPE_CHECKING:  # what measures is slow to import, and help must be quick
    from podium.evals.report import EvalSpec, Report
    from podium.evals.sample import Variant
    from podium.evals.suite_file import SuiteFile, VariantTable
    from podium.tasks.reading import LeftOut

USUAL_TASKS: Final = 100
"""How many tasks of a suite with a name; of one's own file and of recorded suites, all."""

USUAL_STRATEGIES: Final = ("conductor",)


def run(
    suite: given.SuiteName,
    strategy: given.Strategies = None,
    limit: given.Limit = None,
    data: given.Data = None,
    seed: given.Seed = None,
    repeats: given.Repeats = None,
    json: options.Json = False,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    untrained: given.Untrained = None,
    judge: given.Judge = None,
    oracle: given.Oracle = False,
    shapes: given.Shapes = None,
    pool_order: given.PoolOrder = None,
    drop_one: given.DropOne = False,
    flaky: given.Flaky = None,
    concurrency: given.Concurrency = None,
    budget_usd: given.BudgetUsd = None,
    cache: given.Cache = None,
    fresh: given.Fresh = False,
    output: given.Samples = None,
    retry_faults: given.RetryFaults = False,
    ray: given.Ray = None,
    offline: options.Offline = False,
) -> None:
    """Measure strategies over a suite of tasks, all with the same workers and budget.

    The same command again asks no worker what it has answered before, and goes on where it was
    cut off. The études are unseen ones, over pools described in words that no training has seen.
    Name their workers by --pool, or take perfect ones by --oracle; else they are the embedded
    pool's. Runs are not kept in the store.
    """
    from podium.evals.suite_file import file_for, overruled

    file = file_for(suite)
    etudes = overruled(
        file.etudes,
        shapes=tuple(shapes.split(",")) if shapes else None,
        pool_order=pool_order,
        drop_one=drop_one,
        flaky=flaky,
    )
    file = overruled(
        file,
        strategies=None if strategy is None else tuple(filter(None, strategy.split(","))),
        data=data,
        limit=limit,
        seed=seed,
        repeats=repeats,
        pool=pool,
        conductor=conductor,
        untrained=untrained,
        judge=judge,
        oracle=oracle,
        concurrency=concurrency,
        budget_usd=budget_usd,
        cache=cache,
        output=output,
        etudes=etudes,
    )
    wanted = _wanted(file, retry_faults=retry_faults)
    choice = Choice(pool=_path(file.pool), config=config, conductor=file.conductor, offline=offline)
    sitting = _sitting(file, wanted, choice, keeps_replies=not fresh, ray=ray)
    _tell(_measured(sitting, wanted), sitting, as_json=json)


def _wanted(file: SuiteFile, *, retry_faults: bool) -> EvalSpec:
    """What is to be measured."""
    from podium.evals.report import EvalSpec

    named = USUAL_STRATEGIES if file.strategies is None else file.strategies
    return EvalSpec(
        suite=file.suite,
        data=_path(file.data),
        strategies=tuple(dict.fromkeys(named)),
        limit=file.limit or usual_tasks(file.suite),
        seed=file.seed or 0,
        variant=_variant(file.etudes),
        repeats=file.repeats,
        cap_usd=file.budget_usd,
        retry_faults=retry_faults,
        judge=file.judge,
        conductor=file.conductor,
        untrained=file.untrained,
    )


def _sitting(
    file: SuiteFile, wanted: EvalSpec, choice: Choice, *, keeps_replies: bool, ray: str | None
) -> EvalSession:
    """How it is measured, and with whom."""
    if ray is not None:
        _check_spreadable(wanted)
    return EvalSession(
        choice=choice,
        suite=wanted.suite,
        data=wanted.data,
        strategies=wanted.strategies,
        untrained=file.untrained,
        oracle=bool(file.oracle),
        concurrency=file.concurrency,
        cache=_path(file.cache),
        output=_path(file.output),
        keeps_replies=keeps_replies,
        ray=ray,
        seed=wanted.seed,
        flaky=wanted.variant.flaky,
    )


def _measured(sitting: EvalSession, wanted: EvalSpec) -> Report:
    from podium.evals.report import reported

    return sitting.hold(
        lambda held: reported(
            held.ensemble,
            replace(
                wanted,
                concurrency=held.at_once,
                repeats=wanted.repeats or held.tries,
                pool=sitting.pool,
            ),
            watch=held.watch,
            files=held.files,
            perform=held.perform,
        )
    )


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def usual_tasks(suite: str) -> int | None:
    """How many tasks of that suite are measured where no limit was named; None for all."""
    from podium.evals.recorded import is_recorded
    from podium.tasks.own import ENDINGS

    whole = Path(suite).suffix in ENDINGS or is_recorded(suite)
    return None if whole else USUAL_TASKS


def _check_spreadable(wanted: EvalSpec) -> None:
    """Refuse to spread what other machines cannot do."""
    from podium.evals.recorded import is_recorded

    if wanted.judge is not None or is_recorded(wanted.suite):
        raise UsageError(
            "judges and recorded workers are on this machine alone; leave out --ray for these"
        )


def _variant(table: VariantTable) -> Variant:
    """What is changed about the études."""
    from podium.evals.report import shapes_of
    from podium.evals.sample import Variant

    variant = Variant(
        shuffled=table.pool_order == "shuffled",
        drop_one=bool(table.drop_one),
        flaky=table.flaky or 0.0,
    )
    return replace(variant, shapes=shapes_of(table.shapes)) if table.shapes else variant


def tell_left_out(lines: Iterable[LeftOut]) -> None:
    """Name the lines of a suite's file that are no tasks."""
    for line in lines:
        complain(f"left out: {line}")


def _tell(report: Report, sitting: EvalSession, *, as_json: bool) -> None:
    """Print the table, write it beside the samples, and say what failed."""
    from podium.evals.tables.text_table import notes, rows_table

    sitting.summarise(report.document())
    tell_left_out(report.left_out)
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
