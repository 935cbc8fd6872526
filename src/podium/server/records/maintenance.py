"""Background maintenance of stored runs: resume abandoned ones, delete expired ones.

A run whose process died, or missed its heartbeat for the whole lease, is claimed by one server and
resumed; finished steps are not repeated. A run that was claimed again and again without finishing
a step probably kills its process: it is ended as failed. A run that this server's own shutdown
interrupts is left to the next one, as is a run of a coordinator that this server does not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from podium._util.process import this_process
from podium.conductors.builtin import resume_conflict
from podium.core.errors import (
    ConfigError,
    Conflict,
    NotFound,
    PodiumError,
    StoreError,
    UnreadableRun,
    UsageError,
)
from podium.core.run import Run, timestamp
from podium.server.api_error import ApiError
from podium.server.logs import LOGGER
from podium.server.service import Service
from podium.store import AbandonedRun, RunStore
from podium.store.audit import AuditDetails

DELETE_SECONDS: Final = 600.0


async def delete_expired_runs(store: RunStore, days: float | None) -> None:
    """Delete held runs whose time is over and runs older than `days`, every ten minutes."""
    while True:
        await _log_deleted(store.delete_expired(), "held runs")
        if days is not None:
            await delete_runs_before(store, datetime.now(UTC) - timedelta(days=days))
        await asyncio.sleep(DELETE_SECONDS)


async def delete_runs_before(store: RunStore, oldest: datetime) -> None:
    await _log_deleted(store.delete_before(timestamp(oldest)), "old runs")


async def _log_deleted(deleting: Awaitable[int], what: str) -> None:
    """Log how many were deleted. A failing store is retried the next time."""
    try:
        count = await deleting
    except PodiumError as error:
        LOGGER.warning("%s were not deleted: %s", what, error)
        return
    if count:
        LOGGER.info("deleted %s", what, extra={"runs": count})


SEARCH_SECONDS: Final = 5.0
"""The interval of the search for abandoned runs; a quarter of the lease if that is shorter."""

MAX_CONCURRENT: Final = 8

MAX_TAKEOVERS: Final = 5
"""Takeovers of a run without a finished step before it fails."""

SEARCH_LIMIT: Final = 1000


class RunRecovery:
    """Resumes abandoned runs in the background until `close`."""

    def __init__(self, service: Service, *, every_seconds: float = SEARCH_SECONDS) -> None:
        self._service = service
        self._store = service.store
        self._every_seconds = every_seconds
        self._resuming: dict[str, asyncio.Task[None]] = {}
        self._skipped: set[str] = set()
        self._closed = False
        self._search: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Search now and at every interval."""
        self._search = asyncio.create_task(self._search_loop())

    async def close(self) -> None:
        """Stop; what is being resumed is left to other servers."""
        self._closed = True
        tasks = [*self._resuming.values(), *([self._search] if self._search is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _search_loop(self) -> None:
        while True:
            try:
                await self._search_once()
            except PodiumError as error:
                LOGGER.warning("cannot search for abandoned runs: %s", error)
            await asyncio.sleep(self._every_seconds)

    async def _search_once(self) -> None:
        if len(self._resuming) >= MAX_CONCURRENT or self._service.limiter.closed:
            return
        for found in await self._store.list_abandoned(SEARCH_LIMIT):
            if len(self._resuming) >= MAX_CONCURRENT:
                return
            if found.id not in self._resuming and found.id not in self._skipped:
                self._resuming[found.id] = asyncio.create_task(self._take_over(found))

    async def _take_over(self, found: AbandonedRun) -> None:
        """Resume the run, and handle every error."""
        try:
            await self._resume(found)
        except (Conflict, NotFound):
            return  # another server was faster, or it was deleted
        except (ConfigError, UnreadableRun) as error:  # another server may be able to
            self._skipped.add(found.id)
            LOGGER.warning("cannot resume %s: %s", found.id, error)
        except UsageError as error:  # no server can resume it
            await self._end(found, str(error))
        except ApiError as error:
            if error.reason == "unauthenticated":  # its key was revoked or has expired
                await self._end(found, str(error))
            else:
                LOGGER.warning("cannot resume %s yet: %s", found.id, error)
        except StoreError as error:  # the next search may succeed
            LOGGER.warning("cannot resume %s yet: %s", found.id, error)
        except PodiumError as error:
            self._skipped.add(found.id)
            LOGGER.warning("cannot resume %s: %s", found.id, error)
        except Exception:  # noqa: BLE001 - one run must not end the search for others
            self._skipped.add(found.id)
            LOGGER.exception("resuming %s failed", found.id)
        finally:
            del self._resuming[found.id]

    async def _resume(self, found: AbandonedRun) -> None:
        service = self._service
        run = await self._store.load(found.id)
        unknown = [name for name in run.pool.names if name not in service.pool.names]
        if unknown:  # it belongs to another program with the same store
            self._skipped.add(found.id)
            LOGGER.info("skipped %s: its worker %s is unknown here", found.id, unknown[0])
            return
        conductor = (await service.podium.open()).conductor_for(run.tier)
        if unfit := resume_conflict(run, conductor.name):
            raise ConfigError(unfit)
        if found.takeovers >= MAX_TAKEOVERS:
            await self._end(
                found,
                f"its process died {found.takeovers + 1} times before a step was done",
            )
            return
        LOGGER.info("resumed an abandoned run", extra={"run": run.id})
        async with service.access.shared_budget_for_run(run) as shared_budget:
            ended = await service.podium.resume(
                run.id,
                shared_budget=shared_budget,
                emit=service.repository.broadcast,
                takeover=True,
            )
        service.metrics.recovered.labels(ended.status).inc()
        service.metrics.runs.labels(ended.status).inc()
        await self._audit(ended)

    async def _end(self, found: AbandonedRun, reason: str) -> None:
        try:
            run = await self._store.claim(found.id, this_process(), takeover=True)
            await self._store.finish(replace(run, status="failed", error=reason))
        except PodiumError as error:
            LOGGER.warning("%s could not be ended: %s", found.id, error)
            return
        LOGGER.warning("%s failed: %s", found.id, reason)
        self._service.metrics.recovered.labels("failed").inc()
        self._service.metrics.runs.labels("failed").inc()
        await self._audit(replace(run, status="failed"))

    async def _audit(self, run: Run) -> None:
        """Record in the audit log that the run was resumed here, and its status."""
        facts: AuditDetails = {"process": this_process(), "status": run.status, "owner": run.owner}
        try:
            await self._service.audit.record_server_action("run recovered", run.id, facts)
        except PodiumError as error:
            LOGGER.warning("cannot record the recovery of %s: %s", run.id, error)
