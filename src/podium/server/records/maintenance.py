"""Runs that were cut off with their process are gone on with, by whichever server finds them first.

A run says in the store that it is running; where the process that performs it has been silent for
longer than its lease, or is known to be gone, a server takes the run over and carries it to its
end, with nobody waiting: whoever asked finds the answer on record. Steps that are done are not
asked again. Of several servers that find the same run, the store lets one take it.

Only a few are gone on with at a time, beside what clients ask for. A run that was taken over again
and again, and of which no step got done between, is what ends the processes, as far as anybody can
tell: it is ended as failed. A run that the server's own stop cuts off is left for the next one,
and one that an evolved coordinator led for whoever has that coordinator, as one that none led is
not gone on with by a coordinator (`podium.conductor.names`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from podium._util.process import this_process
from podium.client.client import AsyncPodium
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
from podium.core.pool import Pool
from podium.core.run import Run, timestamp
from podium.server.access import AccessPolicy
from podium.server.access.concurrency import ConcurrencyLimiter
from podium.server.api_error import ApiError
from podium.server.logs import LOGGER
from podium.server.records.metrics import Metrics
from podium.server.records.repository import RunRepository
from podium.store import AbandonedRun, RunStore
from podium.store.audit import AuditDetails

DELETE_SECONDS: Final = 600.0


async def delete_expired_runs(store: RunStore, days: float | None) -> None:
    """Delete what was held for long enough, and what is older than so many days, now and every
    ten minutes, until cancelled."""
    while True:
        await _told(store.delete_expired(), "runs that were only held")
        if days is not None:
            await delete_runs_before(store, datetime.now(UTC) - timedelta(days=days))
        await asyncio.sleep(DELETE_SECONDS)


async def delete_runs_before(store: RunStore, oldest: datetime) -> None:
    """Delete the runs that were begun before that moment."""
    await _told(store.delete_before(timestamp(oldest)), "old runs")


async def _told(deleting: Awaitable[int], what: str) -> None:
    """Say how many were deleted. A store that fails is tried again the next time; that must not
    stop the server."""
    try:
        count = await deleting
    except PodiumError as error:
        LOGGER.warning("%s were not deleted: %s", what, error)
        return
    if count:
        LOGGER.info("deleted %s", what, extra={"runs": count})


SEARCH_SECONDS: Final = 5.0
"""How often a server looks for runs that were cut off, or four times in a lease that is shorter."""

AT_ONCE: Final = 8
"""How many are gone on with at the same time."""

MOST_TAKEOVERS: Final = 5
"""How often a run is taken over without a step of it being done."""

LOOKED_AT: Final = 1000
"""How many that were cut off are looked at, at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What runs are gone on with: the server's own."""

    podium: AsyncPodium
    pool: Pool
    archive: RunRepository
    access: AccessPolicy
    limiter: ConcurrencyLimiter
    metrics: Metrics


class RunRecovery:
    """Goes on with runs that were cut off, in the background. Ended by `close`."""

    def __init__(self, parts: Parts, *, every_seconds: float = SEARCH_SECONDS) -> None:
        self._parts = parts
        self._keeper = parts.archive.keeper
        self._every_seconds = every_seconds
        self._going_on: dict[str, asyncio.Task[None]] = {}
        self._left_alone: set[str] = set()
        self._closed = False
        self._search: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now, and every so often."""
        self._search = asyncio.create_task(self._look_again_and_again())

    async def close(self) -> None:
        """Take nothing more over, and leave what goes on to others."""
        self._closed = True
        tasks = [*self._going_on.values(), *([self._search] if self._search is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _look_again_and_again(self) -> None:
        while True:
            try:
                await self._look()
            except PodiumError as error:
                LOGGER.warning("runs that were cut off could not be looked for: %s", error)
            await asyncio.sleep(self._every_seconds)

    async def _look(self) -> None:
        if len(self._going_on) >= AT_ONCE or self._parts.limiter.closed:
            return
        for found in await self._keeper.list_abandoned(LOOKED_AT):
            if len(self._going_on) >= AT_ONCE:
                return
            if found.id not in self._going_on and found.id not in self._left_alone:
                self._going_on[found.id] = asyncio.create_task(self._take_over(found))

    async def _take_over(self, found: AbandonedRun) -> None:
        """Carry the run to its end, whatever comes of that."""
        try:
            await self._go_on(found)
        except (Conflict, NotFound):
            return  # another was quicker, or it was deleted; who lost it later has said so
        except (ConfigError, UnreadableRun) as error:  # it may go on elsewhere
            self._left_alone.add(found.id)
            LOGGER.warning("cannot go on with %s, which was cut off: %s", found.id, error)
        except UsageError as error:  # nobody can go on with it
            await self._end(found, str(error))
        except ApiError as error:
            if error.reason == "unauthenticated":  # its key is good no longer
                await self._end(found, str(error))
            else:
                LOGGER.warning("cannot go on with %s yet: %s", found.id, error)
        except StoreError as error:  # the next look may find the store well again
            LOGGER.warning("cannot go on with %s yet: %s", found.id, error)
        except PodiumError as error:
            self._left_alone.add(found.id)
            LOGGER.warning("cannot go on with %s, which was cut off: %s", found.id, error)
        except Exception:  # noqa: BLE001 - one run must not end the search for others
            self._left_alone.add(found.id)
            LOGGER.exception("going on with %s, which was cut off, failed", found.id)
        finally:
            del self._going_on[found.id]

    async def _go_on(self, found: AbandonedRun) -> None:
        parts = self._parts
        run = await self._keeper.load(found.id)
        unknown = [name for name in run.pool.names if name not in parts.pool.names]
        if unknown:  # it is that of another program on the same store
            self._left_alone.add(found.id)
            LOGGER.info("left %s alone, whose worker %s is unknown here", found.id, unknown[0])
            return
        conductor = (await parts.podium.open()).assembly.conductor_for(run.tier)
        if unfit := resume_conflict(run, conductor.name):
            raise ConfigError(unfit)
        if found.takeovers >= MOST_TAKEOVERS:
            await self._end(
                found,
                f"its process ended {found.takeovers + 1} times before a step was done, so it is "
                f"not tried again",
            )
            return
        LOGGER.info("took over a run that was cut off", extra={"run": run.id})
        async with parts.access.account_for_run(run) as account:
            ended = await parts.podium.resume(
                run.id, account=account, emit=parts.archive.broadcast, takeover=True
            )
        parts.metrics.recovered.labels(ended.status).inc()
        parts.metrics.runs.labels(ended.status).inc()
        await self._enter(ended)

    async def _end(self, found: AbandonedRun, why: str) -> None:
        """Have the run ended as failed."""
        try:
            run = await self._keeper.claim(found.id, this_process(), takeover=True)
            await self._keeper.finish(replace(run, status="failed", error=why))
        except PodiumError as error:
            LOGGER.warning("%s could not be ended: %s", found.id, error)
            return
        LOGGER.warning("%s failed: %s", found.id, why)
        self._parts.metrics.recovered.labels("failed").inc()
        self._parts.metrics.runs.labels("failed").inc()
        await self._enter(replace(run, status="failed"))

    async def _enter(self, run: Run) -> None:
        """Enter in the audit log that the run was gone on with here, and what came of it."""
        facts: AuditDetails = {"process": this_process(), "status": run.status, "owner": run.owner}
        try:
            await self._parts.archive.audit.record_server_action("run recovered", run.id, facts)
        except PodiumError as error:
            LOGGER.warning("that %s was gone on with could not be entered: %s", run.id, error)
