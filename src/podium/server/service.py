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
from podium.core.errors import ConfigError, StoreError, WorkerError
from podium.core.pool import Pool, WorkerProfile
from podium.server.access import AccessPolicy
from podium.server.answers.gateway import Gateway
from podium.server.answers.result import StoredResponses
from podium.server.answers.tiers import TierHandler
from podium.server.api_error import ApiError
from podium.server.logs import LOGGER
from podium.server.model_catalog import ModelCatalog
from podium.server.records.audit import AuditRecorder
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.metrics import Metrics
from podium.server.records.repository import RunRepository
from podium.server.worker_statistics import RunMetricsCache

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
        loadable = [worker for worker in workers if isinstance(worker, LoadableWorker)]
        if loadable:
            self._task = asyncio.create_task(_load(loadable))

    async def stop(self) -> None:
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
    tier_handler: TierHandler
    gateway: Gateway
    limiter: ConcurrencyLimiter
    metrics: Metrics
    started: float
    disabled: DisabledWorkers
    run_metrics: RunMetricsCache = field(default_factory=RunMetricsCache)
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
    if ANY_ORIGIN in settings.cors and not settings.require_keys:
        raise ConfigError(
            "server.cors allows every origin, which requires API keys; set "
            "server.require_keys = true, or list the origins"
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
        tier_handler=TierHandler(podium, repository, responses, runtime),
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


RETRY_AFTER_SECONDS: Final = 2.0
"""Seconds after which a refused request may try again."""


class ConcurrencyLimiter:
    """Admits `in_flight` requests at a time, in the order of their arrival.

    `in_flight` counts the requests being served, `waiting` those in the queue; it is `closed` while
    the server shuts down and refuses new requests.
    """

    def __init__(self, in_flight: int, queue: int) -> None:
        self.in_flight = 0
        self.waiting = 0
        self.closed = False
        self._slots = asyncio.Semaphore(in_flight)
        self._max_waiting = queue
        self._idle = asyncio.Event()

    async def acquire(self) -> None:
        """Wait for a slot; raises `ApiError` overloaded if the queue is full."""
        if self.closed:
            raise _overloaded_error("the server is shutting down; try again")
        if self._slots.locked():
            if self.waiting >= self._max_waiting:
                raise _overloaded_error(
                    f"too many requests: {self.in_flight} in flight and {self.waiting} queued; "
                    f"try again later"
                )
            self.waiting += 1
            try:
                await self._slots.acquire()
            except asyncio.CancelledError:
                self.waiting -= 1
                self._report_idle()
                raise
            self.waiting -= 1
        else:
            await self._slots.acquire()
        self.in_flight += 1

    def release(self) -> None:
        """Pass the slot to the first request in the queue, or free it."""
        self.in_flight -= 1
        self._slots.release()
        self._report_idle()

    def _report_idle(self) -> None:
        if not self.in_flight and not self.waiting:
            self._idle.set()

    async def close(self, seconds: float) -> bool:
        """Refuse new requests and wait up to `seconds` for the others; True if all ended."""
        self.closed = True
        if not self.in_flight and not self.waiting:
            return True
        self._idle.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


def _overloaded_error(message: str) -> ApiError:
    return ApiError("overloaded", message, retry_after=RETRY_AFTER_SECONDS)


REFRESH_SECONDS: Final = 5.0


class DisabledWorkers:
    """The names of disabled workers, read again every few seconds."""

    def __init__(self, store: BufferedRunStore) -> None:
        self._store = store
        self.names: frozenset[str] = frozenset()

    async def switch(self, worker: str, *, on: bool) -> None:
        """Enable or disable a worker; raises `ConfigError` without a database."""
        stored = (await self._store.flush()).disabled_workers
        await (stored.enable(worker) if on else stored.disable(worker))
        self.names = await stored.names()

    async def watch(self) -> None:
        """Follow what other servers of the store do, until cancelled."""
        while True:
            try:
                self.names = await (await self._store.flush()).disabled_workers.names()
            except ConfigError:  # no database
                return
            except StoreError:
                pass  # keep the names until the store is back
            await asyncio.sleep(REFRESH_SECONDS)
