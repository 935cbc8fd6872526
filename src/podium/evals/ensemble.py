"""The ensemble: who takes part in an evaluation, connected and ready to be asked.

    async with opened(settings, os.environ, cache=cache) as ensemble:
        ...

Workers are those that the settings name, or perfect ones in their place. Every call may be
answered from a cache of replies, the conductor's own included. Nothing here touches the store:
what an evaluation does is not part of anybody's history.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from podium.assembly import assemble, usual_options
from podium.conductor import Conductor, Length, ModelConductor
from podium.config import ConductorSettings, Settings, WorkerSettings
from podium.engine import RetryPolicy
from podium.etudes import FAMILIES
from podium.etudes.flaky import FlakyWorker
from podium.etudes.perfect import oracle_workers
from podium.files import sha256_of
from podium.local import weights
from podium.pool import Pool
from podium.providers import Http, connect
from podium.providers.cached import CachedWorker, ReplyCache
from podium.runner import Options
from podium.worker import Worker

ADAPTER_OPTIONS: Final = ("adapter", "adapter_scale")
"""What makes a trained model of a base model, in a worker's options."""

PLACES: Final = 4
"""How many requests llama.cpp works on at a time."""

UNTRAINED_PROMPTS: Final[tuple[Length, ...]] = ("compact", "full")
"""How a model that was not trained to plan is asked for a plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """Workers by name with their pool, the conductor, and what holds for every run.

    `untrained` is the conductor's model without its training, by the prompt that it is asked
    with; empty where the conductor is no model.
    """

    workers: Mapping[str, Worker]
    pool: Pool
    conductor: Conductor
    untrained: Mapping[str, Conductor] = field(default_factory=dict)
    options: Options = Options()
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def made_flaky(self, share: float, seed: int) -> Ensemble:
        """The same, but every specialist declines that share of the requests it gets."""
        families = {family.value for family in FAMILIES}
        workers = {
            name: FlakyWorker(worker, share, seed) if name in families else worker
            for name, worker in self.workers.items()
        }
        return replace(self, workers=workers)


@asynccontextmanager
async def opened(
    settings: Settings,
    environment: Mapping[str, str],
    *,
    cache: ReplyCache | None = None,
    oracle: bool = False,
    untrained: WorkerSettings | None = None,
) -> AsyncIterator[Ensemble]:
    """Connect everyone that the settings name, and close them at the end.

    With `oracle`, perfect workers take the place of the pool's. `untrained` is the model that
    plans without having been trained to; when left out, the conductor's less its adapter.
    """
    async with AsyncExitStack() as stack:
        http = Http()
        stack.push_async_callback(http.close)
        assembly = assemble(settings, environment, http)
        stack.push_async_callback(assembly.close)
        prompted = dict[str, Conductor]()
        base = untrained or without_adapter(settings.conductor.worker)
        if base is not None:
            base = _in_turn(base)
            planner = connect(base.profile, base.endpoint(environment), http)
            if hasattr(planner, "close"):
                stack.push_async_callback(planner.close)
            prompted = _prompted(_remembering(planner, base, cache), settings.conductor)
        conductor, asked = assembly.conductor, settings.conductor.worker
        if isinstance(conductor, ModelConductor) and asked is not None:
            conductor.worker = _remembering(conductor.worker, asked, cache)
        if oracle:
            workers: Sequence[Worker] = oracle_workers()
            pool = Pool(tuple(worker.profile for worker in workers))
        else:
            workers = [_remembering(w, settings[w.profile.name], cache) for w in assembly.workers]
            pool = assembly.pool
        yield Ensemble(
            workers={worker.profile.name: worker for worker in workers},
            pool=pool,
            conductor=conductor,
            untrained=prompted,
            options=usual_options(settings),
            retry=settings.retry,
        )


def _remembering(worker: Worker, settings: WorkerSettings, cache: ReplyCache | None) -> Worker:
    if cache is None:
        return worker
    return CachedWorker(worker, cache, fingerprint=fingerprint(settings))


def fingerprint(worker: WorkerSettings) -> str:
    """What decides over a worker's replies besides its name and model: its address, its options,
    and what is in its adapter, for the next training leaves another one under the same name."""
    adapter = worker.options.get("adapter")
    sums = [sha256_of(file) for file in _files(str(adapter), worker)] if adapter else []
    return json.dumps([worker.base_url, dict(worker.options), sums], sort_keys=True, default=str)


def _files(adapter: str, worker: WorkerSettings) -> list[Path]:
    path = Path(adapter).expanduser()
    if worker.profile.provider == "llamacpp":
        path = weights.find(adapter).path
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return [path] if path.is_file() else []


def without_adapter(trained: WorkerSettings | None) -> WorkerSettings | None:
    """The model that plans, as it was before it was trained to."""
    if trained is None:
        return None
    bare = {key: value for key, value in trained.options.items() if key not in ADAPTER_OPTIONS}
    profile = replace(trained.profile, name=f"{trained.profile.name}-untrained")
    return replace(trained, profile=profile, options=bare)


def _in_turn(worker: WorkerSettings) -> WorkerSettings:
    """A model on the processor has a few places; who waits for one at the gate has all of the
    time limit left, and who waits inside the model has not."""
    profile = worker.profile
    if profile.provider != "llamacpp" or profile.limits.concurrency is not None:
        return worker
    limits = replace(profile.limits, concurrency=PLACES)
    return replace(worker, profile=replace(profile, limits=limits))


def _prompted(worker: Worker, conductor: ConductorSettings) -> dict[str, Conductor]:
    """The worker asked for plans in each of the ways in which an untrained model is."""
    return {
        prompt: ModelConductor(
            worker,
            prompt=prompt,
            temperature=conductor.temperature,
            fallback=conductor.fallback,
            name=f"untrained:{prompt}",
        )
        for prompt in UNTRAINED_PROMPTS
    }
