"""`podium eval`: strategies measured over suites of tasks, with the same workers and budget.

How two evaluations are compared is `podium.cli.compare`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import typer

from podium._version import __version__
from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.compare import compare
from podium.cli.fetching import fetch_weights
from podium.cli.output import complain, is_drawable, say, say_json
from podium.cli.settings import Choice, conducted_by, settings_for

if TYPE_CHECKING:  # what measures is slow to import, and help must be quick
    from podium.config import Settings
    from podium.evals.ensemble import Ensemble
    from podium.evals.evaluation import Keep, Watch

app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

TASKS_AT_ONCE: Final = {"transformers": 1_000, "llamacpp": 4}
"""By provider: as many as make its batches large, or as it can serve without a queue."""

USUAL_TASKS_AT_ONCE: Final = 8
CACHE_BYTES: Final = 1_000_000_000

Result = TypeVar("Result")

Seed = Annotated[int, typer.Option(metavar="N", help="What the tasks and all chance come from.")]
Concurrency = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="How many tasks at once; what suits the pool, when left out."
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Keep replies there, and ask no worker the same thing again."
    ),
]
Samples = Annotated[
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


SuiteName = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="etudes, everyday, a benchmark's name, or a .jsonl or .csv file of tasks.",
    ),
]
Strategies = Annotated[
    str,
    typer.Option(
        "--strategy",
        metavar="A,B,…",
        help="conductor, recursion, ideal, best-single, single:WORKER, majority, moa, "
        "reflection, reflection:WORKER, random, untrained; several with commas.",
    ),
]
Limit = Annotated[int, typer.Option(metavar="N", min=1, help="How many tasks.")]
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
    Literal["drawn", "shuffled"],
    typer.Option(
        metavar="drawn|shuffled", help="Each pool as it is drawn, or in yet another order."
    ),
]
DropOne = Annotated[
    bool, typer.Option("--drop-one", help="Leave out a worker that the étude does not need.")
]
Flaky = Annotated[
    float,
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
    strategy: Strategies = "conductor",
    limit: Limit = 100,
    data: Data = None,
    seed: Seed = 0,
    json: options.Json = False,
    pool: options.Pool = None,
    config: options.Config = None,
    conductor: options.Conductor = None,
    untrained: Untrained = None,
    oracle: Oracle = False,
    shapes: Shapes = None,
    pool_order: PoolOrder = "drawn",
    drop_one: DropOne = False,
    flaky: Flaky = 0.0,
    concurrency: Concurrency = None,
    cache: Cache = None,
    output: Samples = None,
    offline: options.Offline = False,
) -> None:
    """Measure strategies over a suite of tasks, all with the same workers and budget.

    The études are unseen ones, over pools described in words that no training has seen. Name their
    workers by --pool, or take perfect ones by --oracle; else they are the embedded pool's, where it
    has specialists. Runs are not kept in the store.
    """
    from podium.evals.case import Variant
    from podium.evals.report import Wanted, reported, shapes_of
    from podium.evals.text_table import notes, rows_table

    variant = Variant(shuffled=pool_order == "shuffled", drop_one=drop_one, flaky=flaky)
    if shapes:
        variant = replace(variant, shapes=shapes_of(shapes.split(",")))
    wanted = Wanted(
        suite=suite,
        data=data,
        strategies=tuple(dict.fromkeys(filter(None, strategy.split(",")))),
        limit=limit,
        seed=seed,
        variant=variant,
    )
    sitting = _Sitting(
        choice=Choice(pool=pool, config=config, conductor=conductor, offline=offline),
        suite=suite,
        strategies=wanted.strategies,
        untrained=untrained,
        oracle=oracle,
        concurrency=concurrency,
        cache=cache,
        output=output,
    )
    report = sitting.hold(
        lambda ensemble, at_once, watch, keep: reported(
            ensemble, replace(wanted, concurrency=at_once), watch=watch, keep=keep
        )
    )
    sitting.summarise(report.document())
    if json:
        say_json(report.document())
        return
    rows = [(row.strategy, row) for row in report.rows]
    say("\n".join([rows_table(rows), *notes(rows)]))


@app.command(name="etudes-table")
def etudes_table(
    file: TableFile = Path("results/etudes.json"),
    limit: Limit = 1000,
    seed: Seed = 0,
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
    from podium.tasks.suites import ETUDES

    figures = read_trainings(training or ())
    sitting = _Sitting(
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
        lambda ensemble, at_once, watch, keep: measure_etudes(
            ensemble,
            n=limit,
            seed=seed,
            concurrency=at_once,
            training=figures,
            watch=watch,
            keep=keep,
        )
    )
    document = {
        **table.document(),
        "seed": seed,
        "pool": pool.name if pool is not None else "embedded",
        "date": timestamp()[:10],
        "podium": __version__,
    }
    sitting.summarise(document)
    write_json(file, document)
    rows = list(table.all_rows())
    say("\n".join([rows_table(rows), *notes(rows), "", bars_table(table.bars()), "", str(file)]))


app.command()(compare)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sitting:
    """Everything that the two commands do alike: settings, weights, cache, progress, files."""

    choice: Choice
    suite: str
    strategies: Sequence[str]
    untrained: str | None
    oracle: bool
    concurrency: int | None
    cache: Path | None
    output: Path | None

    def hold(
        self, measure: Callable[[Ensemble, int, Watch, Keep | None], Awaitable[Result]]
    ) -> Result:
        """Measure with the ensemble that was chosen, and tell how it goes on."""
        from podium.evals.written import SampleFiles

        async def hold() -> Result:
            with ExitStack() as stack:
                keep = None
                if self.output is not None:
                    keep = stack.enter_context(SampleFiles(self.output)).keep
                settings = await self._settings()
                await fetch_weights(self._needed(settings), offline=self.choice.offline)
                watch = stack.enter_context(_progress())
                async with self._ensemble(settings) as ensemble:
                    return await measure(ensemble, self._at_once(settings), watch, keep)

        return asyncio.run(hold())

    def summarise(self, document: dict[str, Any]) -> None:
        """Write the table beside the samples, where these are written."""
        from podium.evals.written import SUMMARY, write_json

        if self.output is not None:
            write_json(self.output / SUMMARY, document)

    async def _settings(self) -> Settings:
        """The settings; what is asked of the études' own workers is asked of the embedded ones,
        whatever keys there are."""
        from podium.config.current import EMBEDDED_POOL
        from podium.evals.case import check_roles, needs_roles

        choice, suite = self.choice, self.suite.partition(":")[0]
        if needs_roles(suite) and choice.pool is None and choice.config is None:
            choice = replace(choice, pool=EMBEDDED_POOL)
        settings = await settings_for(choice, os.environ)
        for warning in settings.warnings:
            complain(warning)
        if not self.oracle:
            check_roles(settings.pool, suite)  # before anything is fetched
        return settings

    def _needed(self, settings: Settings) -> Settings:
        """The settings less those whose weights are not needed."""
        from podium.evals.strategies import PLANNED

        planned = any(name.partition(":")[0] in PLANNED for name in self.strategies)
        conductor = settings.conductor
        return replace(
            settings,
            workers=() if self.oracle else settings.workers,
            conductor=conductor if planned else replace(conductor, worker=None),
        )

    def _at_once(self, settings: Settings) -> int:
        if self.concurrency is not None:
            return self.concurrency
        providers = {worker.profile.provider for worker in settings.workers}
        return min(TASKS_AT_ONCE.get(name, USUAL_TASKS_AT_ONCE) for name in providers)

    @asynccontextmanager
    async def _ensemble(self, settings: Settings) -> AsyncIterator[Ensemble]:
        """Who takes part; replies are remembered, for this sitting at least."""
        from podium.evals.ensemble import opened
        from podium.providers.cached import ReplyCache

        untrained = None
        if self.untrained is not None:
            untrained = conducted_by(settings, self.untrained).conductor.worker
        with ReplyCache(self.cache, CACHE_BYTES) as cache:
            async with opened(
                settings, os.environ, cache=cache, oracle=self.oracle, untrained=untrained
            ) as ensemble:
                yield ensemble


@contextmanager
def _progress() -> Iterator[Watch]:
    """A bar for each strategy on a terminal, else a line when it is done."""
    if not is_drawable(sys.stderr):
        yield _say_when_done
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        bars: dict[str, Any] = {}

        def watch(strategy: str, done: int, total: int) -> None:
            if strategy not in bars:
                bars[strategy] = bar.add_task(strategy, total=total)
            bar.update(bars[strategy], completed=done)

        yield watch


def _say_when_done(strategy: str, done: int, total: int) -> None:
    if done == total:
        complain(f"{strategy}: {total} tasks measured")
