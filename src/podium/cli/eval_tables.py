"""Tables of evaluations: `podium eval etudes-table`, `evolved-table` and `graders`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from podium._util.lab import lab_extra
from podium._version import __version__
from podium.cli import eval_options, options
from podium.cli.eval_session import EvalSession
from podium.cli.options import with_option_groups
from podium.cli.output import ExitCode, echo, echo_error, echo_json

if TYPE_CHECKING:  # slow to import, and --help must be quick
    from podium.tasks.agreement import GraderAgreement
    from podium_lab.evals.evolved_table import Learner
    from podium_lab.evolution.results import EvolvedResult

GRADED_SUITES: Final = (
    "math500",
    "humaneval",
    "mbpp",
    "mbpp:validation",
    "mbpp:train",
    "mbpp:prompt",
)
"""Suites that run everywhere; BigCodeBench needs the libraries that it tests."""

MISTAKES_SHOWN: Final = 20
PROGRESS_INTERVAL: Final = 500
"""Graded answers between two lines of progress."""

ABLATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "roles False": "no roles",
        "token last": "last token",
        "method random": "random search",
        "directions None": "every number by itself",
        "matrices []": "no scales",
    }
)
"""The names of ablations, by the recipe's key and value that make them."""


@with_option_groups
def etudes_table(
    pool: options.WithoutExclude,
    file: eval_options.TableFile = Path("results/etudes.json"),
    limit: eval_options.Limit = None,
    seed: eval_options.Seed = None,
    baseline_conductor: eval_options.BaselineConductor = None,
    oracle: eval_options.Oracle = False,
    training: eval_options.TrainingMetrics = None,
    concurrency: eval_options.Concurrency = None,
    cache: eval_options.TableCache = None,
    output: eval_options.TableSamples = None,
) -> None:
    """Measure everything that a conductor of the études must show, and write it to a file.

    The ceiling, the conductor, every baseline, other pools, longer chains and the flaky pool, over
    the same unseen études, and for each target whether it was met.
    """
    from podium._util.lab import ETUDES
    from podium.evals.text_table import notes, rows_table
    from podium.tasks.suites import DEFAULT_ETUDES

    with lab_extra():
        from podium_lab.evals.etudes_table import MAIN, measure_etudes, requirements_table
        from podium_lab.evals.training_cost import read_training_cost

    trainings = read_training_cost(training or ())
    session = EvalSession(
        options=pool,
        suite=ETUDES,
        strategies=MAIN,
        baseline_conductor=baseline_conductor,
        oracle=oracle,
        concurrency=concurrency,
        cache=cache,
        output=output,
    )
    table = session.run(
        lambda resources: measure_etudes(
            resources.ensemble,
            n=limit or DEFAULT_ETUDES,
            seed=seed or 0,
            concurrency=resources.concurrency,
            training=trainings,
            on_progress=resources.watch,
            on_sample=resources.keep,
        )
    )
    session.write_table(file, table.document(), seed=seed or 0)
    rows = list(table.all_rows())
    echo(
        "\n".join(
            [
                rows_table(rows),
                *notes(rows),
                "",
                requirements_table(table.requirements()),
                "",
                str(file),
            ]
        )
    )


@with_option_groups
def evolved_table(
    trainings: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Runs of podium train evolve, finished or not; first the one that the others are "
            "compared with.",
        ),
    ],
    pool: options.WithoutExclude,
    file: eval_options.TableFile = Path("results/etudes-evolved.json"),
    limit: eval_options.Limit = None,
    seed: eval_options.Seed = None,
    oracle: eval_options.Oracle = False,
    training: eval_options.TrainingMetrics = None,
    concurrency: eval_options.Concurrency = None,
    cache: eval_options.TableCache = None,
    output: eval_options.TableSamples = None,
) -> None:
    """Measure evolved coordinators beside the conductor, and write it to a file.

    Over the same unseen études: accuracy, turns and tokens of each, and the time, trained
    parameters and rollouts of each training run.
    """
    from podium._util.lab import ETUDES
    from podium.evals.text_table import notes
    from podium.tasks.suites import DEFAULT_ETUDES

    with lab_extra():
        from podium_lab.evals.evolved_table import (
            BEST_SINGLE,
            CONDUCTOR,
            learners_table,
            measure_evolved,
        )
        from podium_lab.evals.training_cost import read_training_cost

    metrics = read_training_cost(training or ())
    coordinators = read_coordinators(trainings)
    session = EvalSession(
        options=pool,
        suite=ETUDES,
        strategies=(CONDUCTOR, *(learner.strategy for learner in coordinators), BEST_SINGLE),
        oracle=oracle,
        concurrency=concurrency,
        cache=cache,
        output=output,
    )
    table = session.run(
        lambda resources: measure_evolved(
            resources.ensemble,
            coordinators,
            n=limit or DEFAULT_ETUDES,
            seed=seed or 0,
            concurrency=resources.concurrency,
            conductor=metrics,
            on_progress=resources.watch,
            on_sample=resources.keep,
        )
    )
    session.write_table(file, table.document(), seed=seed or 0)
    remarks = notes((found.learner.name, found.row) for found in table.rows)
    echo("\n".join([learners_table(table.rows), *remarks, "", str(file)]))


def read_coordinators(directories: Sequence[Path]) -> tuple[Learner, ...]:
    """Read the coordinators, each named by how its recipe differs from the first one's, and by its
    directory where that is not enough."""
    with lab_extra():
        from podium_lab.evals.training_cost import require_distinct

    with lab_extra():
        from podium_lab.evolution.results import read_evolved

    found = [read_evolved(directory) for directory in directories]
    names = [", ".join(("evolved", *_differences(left, found[0]))) for left in found]
    places = require_distinct(directories)
    alike: dict[str, list[Path]] = {}
    for name, position in zip(names, places, strict=True):
        alike.setdefault(name, []).append(position)
    return tuple(
        _learner(
            name if len(alike[name]) == 1 else f"{name} ({shortest_tail(position, alike[name])})",
            directory,
            left,
        )
        for name, position, directory, left in zip(names, places, directories, found, strict=True)
    )


def shortest_tail(position: Path, places: Sequence[Path]) -> Path:
    """Return the shortest end of a path that no other path has."""
    others = [other.parts for other in places if other != position]
    for length in range(1, len(position.parts)):
        tail = position.parts[-length:]
        if all(other[-length:] != tail for other in others):
            return Path(*tail)
    return position


def _learner(name: str, directory: Path, left: EvolvedResult) -> Learner:
    with lab_extra():
        from podium_lab.evals.evolved_table import Learner
        from podium_lab.evals.training_cost import read_training_cost

    note = f"interrupted after {left.steps} of {left.planned} training steps"
    return Learner(
        name,
        f"evolved:{left.coordinator}",
        replace(read_training_cost([directory]), parameters=left.parameters),
        "" if left.is_finished else note,
    )


def _differences(left: EvolvedResult, first: EvolvedResult) -> Iterator[str]:
    """Yield the settings that differ from the first recipe, by name where it is an ablation."""
    ours, theirs = (one.settings.model_dump(mode="json") for one in (left, first))
    for key, value in sorted(ours.items()):
        if value != theirs[key]:
            setting = f"{key} {value}"
            yield ABLATIONS.get(setting, setting)


def graders(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE]...",
            help=f"Benchmarks, or .jsonl or .csv files of tasks; default: "
            f"{', '.join(GRADED_SUITES)}.",
            show_default=False,
        ),
    ] = None,
    data: eval_options.Data = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tasks per suite; default all.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The random seed.")] = 0,
    file: eval_options.ResultsFile = None,
    json: options.Json = False,
) -> None:
    """Test the graders on answers that are known to be right or wrong.

    Right are the reference answers, the same mathematics in other notations, and the reference
    programs. Wrong are the answers of other tasks, near misses, and programs with empty functions.
    No worker is called. Programs whose packages are not installed are not run.
    """
    from podium.evals.log import write_json

    rows, unavailable = asyncio.run(_grade_suites(suites or GRADED_SUITES, data, limit, seed))
    document = _document(rows, unavailable)
    if file is not None:
        write_json(file, document)
    if json:
        echo_json(document)
    else:
        echo("\n".join([agreement_table(document), *_mistakes(rows)]))
    if unavailable:
        raise typer.Exit(ExitCode.FAILED)


async def _grade_suites(
    names: Sequence[str], data: Path | None, limit: int | None, seed: int
) -> tuple[list[GraderAgreement], dict[str, str]]:
    """Return the rows of every suite that loads, and the errors of the others."""
    from podium.core.errors import PodiumError
    from podium.tasks import read_suite
    from podium.tasks.agreement import measure_agreement

    rows = []
    unavailable = {}
    for name in names:
        try:
            loaded = read_suite(name, data=data, limit=limit, seed=seed)
        except PodiumError as error:
            unavailable[name] = str(error)
            echo_error(f"{name}: {error}")
            continue
        for line in loaded.skipped:
            echo_error(str(line))

        def show_progress(done: int, total: int, name: str = name) -> None:
            if done == total or done % PROGRESS_INTERVAL == 0:
                echo_error(f"{name}: {done} of {total} answers graded")

        rows += await measure_agreement(name, loaded.tasks, seed=seed, watch=show_progress)
    return rows, unavailable


def _document(rows: Sequence[GraderAgreement], unavailable: dict[str, str]) -> dict[str, Any]:
    from podium.core.run import timestamp

    return {
        "rows": [row.document() for row in rows],
        "unavailable": unavailable,
        "date": timestamp()[:10],
        "podium": __version__,
    }


def agreement_table(document: dict[str, Any]) -> str:
    """Format the results as a table."""
    from podium.evals.text_table import markdown

    cells = [
        (
            row["suite"],
            row["what"],
            "right" if row["right"] else "wrong",
            str(row["graded"]),
            str(len(row["mistakes"])),
            str(sum(row["missing"].values())),
        )
        for row in document["rows"]
    ]
    return markdown(("suite", "answers", "are", "graded", "mistakes", "not run"), cells)


def _mistakes(rows: Sequence[GraderAgreement]) -> list[str]:
    lines = []
    for row in rows:
        for mistake in row.mistakes[:MISTAKES_SHOWN]:
            grade = "wrong" if row.right else "right"
            reason = f": {mistake.reason}" if mistake.reason else f": {mistake.given!r}"
            lines.append(f"{mistake.task}, {row.what}, graded {grade}{reason}")
        if len(row.mistakes) > MISTAKES_SHOWN:
            lines.append(f"and {len(row.mistakes) - MISTAKES_SHOWN} more; --json shows all")
        if row.missing:
            packages = ", ".join(f"{name} ({count})" for name, count in row.missing)
            lines.append(f"{row.suite}, {row.what}: not run, missing {packages}")
    return lines
