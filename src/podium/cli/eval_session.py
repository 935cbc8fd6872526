"""What the commands of `podium eval` share: settings, weights, cached replies, progress, files."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from podium._util.files import cache_dir, lock_file
from podium._version import __version__
from podium.cli.models import fetch_weights
from podium.cli.options import PoolOptions, load_settings
from podium.cli.output import ExitCode, echo_error, is_terminal, pluralize
from podium.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from podium.config import Settings, WorkerSettings
    from podium.evals.evaluation import ProgressCallback, SampleCallback
    from podium.evals.log import EvalLogWriter
    from podium.evals.setup import EvalSetup
    from podium.tasks.records import SkippedLine

BaselineConductor = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="The model that plans for the strategy baseline-conductor: provider/model; default "
        "the conductor's model without its adapter.",
    ),
]
RetryErrors = Annotated[
    bool, typer.Option("--retry-errors", help="Repeat the samples of DIR that had an error.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """The options of the commands that call workers."""

    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="How many tasks; default all of a file, 1000 for the tables, else 100.",
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The directory or file of a benchmark, if not on the hub."
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(metavar="N", help="The random seed; default 0.")] = (
        None
    )
    repeats: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Samples per task, each drawn anew.")
    ] = None
    oracle: Annotated[
        bool,
        typer.Option("--oracle", help="Replace the workers by perfect ones: only plans can fail."),
    ] = False
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="How many tasks at once; default depends on the pool."
        ),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Cache replies in this file; default in DIR or the user's cache."
        ),
    ] = None
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore cached replies, and do not keep new ones.")
    ] = False


CONCURRENCY: Final = {"transformers": 32, "llamacpp": 4}
"""By provider: the most tasks at once that finish in time on a CPU."""

GPU_CONCURRENCY: Final = 1_000
"""For `transformers` on a GPU, which takes hardly longer for many than for one."""

DEFAULT_CONCURRENCY: Final = 8
CACHE_BYTES: Final = 1_000_000_000
LOCK_SECONDS: Final = 0.5

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResources:
    """What an evaluation runs with."""

    setup: EvalSetup
    concurrency: int
    on_progress: ProgressCallback
    log: EvalLogWriter | None = None

    @property
    def on_sample(self) -> SampleCallback | None:
        return None if self.log is None else self.log.write_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSession:
    """The options of an evaluation, and the resources it opens.

    Replies are cached in the file of the options; without it in memory if they are `fresh`, else
    beside the samples or in the user's cache.
    """

    pool_options: PoolOptions
    eval_options: EvalOptions
    suite: str
    strategies: Sequence[str] = ()
    baseline_conductor: str | None = None
    output: Path | None = None

    def run(self, measure: Callable[[EvalResources], Awaitable[Result]]) -> Result:
        """Check the suite's name, open the resources, measure, and show the progress."""
        from podium.evals.log import EvalLogWriter

        check_suite_name(self.suite)  # before anything is downloaded

        async def run() -> Result:
            async with AsyncExitStack() as stack:
                # custom strategies may print, and standard output may be JSON
                stack.enter_context(redirect_stdout(sys.stderr))
                log = None
                if self.output is not None:
                    log = stack.enter_context(EvalLogWriter(self.output))
                    await self._lock(self.output, stack)
                    stack.callback(log.remove_if_unused)
                resources = await self._open(stack)
                result = await measure(replace(resources, log=log))
            calls = resources.setup.calls.total()
            echo_error(f"calls to workers: {f'{calls:,}' if calls else 'none, all cached'}")
            return result

        try:
            return asyncio.run(run())
        except KeyboardInterrupt:
            echo_error("interrupted; repeat the command to continue")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    async def _open(self, stack: AsyncExitStack) -> EvalResources:
        from podium.evals.setup import open_setup
        from podium.workers.cached import ReplyCache

        settings = await self._settings()
        await self._fetch_weights(settings)
        cache = stack.enter_context(ReplyCache(self._replies, CACHE_BYTES))
        setup = await stack.enter_async_context(
            open_setup(
                settings,
                os.environ,
                cache=cache,
                oracle=self.eval_options.oracle,
                baseline_conductor=self._baseline_worker(settings),
            )
        )
        return EvalResources(
            setup=setup,
            concurrency=self._concurrency(settings),
            on_progress=stack.enter_context(_progress()),
        )

    def write_summary(self, document: dict[str, Any]) -> None:
        from podium.evals.log import SUMMARY, write_json

        if self.output is not None:
            write_json(self.output / SUMMARY, document)

    def write_table(self, file: Path, found: Mapping[str, Any]) -> None:
        """Write a table with its seed, pool and date, to its file and beside the samples."""
        from podium.core.run import timestamp
        from podium.evals.log import write_json

        document = {
            **found,
            "seed": self.eval_options.seed or 0,
            "pool": self.pool,
            "date": timestamp()[:10],
            "podium": __version__,
        }
        self.write_summary(document)
        write_json(file, document)

    @property
    def pool(self) -> str | None:
        """The name of the pool's file, or `etudes`; None with perfect workers, and where a
        configuration, the environment or the suite names the workers."""
        from podium.config.schema import find_pool
        from podium.config.sources import ETUDES_POOL

        file = self._pool_file
        if file is not None and find_pool(file) == ETUDES_POOL:
            return None if self.eval_options.oracle else "etudes"
        return None if file is None else file.name

    @property
    def _pool_file(self) -> Path | None:
        """Suites with roles use the études' pool by default, whatever API keys are set."""
        from podium.config.sources import ETUDES_POOL
        from podium.evals.sample import needs_roles

        choice = self.pool_options
        is_open = choice.pool is None and choice.config is None
        return ETUDES_POOL if is_open and needs_roles(self._benchmark) else choice.pool

    @property
    def _benchmark(self) -> str:
        return self.suite.partition(":")[0]

    async def _settings(self) -> Settings:
        from podium.evals.sample import check_roles

        settings = await load_settings(replace(self.pool_options, pool=self._pool_file), os.environ)
        for warning in settings.warnings:
            echo_error(warning)
        if not self.eval_options.oracle:
            check_roles(settings.pool, self._benchmark)  # before anything is fetched
        return settings

    async def _fetch_weights(self, settings: Settings) -> None:
        from podium.evals.strategies.registry import NEEDS_CONDUCTOR

        planned = any(name.partition(":")[0] in NEEDS_CONDUCTOR for name in self.strategies)
        conductor = settings.conductor
        await fetch_weights(
            () if self.eval_options.oracle else settings.workers,
            conductor if planned else replace(conductor, worker=None),
            offline=self.pool_options.offline,
        )

    def _concurrency(self, settings: Settings) -> int:
        if self.eval_options.concurrency is not None:
            return self.eval_options.concurrency
        profiles = [worker.profile for worker in settings.workers]
        providers = {profile.provider for profile in profiles if profile.is_model}
        if providers == {"transformers"} and _has_gpu():
            return GPU_CONCURRENCY
        return min(
            (CONCURRENCY.get(name, DEFAULT_CONCURRENCY) for name in providers),
            default=DEFAULT_CONCURRENCY,
        )

    @property
    def _replies(self) -> Path | None:
        from podium.evals.log import REPLIES

        if self.eval_options.cache is not None or self.eval_options.fresh:
            return self.eval_options.cache
        return (self.output or cache_dir() / "evaluations") / REPLIES

    def _baseline_worker(self, settings: Settings) -> WorkerSettings | None:
        if self.baseline_conductor is None:
            return None
        from podium.config import choose_conductor

        return choose_conductor(settings, self.baseline_conductor).conductor.worker

    async def _lock(self, directory: Path, stack: AsyncExitStack) -> None:
        """Lock the directory: two evaluations at once in it would repeat every call."""
        from podium.evals.log import LOCK

        try:
            async with asyncio.timeout(LOCK_SECONDS):
                await stack.enter_async_context(lock_file(directory / LOCK))
        except TimeoutError as error:
            raise UsageError(
                f"another evaluation is writing to {directory}; wait for it, or choose another one"
            ) from error


def check_suite_name(name: str) -> None:
    from podium.tasks.benchmarks import resolve_benchmark
    from podium.tasks.records import ENDINGS
    from podium.tasks.suites import NAMES

    kind = name.partition(":")[0]
    is_known = kind in NAMES or Path(name).suffix in ENDINGS
    if not is_known and resolve_benchmark(kind) is None:
        raise ConfigError(
            f"suite not found: {name!r}; expected one of {', '.join(NAMES)}, or the path of a "
            f"{' or '.join(ENDINGS)} file"
        )


def _has_gpu() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


@contextmanager
def _progress() -> Iterator[ProgressCallback]:
    """Show a bar for each strategy on a terminal, else a line when it is done."""
    if not is_terminal(sys.stderr):
        yield _print_when_done
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

        def show_progress(strategy: str, done: int, total: int) -> None:
            if strategy not in bars:
                bars[strategy] = bar.add_task(strategy, total=total)
            bar.update(bars[strategy], completed=done)

        yield show_progress


def _print_when_done(strategy: str, done: int, total: int) -> None:
    if done == total:
        echo_error(f"{strategy}: {pluralize(total, 'sample')} measured")


DEFAULT_LIMIT: Final = 100


def default_limit(suite: str) -> int | None:
    """Return how many tasks of a suite to measure by default; None for all."""
    from podium.tasks.records import ENDINGS

    is_whole = Path(suite).suffix in ENDINGS
    return None if is_whole else DEFAULT_LIMIT


def print_left_out(lines: Iterable[SkippedLine]) -> None:
    for line in lines:
        echo_error(f"left out: {line}")
