"""The service behind the endpoints: access, catalog, tiers, gateway, store and metrics."""

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
    """A worker or reader that loads a model before its first reply."""

    profile: WorkerProfile

    async def load(self) -> None:
        """Load the model unless it is loaded; raises `WorkerError`."""
        ...


class ModelLoader:
    """Loads local models in the background, so that the first request need not wait for them."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    @property
    def is_loading(self) -> bool:
        """True while models are being loaded; the server is not ready yet."""
        return self._task is not None and not self._task.done()

    def begin(self, workers: Iterable[object]) -> None:
        """Start loading the models of these workers."""
        loadable = [worker for worker in workers if isinstance(worker, LoadableWorker)]
        if loadable:
            self._task = asyncio.create_task(_load(loadable))

    async def stop(self) -> None:
        """Cancel loading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


async def _load(workers: list[LoadableWorker]) -> None:
    """Load one after another: most of them share a model."""
    models = ", ".join(dict.fromkeys(worker.profile.model for worker in workers))
    LOGGER.info("loading %s", models)
    started, failures = time.perf_counter(), 0
    for worker in workers:
        try:
            await worker.load()
        except WorkerError as error:
            failures += 1
            LOGGER.warning(
                "cannot load %s now, retrying on first use: %s", worker.profile.name, error
            )
    if not failures:
        LOGGER.info("loaded %s in %.1f s; ready", models, time.perf_counter() - started)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of one server. Made by `open_service`."""

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
        """Answer with a run of the tier or a reply of the worker; raises `ApiError`."""
        if target.worker is not None:
            return await self.gateway.answer(request, principal, target.worker, cost, sink)
        assert target.tier is not None, "a target is a worker or a tier"
        return await self.tiers.answer(request, principal, target.tier, cost, sink)

    async def settle(self, principal: Principal, target: ModelTarget, cost: RequestCost) -> None:
        """Charge the request, even if it was cut off."""
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
    """Open the service over a Podium that uses this store.

    `configured` are the settings that the Podium was made from, if any. Without `audit`,
    administrative actions are not recorded.
    """
    audit = audit or AuditRecorder()
    runtime = await podium.open()
    metrics = Metrics()
    runtime.call_policy.breakers.on_opening = partial(_report_open_breaker, metrics)
    repository = RunRepository(store, audit)
    repository.broadcast.listener = traces
    return Service(
        podium=podium,
        settings=settings,
        pool=runtime.assembly.pool,
        catalog=ModelCatalog(runtime.assembly, runtime.options, configured),
        access=access,
        store=store,
        repository=repository,
        tiers=Tiers(podium, repository, runtime),
        gateway=Gateway(runtime),
        limiter=ConcurrencyLimiter(settings.in_flight, settings.queue),
        metrics=metrics,
        started=time.time(),
        traces=traces,
        audit=audit,
    )


def _report_open_breaker(metrics: Metrics, worker: str, error: WorkerError) -> None:
    metrics.openings.labels(worker).inc()
    LOGGER.warning("circuit breaker of %s opened after repeated failures: %s", worker, error)


class ServiceHolder:
    """Holds the service; None while the server starts and after it has stopped."""

    def __init__(self) -> None:
        self.service: Service | None = None

    def __call__(self) -> Service:
        """Return the service; raises `ApiError` overloaded if there is none."""
        if self.service is None:
            raise ApiError("overloaded", "the server is starting; try again", retry_after=1)
        return self.service
