"""The journal writes the events of a run to a store, in order, and a heartbeat renews its lease.

The engine must not wait, so events enter a bounded backlog that a task writes out. When the backlog
is full or a write fails, further steps are skipped and the end of the run writes the run whole: a
slow or broken store costs at most what a crash would need to resume.

    journal = Journal(store)
    run = await podium.run(..., emit=journal.emit)
    await journal.close()
    if journal.error: print(f"this run was not stored: {journal.error}")
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from podium.core.errors import PodiumError, RunTakenOver, StoreError, UsageError
from podium.core.events import Event, Planned, RoundDone, RunDone, RunStarted, StepDone, StepNoted
from podium.store.base import LEASE_SECONDS, RunStore

BACKLOG: Final = 256
"""The most writes that may wait; a run makes a few dozen."""

StoredEvent = RunStarted | Planned | StepNoted | StepDone | RoundDone | RunDone


class Journal:
    """Writes one run as it happens; nested runs are part of its steps. `on_lost` is called once if
    another process takes the run over."""

    def __init__(
        self,
        store: RunStore,
        *,
        backlog: int = BACKLOG,
        on_lost: Callable[[RunTakenOver], None] | None = None,
        run_id: str | None = None,
    ) -> None:
        self._store = store
        self._on_lost = on_lost
        self._taken_over: RunTakenOver | None = None
        self._limit = backlog
        self._backlog: deque[StoredEvent] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._run_id = run_id
        self._begun = False
        self._behind = False
        self._closed = False
        self._error: StoreError | None = None

    @property
    def run_id(self) -> str | None:
        """The id of the run, once it is known."""
        return self._run_id

    @property
    def error(self) -> StoreError | None:
        """The first failed write; None again once the end of the run is written."""
        return self._error

    @property
    def taken_over(self) -> RunTakenOver | None:
        """The error if another process has taken the run over; nothing more is written then."""
        return self._taken_over

    def require_begun(self) -> None:
        """Raise the error, and stop writing, if not even the beginning of the run was written."""
        if not self._begun and self._error is not None:
            self._closed = True
            raise self._error

    def lose(self, error: RunTakenOver) -> None:
        """Stop writing, because another process has taken the run over."""
        self._closed = True
        self._backlog.clear()
        if self._taken_over is None:
            self._taken_over = error
            if self._on_lost is not None:
                self._on_lost(error)

    def emit(self, event: Event) -> None:
        """Queue an event. Call it on the event loop."""
        if self._closed or not isinstance(event, StoredEvent):
            return
        if isinstance(event, RunStarted) and event.parent is None:
            self._follow(event.run_id)
        if event.run_id != self._run_id:
            return
        if isinstance(event, RunDone):
            self._backlog.clear()  # the end includes everything still waiting
        elif self._behind or len(self._backlog) >= self._limit:
            self._behind = True
            return
        self._backlog.append(event)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write_backlog())

    async def drain(self) -> None:
        """Wait until the queued events are persisted or their writes have failed."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait({self._writer})

    async def close(self) -> None:
        """Drain and ignore further events, so that the store may be closed."""
        self._closed = True
        await self.drain()

    def _follow(self, run_id: str) -> None:
        if self._run_id not in (None, run_id):
            raise UsageError(
                f"this journal writes run {self._run_id}, not {run_id}; use one journal per run"
            )
        self._run_id = run_id

    async def _write_backlog(self) -> None:
        while self._backlog:
            event = self._backlog.popleft()
            try:
                await self._write(event)
            except RunTakenOver as error:
                self.lose(error)
            except StoreError as error:
                self._fall_behind(error)
            # A bug of a third-party store must not cost the answer either.
            except Exception as error:  # noqa: BLE001
                self._fall_behind(StoreError(f"the store failed unexpectedly: {error!r}"))

    async def _write(self, event: StoredEvent) -> None:
        match event:
            case RunStarted(run=run):
                await self._store.begin(run)
                self._begun = True
            case Planned(run_id=run_id, round=round_) | RoundDone(run_id=run_id, round=round_):
                await self._store.save_round(run_id, round_)
            case StepDone(run_id=run_id, step=step) | StepNoted(run_id=run_id, step=step):
                await self._store.save_step(run_id, step)
            case RunDone(run=run):
                await self._store.finish(run)
                self._error = None

    def _fall_behind(self, error: StoreError) -> None:
        self._behind = True
        self._error = self._error or error
        # Queued events build on what could not be written; only the end is complete in itself.
        self._backlog = deque(event for event in self._backlog if isinstance(event, RunDone))


log = logging.getLogger("podium")

HEARTBEATS_PER_LEASE: Final = 4
"""So that some heartbeats may be late or fail."""


class Heartbeat:
    """Renews the leases of the runs of its journals."""

    def __init__(
        self, store: RunStore, *, seconds: float = LEASE_SECONDS / HEARTBEATS_PER_LEASE
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._journals: set[Journal] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._write_task: asyncio.Task[None] | None = None

    @contextmanager
    def of(self, journal: Journal) -> Iterator[None]:
        """Renew the lease of the journal's run within the block."""
        self._journals.add(journal)
        if self._timer is None:
            self._schedule()
        try:
            yield
        finally:
            self._journals.discard(journal)
            if not self._journals and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    async def close(self) -> None:
        """Wait for a heartbeat in progress, so that the store may be closed."""
        if self._write_task is not None:
            await asyncio.wait({self._write_task})

    def _schedule(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._tick)

    def _tick(self) -> None:
        if self._write_task is None or self._write_task.done():
            self._write_task = asyncio.get_running_loop().create_task(self._write())
        self._schedule()

    async def _write(self) -> None:
        runs = [journal.run_id for journal in self._journals if journal.run_id is not None]
        try:
            lost = await self._store.heartbeat(runs)
        except PodiumError as error:
            log.warning("cannot write the heartbeat of runs: %s", error)
            return
        for journal in tuple(self._journals):
            if journal.run_id in lost:
                journal.lose(RunTakenOver(f"{journal.run_id} was taken over by another process"))
