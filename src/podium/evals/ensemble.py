"""The ensemble: who takes part in an evaluation, connected and ready to be asked.

    async with opened(settings, os.environ, cache=cache) as ensemble:
        ...

Workers are those that the settings name, or perfect ones in their place. Every call may be
answered from a cache of replies, the conductor's own included. Nothing here touches the store:
what an evaluation does is not part of anybody's history.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from podium._util.files import sha256_of
from podium._util.lab import lab_extra
from podium._version import __version__
from podium.client.assembly import assemble, default_options
from podium.conductors import Conductor, Length, ModelConductor
from podium.conductors.evolved.description import PARAMETERS
from podium.config import ConductorSettings, Settings, WorkerSettings
from podium.core.pool import Pool, WorkerProfile
from podium.core.worker import Worker
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import Options
from podium.evals.context import CountedWorker, EvalContext, RepeatingWorker
from podium.workers import Http, connect
from podium.workers.cached import ReplyCache
from podium.workers.local import weights

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
    with; empty where the conductor is no model. `asked` counts the calls that were really made,
    by worker. `identity` is a fingerprint of everyone who takes part: other workers, other
    models or another adapter make another one.
    """

    workers: Mapping[str, Worker]
    pool: Pool
    conductor: Conductor
    untrained: Mapping[str, Conductor] = field(default_factory=dict)
    options: Options = Options()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    asked: Counter[str] = field(default_factory=Counter)
    identity: str = ""

    def stage(self, seed: int) -> EvalContext:
        """What all strategies share that these take part in."""
        call_policy = CallPolicy(self.retry)
        return EvalContext(
            workers=self.workers, call_policy=call_policy, options=self.options, seed=seed
        )

    def made_flaky(self, share: float, seed: int) -> Ensemble:
        """The same, but every specialist declines that share of the requests it gets."""
        with lab_extra():
            from podium_lab.etudes import FAMILIES, FlakyWorker
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
    asked = Counter[str]()

    def counted(worker: Worker, known_by: str) -> Worker:
        worker = CountedWorker(worker, asked)
        return worker if cache is None else RepeatingWorker(worker, cache, fingerprint=known_by)

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
            prompted = _prompted(counted(planner, fingerprint(base)), settings.conductor)
        conductor, plans = assembly.conductor, settings.conductor.worker
        if isinstance(conductor, ModelConductor) and plans is not None:
            conductor.worker = counted(conductor.worker, fingerprint(plans))
        if oracle:
            with lab_extra():
                from podium_lab.etudes.workers import oracle_workers
            workers: Sequence[Worker] = [
                counted(worker, __version__) for worker in oracle_workers()
            ]
            pool = Pool(tuple(worker.profile for worker in workers))
        else:
            workers = [
                counted(worker, fingerprint(settings[worker.profile.name]))
                for worker in assembly.workers
            ]
            pool = assembly.pool
        yield Ensemble(
            workers={worker.profile.name: worker for worker in workers},
            pool=pool,
            conductor=conductor,
            untrained=prompted,
            options=default_options(settings),
            retry=settings.retry,
            asked=asked,
            identity=_identity(settings, base, oracle=oracle),
        )


def _identity(settings: Settings, untrained: WorkerSettings | None, *, oracle: bool) -> str:
    """What decides over the replies and plans of an evaluation, in a short text."""
    conductor, flow = settings.conductor, settings.conductor.workflow
    workers = () if oracle else settings.workers
    asked = [worker for worker in (*workers, conductor.worker, untrained) if worker is not None]
    known: tuple[object, ...] = (
        [(_described(worker.profile), fingerprint(worker)) for worker in asked],
        (conductor.kind, conductor.max_steps, conductor.temperature, conductor.prompt),
        (conductor.few_shot, conductor.fallback, flow and sha256_of(flow)),
        (settings.share_question, settings.mask_names, settings.budget),
    )
    if conductor.coordinator is not None:
        known += (sha256_of(conductor.coordinator / PARAMETERS), conductor.rounds)
    return hashlib.blake2b(repr(known).encode(), digest_size=8).hexdigest()


def _described(profile: WorkerProfile) -> dict[str, object]:
    """All of a profile, in an order that is the same in every process: that of a set is not."""
    return {**asdict(profile), "capabilities": sorted(profile.capabilities)}


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
