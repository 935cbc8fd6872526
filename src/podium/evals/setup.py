"""The workers and conductors that take part in an evaluation.

    async with open_setup(settings, os.environ, cache=cache) as setup:
        ...

Workers are those of the settings, or the études' perfect ones. A cache may answer every call, the
conductor's included. Runs of an evaluation are not written to the store.
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

from podium._util.files import sha256_file
from podium._util.lab import lab_extra
from podium._version import __version__
from podium.client.assembly import assemble, connect_endpoints, default_options
from podium.conductors import Conductor, ModelConductor, PromptStyle
from podium.conductors.evolved_turns import PARAMETERS
from podium.config import ConductorSettings, Settings, WorkerSettings
from podium.core.pool import Pool, WorkerProfile
from podium.core.worker import Worker
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import Options
from podium.evals.sample import CountedWorker, EvalContext, RepeatCachedWorker
from podium.workers import Http
from podium.workers.cached import ReplyCache
from podium.workers.local import weights

ADAPTER_OPTIONS: Final = ("adapter", "adapter_scale")
"""A worker's options that turn a base model into a trained one."""

LLAMACPP_SLOTS: Final = 4
"""Requests that llama.cpp works on at a time."""

BASELINE_PROMPTS: Final[tuple[PromptStyle, ...]] = ("compact", "full")
"""Prompts for a model that was not trained to plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSetup:
    """Workers by name with their pool, the conductor, and options for every run.

    `baseline_conductors` are the conductor's model without its training, by prompt; empty if the
    conductor is no model. `calls` counts calls by worker. `fingerprint` changes with any worker,
    model or adapter.
    """

    workers: Mapping[str, Worker]
    pool: Pool
    conductor: Conductor
    baseline_conductors: Mapping[str, Conductor] = field(default_factory=dict)
    options: Options = Options()
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    calls: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""

    def context(self, seed: int) -> EvalContext:
        call_policy = CallPolicy(self.retry)
        return EvalContext(
            workers=self.workers, call_policy=call_policy, options=self.options, seed=seed
        )


@asynccontextmanager
async def open_setup(
    settings: Settings,
    environment: Mapping[str, str],
    *,
    cache: ReplyCache | None = None,
    oracle: bool = False,
    baseline_conductor: WorkerSettings | None = None,
) -> AsyncIterator[EvalSetup]:
    """Connect the workers and the conductor, and close them at the end.

    With `oracle`, perfect workers replace the pool's. `baseline_conductor` plans without training;
    by default it is the conductor's model without its adapter.
    """
    calls = Counter[str]()

    def counted(worker: Worker, fingerprint: str) -> Worker:
        worker = CountedWorker(worker, calls)
        return (
            worker if cache is None else RepeatCachedWorker(worker, cache, fingerprint=fingerprint)
        )

    async with AsyncExitStack() as stack:
        http = Http()
        stack.push_async_callback(http.close)
        assembly = assemble(settings, environment, http)
        stack.push_async_callback(assembly.close)
        baseline_conductors = dict[str, Conductor]()
        base = baseline_conductor or remove_adapter(settings.conductor.worker)
        if base is not None:
            base = _limit_concurrency(base)
            planner = connect_endpoints(base, environment, http)
            if hasattr(planner, "close"):
                stack.push_async_callback(planner.close)
            baseline_conductors = _baseline_conductors(
                counted(planner, worker_fingerprint(base)), settings.conductor
            )
        conductor, trained = assembly.conductor, settings.conductor.worker
        if isinstance(conductor, ModelConductor) and trained is not None:
            conductor.worker = counted(conductor.worker, worker_fingerprint(trained))
        if oracle:
            with lab_extra():
                from podium_lab.etudes.workers import oracle_workers
            workers: Sequence[Worker] = [
                counted(worker, __version__) for worker in oracle_workers()
            ]
            pool = Pool(tuple(worker.profile for worker in workers))
        else:
            workers = [
                counted(worker, worker_fingerprint(settings[worker.profile.name]))
                for worker in assembly.workers
            ]
            pool = assembly.pool
        yield EvalSetup(
            workers={worker.profile.name: worker for worker in workers},
            pool=pool,
            conductor=conductor,
            baseline_conductors=baseline_conductors,
            options=replace(default_options(settings), budget=settings.budget),
            retry=settings.retry,
            calls=calls,
            fingerprint=_fingerprint(settings, base, oracle=oracle),
        )


def _fingerprint(settings: Settings, base: WorkerSettings | None, *, oracle: bool) -> str:
    """Hash everything that decides the replies and plans of an evaluation."""
    conductor, flow = settings.conductor, settings.conductor.workflow
    workers = () if oracle else settings.workers
    used = [worker for worker in (*workers, conductor.worker, base) if worker is not None]
    known: tuple[object, ...] = (
        [(_profile_document(worker.profile), worker_fingerprint(worker)) for worker in used],
        (conductor.kind, conductor.max_steps, conductor.temperature, conductor.prompt),
        (conductor.few_shot, conductor.fallback, flow and sha256_file(flow)),
        (settings.share_question, settings.mask_names, settings.budget),
    )
    if conductor.coordinator is not None:
        known += (sha256_file(conductor.coordinator / PARAMETERS), conductor.rounds)
    return hashlib.blake2b(repr(known).encode(), digest_size=8).hexdigest()


def _profile_document(profile: WorkerProfile) -> dict[str, object]:
    """Return a profile in a stable order: that of a set differs between processes."""
    return {**asdict(profile), "capabilities": sorted(profile.capabilities)}


def worker_fingerprint(worker: WorkerSettings) -> str:
    """Return what decides a worker's replies besides its profile.

    That includes the content of its adapter: the next training writes another one to the same
    name.
    """
    adapter = worker.options.get("adapter")
    sums = [sha256_file(file) for file in _adapter_files(str(adapter), worker)] if adapter else []
    return json.dumps([worker.base_url, dict(worker.options), sums], sort_keys=True, default=str)


def _adapter_files(adapter: str, worker: WorkerSettings) -> list[Path]:
    path = Path(adapter).expanduser()
    if worker.profile.provider == "llamacpp":
        path = weights.find(adapter).path
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return [path] if path.is_file() else []


def remove_adapter(trained: WorkerSettings | None) -> WorkerSettings | None:
    if trained is None:
        return None
    bare = {key: value for key, value in trained.options.items() if key not in ADAPTER_OPTIONS}
    profile = replace(trained.profile, name=f"{trained.profile.name}-baseline")
    return replace(trained, profile=profile, options=bare)


def _limit_concurrency(worker: WorkerSettings) -> WorkerSettings:
    """Queue calls before llama.cpp: the time limit of a call runs while it waits inside."""
    profile = worker.profile
    if profile.provider != "llamacpp" or profile.limits.concurrency is not None:
        return worker
    limits = replace(profile.limits, concurrency=LLAMACPP_SLOTS)
    return replace(worker, profile=replace(profile, limits=limits))


def _baseline_conductors(worker: Worker, conductor: ConductorSettings) -> dict[str, Conductor]:
    return {
        prompt: ModelConductor(
            worker,
            prompt=prompt,
            temperature=conductor.temperature,
            fallback=conductor.fallback,
            name=f"baseline-conductor:{prompt}",
        )
        for prompt in BASELINE_PROMPTS
    }
