"""What the endpoints of one server share: who may come in, what answers, and what is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from podium.client.client import AsyncPodium
from podium.config import ServerSettings, Settings
from podium.core.errors import WorkerError
from podium.core.pool import Pool, WorkerProfile
from podium.server.access import AccessPolicy, Principal
from podium.server.access.concurrency import ConcurrencyLimiter
from podium.server.answers.gateway import Gateway
from podium.server.answers.result import ApiResult, StreamSink
from podium.server.answers.tiers import Tiers
from podium.server.api_error import ApiError
from podium.server.dialects.request import ApiRequest
from podium.server.logs import LOGGER
from podium.server.model_catalog import ModelCatalog, ModelTarget
from podium.server.records.audit import AuditRecorder
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.metrics import Metrics, RequestCost
from podium.server.records.repository import RunRepository
from podium.server.statistics.workers import RunDigestCache

if TYPE_CHECKING:
    from podium.server.records.traces import TraceRecorder


@runtime_checkable
class LoadableWorker(Protocol):
    """A worker, or who reads for a conductor, that has to load something before it can answer."""

    profile: WorkerProfile

    async def load(self) -> None:
        """Load it, unless it is loaded; raises `WorkerError`."""
        ...


class ModelLoader:
    """What is loaded once, in the background."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_going_on(self) -> bool:
        """Whether something is being loaded."""
        return self._task is not None and not self._task.done()

    def begin(self, workers: Iterable[object]) -> None:
        """Begin to load what these workers need."""
        loading = [worker for worker in workers if isinstance(worker, LoadableWorker)]
        if loading:
            self._task = asyncio.create_task(_load(loading))

    async def stop(self) -> None:
        """Wait for it no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


async def _load(workers: list[LoadableWorker]) -> None:
    """One after another: most of them share what is loaded."""
    models = ", ".join(dict.fromkeys(worker.profile.model for worker in workers))
    LOGGER.info("loading %s; ready when that is done", models)
    began, problems = time.perf_counter(), 0
    for worker in workers:
        try:
            await worker.load()
        except WorkerError as error:
            problems += 1
            LOGGER.warning("%s will be loaded when it is asked: %s", worker.profile.name, error)
    if not problems:
        LOGGER.info("loaded %s in %.1f s; ready", models, time.perf_counter() - began)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One server at work. Made by `open_service`."""

    podium: AsyncPodium
    settings: ServerSettings
    pool: Pool
    catalog: ModelCatalog
    access: AccessPolicy
    store: BufferedRunStore
    repository: RunRepository
    tiers: Tiers
    gateway: Gateway
    limiter: ConcurrencyLimiter
    metrics: Metrics
    started: float
    digests: RunDigestCache = field(default_factory=RunDigestCache)
    traces: TraceRecorder | None = None
    loader: ModelLoader = field(default_factory=ModelLoader)
    audit: AuditRecorder = field(default_factory=AuditRecorder)

    async def answer(
        self,
        request: ApiRequest,
        principal: Principal,
        target: ModelTarget,
        cost: RequestCost,
        sink: StreamSink | None = None,
    ) -> ApiResult:
        """Answer by a run, or by the worker that was asked for; raises `ApiError`."""
        if target.worker is not None:
            return await self.gateway.answer(request, principal, target.worker, cost, sink)
        assert target.tier is not None, "what is no worker is a tier"
        return await self.tiers.answer(request, principal, target.tier, cost, sink)

    async def settle(self, principal: Principal, target: ModelTarget, cost: RequestCost) -> None:
        """Charge whoever asked, also when the request was cut off meanwhile."""
        await self.access.settle(
            principal,
            model=target.name,
            usage=cost.usage,
            orchestration=cost.orchestration,
            cost_usd=cost.cost_usd,
            run=cost.run,
        )
        for kind in ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"):
            amount = getattr(cost.usage, kind)
            if amount:
                self.metrics.tokens.labels(target.name, kind.removesuffix("_tokens")).inc(amount)
        if cost.cost_usd:
            self.metrics.cost.labels(target.name).inc(cost.cost_usd)
        if self.traces is not None:
            self.traces.record_cost(target, cost)


async def open_service(
    podium: AsyncPodium,
    store: BufferedRunStore,
    access: AccessPolicy,
    settings: ServerSettings,
    traces: TraceRecorder | None = None,
    configured: Settings | None = None,
    audit: AuditRecorder | None = None,
) -> Service:
    """The service over a Podium whose store is the store. `configured` is what that Podium was
    made from, where it was; `audit` is None where administrative acts are not entered."""
    audit = audit or AuditRecorder()
    runtime = await podium.open()
    assembly, options = runtime.assembly, runtime.options
    pool, conductor, mini = assembly.pool, assembly.conductor, assembly.router()
    repository = RunRepository(store, audit)
    repository.broadcast.listener = traces
    call_policy, metrics = runtime.call_policy, Metrics()
    call_policy.breakers.on_opening = partial(_left_alone, metrics)
    tiers = Tiers(
        podium,
        repository,
        pool=pool,
        conductor=conductor,
        options=options,
        excludable=runtime.excludable_names,
        mini=mini,
    )
    return Service(
        podium=podium,
        settings=settings,
        pool=pool,
        catalog=ModelCatalog(assembly.workers, pool, conductor, options, configured, mini),
        access=access,
        store=store,
        repository=repository,
        tiers=tiers,
        gateway=Gateway(
            call_policy,
            options.budget,
            runtime.excludable_names,
            guardrails=assembly.guardrails,
            workers=assembly.workers,
        ),
        limiter=ConcurrencyLimiter(settings.in_flight, settings.queue),
        metrics=metrics,
        started=time.time(),
        traces=traces,
        audit=audit,
    )


def _left_alone(metrics: Metrics, worker: str, error: WorkerError) -> None:
    """A worker's breaker has opened."""
    metrics.openings.labels(worker).inc()
    LOGGER.warning("%s has failed too often and is left alone: %s", worker, error)


class ServiceHolder:
    """Where the service is found. There is none while the server starts, and none at its end."""

    def __init__(self) -> None:
        self.service: Service | None = None

    def __call__(self) -> Service:
        """The service."""
        if self.service is None:
            raise ApiError("overloaded", "this server is not ready yet; try again", retry_after=1)
        return self.service
