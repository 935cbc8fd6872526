"""One sitting of `podium eval`: settings, weights, kept replies, progress and files.

Everything that the commands which measure do alike. What is measured is for each of them to say
(`podium.cli.measure`, for one), and `podium.evals`' to do.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from podium._util.files import cache_dir, exclusive
from podium._version import __version__
from podium.cli.formatting import counted
from podium.cli.models import fetch_weights
from podium.cli.output import Exit, complain, is_drawable
from podium.cli.settings import Choice, settings_for
from podium.core.errors import UsageError

if TYPE_CHECKING:  # what measures is slow to import, and help must be quick
    from podium.config import Settings, WorkerSettings, choose_conductor
    from podium.evals.cluster import SpreadPerformer
    from podium.evals.ensemble import Ensemble
    from podium.evals.evaluation import Keep, Watch
    from podium.evals.written import SampleFiles
    from podium.workers.cached import ReplyCache

TASKS_AT_ONCE: Final = {"transformers": 32, "llamacpp": 4}
"""By provider: as many as it can serve on a processor before the last of them is out of time."""

TASKS_ON_A_CARD: Final = 1_000
"""For `transformers` on a graphics card, which answers so many in hardly more time than one."""

USUAL_TASKS_AT_ONCE: Final = 8
CACHE_BYTES: Final = 1_000_000_000
LOCK_SECONDS: Final = 0.5

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a measurement is made with. `perform` is who makes it, where not this process; `tries`
    is how often each task was answered where the answers are recorded ones."""

    ensemble: Ensemble
    at_once: int
    watch: Watch
    files: SampleFiles | None = None
    perform: SpreadPerformer | None = None
    tries: int = 1

    @property
    def keep(self) -> Keep | None:
        """Who writes samples down, where they are to be written."""
        return None if self.files is None else self.files.keep


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSession:
    """What the command line says of a measurement, whatever is measured.

    Replies are kept in the file `cache`; without one in the memory of this process, and with
    `keeps_replies` beside the samples or, where these are not written, in the user's cache.
    With `ray`, the address of a cluster, its machines perform; `seed` and `flaky` are what they
    must know of that.
    """

    choice: Choice
    suite: str
    oracle: bool
    concurrency: int | None
    cache: Path | None
    strategies: Sequence[str] = ()
    untrained: str | None = None
    output: Path | None = None
    data: Path | None = None
    keeps_replies: bool = False
    ray: str | None = None
    seed: int = 0
    flaky: float = 0.0

    def hold(self, measure: Callable[[Held], Awaitable[Result]]) -> Result:
        """Measure with the ensemble that was chosen, and tell how it goes on."""
        from podium.evals.written import SampleFiles

        async def hold() -> Result:
            async with AsyncExitStack() as stack:
                # Ray and functions of one's own may print, and we may owe JSON
                stack.enter_context(redirect_stdout(sys.stderr))
                files = None
                if self.output is not None:
                    files = stack.enter_context(SampleFiles(self.output))
                    await self._alone_in(self.output, stack)
                    stack.callback(files.forget_unless_begun)
                held = await self._held(stack)
                result = await measure(replace(held, files=files))
            asked = held.perform.asked if held.perform is not None else held.ensemble.asked
            _tell_asked(asked.total())
            return result

        try:
            return asyncio.run(hold())
        except KeyboardInterrupt:
            complain("interrupted; the same command goes on from here")
            raise typer.Exit(Exit.INTERRUPTED) from None

    async def _held(self, stack: AsyncExitStack) -> Held:
        """Everyone who takes part, connected; a recorded suite brings its own workers."""
        from podium.evals.recorded import is_recorded, recorded_pool
        from podium.workers.cached import ReplyCache

        if is_recorded(self.suite):
            if self.oracle or self.choice != Choice(offline=self.choice.offline):
                raise UsageError(
                    f"the suite {self.suite!r} brings its own workers, which nobody leads; leave "
                    f"out --pool, --config, --conductor and --oracle"
                )
            recorded = recorded_pool(self.suite, data=self.data)
            return Held(
                ensemble=recorded.ensemble,
                at_once=self.concurrency or USUAL_TASKS_AT_ONCE,
                watch=stack.enter_context(_progress()),
                tries=recorded.tries,
            )
        settings = await self._settings()
        await fetch_weights(self._needed(settings), offline=self.choice.offline)
        cache = stack.enter_context(ReplyCache(self._replies, CACHE_BYTES))
        ensemble = await stack.enter_async_context(self._ensemble(settings, cache))
        cluster = await self._cluster(settings, stack)
        return Held(
            ensemble=ensemble,
            at_once=self._at_once(settings) * (cluster.seats if cluster else 1),
            watch=stack.enter_context(_progress()),
            perform=cluster,
        )

    def summarise(self, document: dict[str, Any]) -> None:
        """Write the table beside the samples, where these are written."""
        from podium.evals.written import SUMMARY, write_json

        if self.output is not None:
            write_json(self.output / SUMMARY, document)

    def write_table(self, file: Path, found: Mapping[str, Any], *, seed: int) -> None:
        """Write a table with what it was measured by, to its file and beside the samples."""
        from podium.core.run import timestamp
        from podium.evals.written import write_json

        document = {
            **found,
            "seed": seed,
            "pool": self.pool,
            "date": timestamp()[:10],
            "podium": __version__,
        }
        self.summarise(document)
        write_json(file, document)

    @property
    def pool(self) -> str | None:
        """Which pool it is: its file's name, or `embedded`. None where perfect workers take that
        one's place, and where a configuration, the environment or the suite names the workers."""
        from podium.config.sources import EMBEDDED_POOL
        from podium.evals.written import EMBEDDED

        file = self._pool_file
        if file == EMBEDDED_POOL:
            return None if self.oracle else EMBEDDED
        return None if file is None else file.name

    @property
    def _pool_file(self) -> Path | None:
        """What is asked of the études' own workers is asked of the embedded ones where nothing
        else was chosen, whatever keys there are."""
        from podium.config.sources import EMBEDDED_POOL
        from podium.evals.sample import needs_roles

        choice = self.choice
        is_open = choice.pool is None and choice.config is None
        return EMBEDDED_POOL if is_open and needs_roles(self._benchmark) else choice.pool

    @property
    def _benchmark(self) -> str:
        """The suite, less which part of it."""
        return self.suite.partition(":")[0]

    async def _settings(self) -> Settings:
        from podium.evals.sample import check_roles

        settings = await settings_for(replace(self.choice, pool=self._pool_file), os.environ)
        for warning in settings.warnings:
            complain(warning)
        if not self.oracle:
            check_roles(settings.pool, self._benchmark)  # before anything is fetched
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
        if providers == {"transformers"} and _has_a_card():
            return TASKS_ON_A_CARD
        return min(TASKS_AT_ONCE.get(name, USUAL_TASKS_AT_ONCE) for name in providers)

    async def _cluster(self, settings: Settings, stack: AsyncExitStack) -> SpreadPerformer | None:
        """Who performs on other machines, where these were asked for."""
        if self.ray is None:
            return None
        from podium.evals.cluster import Opening, spread
        from podium.tasks.cluster import Replies

        opening = Opening(
            settings=settings,
            seed=self.seed,
            oracle=self.oracle,
            untrained=self._without_training(settings),
            flaky=self.flaky,
        )
        replies = Replies(self._replies, CACHE_BYTES)
        return await stack.enter_async_context(spread(self.ray, opening, replies))

    @property
    def _replies(self) -> Path | None:
        from podium.evals.written import REPLIES

        if self.cache is not None or not self.keeps_replies:
            return self.cache
        return (self.output or cache_dir() / "evaluations") / REPLIES

    @asynccontextmanager
    async def _ensemble(self, settings: Settings, cache: ReplyCache) -> AsyncIterator[Ensemble]:
        """Who takes part."""
        from podium.evals.ensemble import opened

        async with opened(
            settings,
            os.environ,
            cache=cache,
            oracle=self.oracle,
            untrained=self._without_training(settings),
        ) as ensemble:
            yield ensemble

    def _without_training(self, settings: Settings) -> WorkerSettings | None:
        if self.untrained is None:
            return None
        return choose_conductor(settings, self.untrained).conductor.worker

    async def _alone_in(self, directory: Path, stack: AsyncExitStack) -> None:
        """Two sittings at once in one directory would ask everything twice."""
        from podium.evals.written import LOCK

        try:
            async with asyncio.timeout(LOCK_SECONDS):
                await stack.enter_async_context(exclusive(directory / LOCK))
        except TimeoutError as error:
            raise UsageError(
                f"another evaluation is writing to {directory}; wait for it, or name another one"
            ) from error


def _has_a_card() -> bool:
    """Whether local models compute on a graphics card here; without torch there are none."""
    if find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


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
        complain(f"{strategy}: {counted(total, 'sample')} measured")


def _tell_asked(calls: int) -> None:
    """How much work it was for others."""
    complain(f"calls to workers: {calls:,}" if calls else "no worker was asked anything")
