"""`podium eval`: evaluate strategies on suites of tasks, all with the same workers and budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from podium.cli import eval_session, options
from podium.cli.app import SubcommandGroup
from podium.cli.eval_session import EvalOptions, EvalSession, default_limit, print_left_out
from podium.cli.options import with_brief_help, with_option_groups
from podium.cli.output import ExitCode, echo, echo_error, echo_json

if TYPE_CHECKING:  # slow to import, and --help must be quick
    from podium.evals.comparison import Comparison
    from podium.evals.run import EvalReport, EvalSpec, SuiteFile

REPORT: Final = "report"
DEFAULT_STRATEGIES: Final = ("conductor",)
FLIPS_SHOWN: Final = 10

app = typer.Typer(cls=SubcommandGroup, rich_markup_mode=None, add_completion=False)


@app.callback()
def evals() -> None:
    """Evaluate strategies on suites of tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteOptions(EvalOptions):
    """The options that are also keys of a suite file."""

    strategies: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            metavar="A,B,…",
            help="conductor, recursion, rules, best-single, single:WORKER, majority, majority-N, "
            "best-of-N, moa, moa-3, reflection, ideal, random, baseline-conductor; a file of "
            "podium train router, as router:FILE or router:FILE@BIAS; a result of podium lab "
            "evolve, as evolved:DIR; your own function, as module:function. Separated by commas; "
            "default conductor.",
        ),
    ] = None
    baseline_conductor: eval_session.BaselineConductor = None
    judge: Annotated[
        str | None,
        typer.Option(metavar="WORKER", help="The worker that grades tasks with a model grader."),
    ] = None
    budget_usd: Annotated[
        float | None,
        typer.Option(
            metavar="USD",
            min=0,
            callback=options.check_finite,
            help="The most that the evaluation may cost; it stops there, and a higher value "
            "continues it.",
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write every sample with its whole run there: a new DIR, or one to continue.",
        ),
    ] = None


@app.command(cls=with_brief_help("strategies", "pool", "limit", "budget_usd", "output", "json"))
@with_option_groups
def run(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="everyday-100, etudes, everyday, a benchmark's name, a .jsonl or .csv "
            "file of tasks, or a .toml file with all options.",
        ),
    ],
    given: SuiteOptions,
    pool: options.WithoutExclude,
    json: options.Json = False,
    retry_errors: eval_session.RetryErrors = False,
    help_all: options.HelpAll = False,
) -> None:
    """Evaluate strategies on a suite of tasks, all with the same workers and budget.

    Repeating the command calls no worker for cached replies, and continues where it was cut off.
    Runs are not stored.
    """
    from podium.evals.run import override, suite_file_for

    file = suite_file_for(suite)
    values = asdict(given)
    if given.strategies is not None:
        values["strategies"] = tuple(filter(None, given.strategies.split(",")))
    fresh = values.pop("fresh")
    file = override(file, **values, pool=pool.pool, conductor=pool.conductor)
    spec = _spec(file, retry_errors=retry_errors)
    session = EvalSession(
        pool_options=replace(pool, pool=_path(file.pool), conductor=file.conductor),
        eval_options=EvalOptions(
            data=spec.data,
            seed=spec.seed,
            oracle=bool(file.oracle),
            concurrency=file.concurrency,
            cache=_path(file.cache),
            fresh=fresh,
        ),
        suite=spec.suite,
        strategies=spec.strategies,
        baseline_conductor=file.baseline_conductor,
        output=_path(file.output),
    )
    _print_report(_measure(session, spec), session, as_json=json)


def _spec(file: SuiteFile, *, retry_errors: bool) -> EvalSpec:
    from podium.evals.run import EvalSpec

    strategies = DEFAULT_STRATEGIES if file.strategies is None else file.strategies
    return EvalSpec(
        suite=file.suite,
        data=_path(file.data),
        strategies=tuple(dict.fromkeys(strategies)),
        limit=file.limit or default_limit(file.suite),
        seed=file.seed or 0,
        repeats=file.repeats,
        cap_usd=file.budget_usd,
        retry_errors=retry_errors,
        judge=file.judge,
        conductor=file.conductor,
        baseline_conductor=file.baseline_conductor,
    )


def _measure(session: EvalSession, spec: EvalSpec) -> EvalReport:
    from podium.evals.run import run_eval

    return session.run(
        lambda resources: run_eval(
            resources.setup,
            replace(
                spec,
                concurrency=resources.concurrency,
                pool=session.pool,
            ),
            on_progress=resources.on_progress,
            log=resources.log,
        )
    )


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _print_report(report: EvalReport, session: EvalSession, *, as_json: bool) -> None:
    from podium.evals.results import notes, rows_table

    session.write_summary(report.document())
    print_left_out(report.skipped)
    for problem in report.errors:
        echo_error(
            f"{problem.strategy}: {problem.error_source} failed in {problem.count} samples, first "
            f"with: {problem.first}"
        )
    if as_json:
        echo_json(report.document())
    elif report.rows:
        rows = [(row.strategy, row) for row in report.rows]
        echo("\n".join([rows_table(rows), *notes(rows)]))
    if report.stop is not None:
        echo_error(str(report.stop))
        raise typer.Exit(ExitCode.EXHAUSTED)


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory that podium eval run --output wrote.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help=f"The directory to write; default {REPORT} in DIR.",
        ),
    ] = None,
) -> None:
    """Write an evaluation as one page, with tables and failures.

    The page is a single file without scripts. An unfinished evaluation is shown as far as it came.
    """
    from podium.evals.page import write_report

    echo(str(write_report(directory, output or directory / REPORT)))


@app.command()
def compare(
    first: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory that podium eval run --output wrote.")
    ],
    second: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of another one.")],
    strategy: Annotated[
        str, typer.Option(metavar="NAME", help="The strategy to compare.")
    ] = "conductor",
    within: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", min=0, max=1, help="Fail if the accuracies differ by more than this."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare two evaluations of the same tasks, task by task.

    Both need the same suite, limit and seed; they may differ in pool or training, for example. The
    page Experiments of podium serve shows both with their runs.
    """
    from podium.evals.comparison import compare_directories

    comparison = compare_directories(first, second, strategy)
    if json:
        echo_json(comparison.document())
    else:
        echo(_describe_comparison(comparison, (str(first), str(second))))
    if within is not None and not comparison.is_within(within):
        apart = abs(comparison.difference.estimate.value)
        echo_error(f"the accuracies differ by {apart:.3f}, more than --within {within:g}")
        raise typer.Exit(ExitCode.FAILED)


def _describe_comparison(comparison: Comparison, names: tuple[str, str]) -> str:
    from podium.evals.results import shares_table

    difference = comparison.difference
    p_value = f"= {difference.p_value:.3f}" if difference.p_value >= 0.001 else "< 0.001"
    rows = [
        *zip(names, comparison.accuracies, strict=True),
        ("difference", difference.estimate),
        ("same answers", comparison.same_answers),
    ]
    gained = [flip.first.task for flip in comparison.flips if flip.is_gain]
    lost = [flip.first.task for flip in comparison.flips if not flip.is_gain]
    return "\n".join(
        [
            shares_table(rows),
            f"{len(comparison.first)} tasks; the second alone is right in {difference.gained}, the "
            f"first alone in {difference.lost}; p {p_value}",
            *([f"gained by the second: {_task_names(gained)}"] if gained else []),
            *([f"lost by the second: {_task_names(lost)}"] if lost else []),
        ]
    )


def _task_names(tasks: Sequence[str]) -> str:
    more = len(tasks) - FLIPS_SHOWN
    return ", ".join(tasks[:FLIPS_SHOWN]) + (f" and {more} more" if more > 0 else "")
