"""`podium lab`: evolved coordinators and tables."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from podium._util.lab import ETUDES, lab_extra
from podium.cli import eval_session, options
from podium.cli.app import SubcommandGroup
from podium.cli.eval_session import EvalOptions, EvalSession
from podium.cli.options import Omit, with_option_groups
from podium.cli.output import echo
from podium.cli.train import Base, RecipeFile, TrainingOptions
from podium.core.errors import ConfigError
from podium.evals.log import write_json
from podium.train import preflight
from podium.workers.local.sources import EmbeddedAdapter, parse_source
from podium.workers.local.weights import locate

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

TableOptions = Annotated[EvalOptions, Omit(("data", "repeats", "cache", "fresh"))]

app = typer.Typer(cls=SubcommandGroup, rich_markup_mode=None, add_completion=False)


@app.callback()
def lab() -> None:
    """Run experiments: evolved coordinators and tables."""


@app.command()
@with_option_groups
def evolve(recipe: RecipeFile, training: Annotated[TrainingOptions, Omit(("resume",))]) -> None:
    """Evolve a coordinator, which picks a worker and a role for every turn."""
    training.run("evolve", recipe)


@app.command()
@with_option_groups
def etudes_table(
    pool: options.WithoutExclude,
    given: TableOptions,
    file: TableFile = Path("results/etudes.json"),
    baseline_conductor: eval_session.BaselineConductor = None,
    cache: TableCache = None,
    output: TableSamples = None,
) -> None:
    """Measure everything that a conductor of the études must show, and write it to a file.

    The ceiling, the conductor, every baseline, other pools, longer chains and the flaky pool, over
    the same unseen études, and for each target whether it was met.
    """
    from podium.evals.results import notes, rows_table
    from podium.tasks.suites import DEFAULT_ETUDES

    with lab_extra():
        from podium_lab.evals.tables import (
            MAIN_STRATEGIES,
            measure_etudes,
            requirements_table,
        )

    session = EvalSession(
        pool_options=pool,
        eval_options=replace(given, cache=cache, fresh=True),
        suite=ETUDES,
        strategies=MAIN_STRATEGIES,
        baseline_conductor=baseline_conductor,
        output=output,
    )
    table = session.run(
        lambda resources: measure_etudes(
            resources.setup,
            n=given.limit or DEFAULT_ETUDES,
            seed=given.seed or 0,
            concurrency=resources.concurrency,
            on_progress=resources.on_progress,
            on_sample=resources.on_sample,
        )
    )
    session.write_table(file, table.document())
    rows = list(table.all_rows())
    requirements = requirements_table(table.requirements())
    echo("\n".join([rows_table(rows), *notes(rows), "", requirements, "", str(file)]))


@app.command()
def reality_table(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…",
            help="What podium eval run --output wrote, a directory for each suite; or the samples "
            "of another table.",
        ),
    ],
    file: TableFile = Path("results/real.json"),
) -> None:
    """Put evaluations of several suites into one table, beside its samples and a picture.

    Differences of the conductor to the others have paired bootstrap intervals.
    """
    with lab_extra():
        from podium_lab.evals.real_table import RealTable, picture, read_rows, write_samples

    rows = read_rows(directories)
    document = RealTable(rows).document()
    write_samples(rows, file.with_name(f"{file.stem}-samples.json.gz"))
    file.with_suffix(".svg").write_text(picture(document), "utf-8")
    write_json(file, document)
    for requirement in document.get("requirements", ()):
        limit, met = requirement["limit"], requirement["met"]
        echo(f"{requirement['name']}: {requirement['reached']} (limit {limit}), met: {met}")
    echo(str(file))


@app.command()
def import_gguf(
    adapter: Annotated[
        str,
        typer.Argument(
            metavar="ADAPTER", help="An adapter of Podium (embedded/NAME), or a GGUF file."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The directory to write.")
    ],
    base: Base = None,
) -> None:
    """Import an adapter from a GGUF file, for training and transformers."""
    preflight.require_packages()
    from podium.train.gguf import import_adapter

    found = parse_source(adapter)
    if base is None:
        if not isinstance(found, EmbeddedAdapter):
            raise ConfigError(f"{adapter} does not name its base model; name it with --base")
        base = found.base
    echo(str(import_adapter(asyncio.run(locate(adapter)), output, base=base)))
