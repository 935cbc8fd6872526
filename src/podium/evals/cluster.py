"""Run the samples of an evaluation on the machines of a Ray cluster.

    async with open_cluster("auto", spec, replies) as cluster:
        evaluation = Evaluation(..., run_sample=cluster, concurrency=cluster.actors * 8)

This process decides what to run and writes the results. Each actor has its own workers, and their
rate limits hold per actor. The reply cache stays on this machine. Samples of a lost actor are run
by another one. `podium.tasks.cluster` connects to Ray.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from podium.config import Settings, WorkerSettings
from podium.evals.evaluation import SampleResult, SampleRunner
from podium.evals.sample import Case
from podium.evals.setup import EvalSetup, open_setup
from podium.tasks.cluster import ActorPool, RemoteReplyCache, ReplyCacheSpec, start_actors

RESUME_HINT: Final = (
    "finished samples are kept: start the cluster again and repeat the command to resume"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupSpec:
    """Everything that an actor needs to open the same setup."""

    settings: Settings
    seed: int
    oracle: bool = False
    baseline_conductor: WorkerSettings | None = None
    flaky: float = 0.0


class ActorResult(NamedTuple):
    """A sample, and the actor's calls by worker since its last result."""

    result: SampleResult
    calls: Counter[str]


class EvalActor:
    """A process of the cluster that runs samples. Its workers are connected with the first one."""

    def __init__(self, spec: SetupSpec, cache: Any) -> None:
        self._spec = spec
        self._cache = cache
        self._stack = AsyncExitStack()
        self._opened: asyncio.Task[tuple[EvalSetup, SampleRunner]] | None = None
        self._reported = Counter[str]()

    async def perform(self, name: str, case: Case, repeat: int) -> ActorResult:
        """Run a sample."""
        if self._opened is None:
            self._opened = asyncio.create_task(self._open())
        setup, run_sample = await asyncio.shield(self._opened)
        result = await run_sample(name, case, repeat)
        calls = setup.calls - self._reported
        self._reported = setup.calls.copy()
        return ActorResult(result, calls)

    async def _open(self) -> tuple[EvalSetup, SampleRunner]:
        spec = self._spec
        setup = await self._stack.enter_async_context(
            open_setup(
                spec.settings,
                os.environ,
                cache=RemoteReplyCache(self._cache),
                oracle=spec.oracle,
                baseline_conductor=spec.baseline_conductor,
            )
        )
        if spec.flaky:
            setup = setup.with_flaky_workers(spec.flaky, spec.seed)
        return setup, SampleRunner(setup, seed=spec.seed)


class ClusterSampleRunner:
    """Runs samples on the actors of a cluster; `calls` counts those of all of them."""

    def __init__(self, pool: ActorPool) -> None:
        self._pool = pool
        self.calls = Counter[str]()

    @property
    def actors(self) -> int:
        """The number of actors."""
        return len(self._pool)

    async def __call__(self, name: str, case: Case, repeat: int) -> SampleResult:
        """Run a sample on the least busy actor."""
        done: ActorResult = await self._pool.perform(name, case, repeat)
        self.calls += done.calls
        return done.result


@asynccontextmanager
async def open_cluster(
    address: str, spec: SetupSpec, replies: ReplyCacheSpec, *, actors: int | None = None
) -> AsyncIterator[ClusterSampleRunner]:
    """Start actors in a Ray cluster, one per CPU or GPU unless `actors` says otherwise."""
    workers = spec.settings.workers
    on_gpus = any(worker.profile.provider == "transformers" for worker in workers)
    with start_actors(
        address, EvalActor, spec, replies, on_gpus=on_gpus, hint=RESUME_HINT, count=actors
    ) as pool:
        yield ClusterSampleRunner(pool)
