"""The service behind the endpoints: access, catalog, tiers, gateway, store and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from podium.client.client import AsyncPodium
from podium.config import ServerSettings, Settings
from podium.core.errors import ConfigError, WorkerError
from podium.core.pool import Pool, WorkerProfile
from podium.server.access import AccessPolicy
from podium.server.access.concurrency import ConcurrencyLimiter
from podium.server.answers.gateway import Gateway
from podium.server.answers.stored_responses import StoredResponses
from podium.server.answers.tiers import Tiers
from podium.server.api_error import ApiError
from podium.server.logs import LOGGER
from podium.server.model_catalog import ModelCatalog
from podium.server.records.audit import AuditRecorder
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.disabled_workers import DisabledWorkers
from podium.server.records.metrics import Metrics
from podium.server.records.repository import RunRepository
from podium.server.worker_statistics import RunDigestCache

if TYPE_CHECKING:
    from podium.server.records.traces import TraceRecorder


ANY_ORIGIN: Final = "*"


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
    responses: StoredResponses
    tiers: Tiers
    gateway: Gateway
    limiter: ConcurrencyLimiter
    metrics: Metrics
    started: float
    disabled: DisabledWorkers
    digests: RunDigestCache = field(default_factory=RunDigestCache)
    traces: TraceRecorder | None = None
    loader: ModelLoader = field(default_factory=ModelLoader)
    audit: AuditRecorder = field(default_factory=AuditRecorder)


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
    if ANY_ORIGIN in settings.cors and not settings.keys:
        raise ConfigError(
            "server.cors allows every origin, which requires API keys; set server.keys = true, or "
            "list the origins"
        )
    runtime = await podium.open()
    metrics = Metrics()
    runtime.call_policy.waits_for_circuits = False
    runtime.call_policy.breakers.on_opening = partial(_report_open_breaker, metrics)
    repository = RunRepository(store, audit)
    repository.broadcast.listener = traces
    responses = StoredResponses(repository, has_guardrails=bool(runtime.assembly.guardrails))
    return Service(
        podium=podium,
        settings=settings,
        pool=runtime.assembly.pool,
        catalog=ModelCatalog(runtime.assembly, runtime.options, configured),
        access=access,
        store=store,
        repository=repository,
        responses=responses,
        tiers=Tiers(podium, repository, responses, runtime),
        gateway=Gateway(runtime, responses),
        limiter=ConcurrencyLimiter(settings.in_flight, settings.queue),
        metrics=metrics,
        started=time.time(),
        disabled=DisabledWorkers(store),
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
