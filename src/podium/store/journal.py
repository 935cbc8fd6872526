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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from podium.core.errors import PodiumError, RunTakenOver, StoreError, UsageError
from podium.core.events import (
    Emit,
    Event,
    RoundDone,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDone,
    StepProgress,
)
from podium.core.run import Run
from podium.store.base import LEASE_SECONDS, RunStore

log = logging.getLogger("podium")

BACKLOG: Final = 256
"""The most writes that may wait; a run makes a few dozen."""

StoredEvent = RunStarted | RoundPlanned | StepProgress | StepDone | RoundDone | RunDone


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
        self.taken_over: RunTakenOver | None = None
        """The error if another process has taken the run over; nothing more is written then."""
        self._limit = backlog
        self._backlog: deque[StoredEvent] = deque()
        self._writer: asyncio.Task[None] | None = None
        self.run_id = run_id
        self._begun = False
        self._behind = False
        self._closed = False
        self.error: StoreError | None = None
        """The first failed write; None again once the end of the run is written."""

    def require_begun(self) -> None:
        """Raise the error, and stop writing, if not even the beginning of the run was written."""
        if not self._begun and self.error is not None:
            self._closed = True
            raise self.error

    def mark_taken_over(self, error: RunTakenOver) -> None:
        """Stop writing, because another process has taken the run over."""
        self._closed = True
        self._backlog.clear()
        if self.taken_over is None:
            self.taken_over = error
            if self._on_lost is not None:
                self._on_lost(error)

    def emit(self, event: Event) -> None:
        """Queue an event. Call it on the event loop."""
        if self._closed or not isinstance(event, StoredEvent):
            return
        run_id = event.run.id if isinstance(event, RunStarted | RunDone) else event.run_id
        if isinstance(event, RunStarted) and event.parent is None:
            self._follow(run_id)
        if run_id != self.run_id:
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
        if self.run_id not in (None, run_id):
            raise UsageError(
                f"this journal writes run {self.run_id}, not {run_id}; use one journal per run"
            )
        self.run_id = run_id

    async def _write_backlog(self) -> None:
        while self._backlog:
            event = self._backlog.popleft()
            try:
                await self._write(event)
            except RunTakenOver as error:
                self.mark_taken_over(error)
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
            case RoundPlanned(run_id=run_id, round=round_) | RoundDone(run_id=run_id, round=round_):
                await self._store.save(run_id, round_)
            case StepDone(run_id=run_id, step=step) | StepProgress(run_id=run_id, step=step):
                await self._store.save(run_id, step)
            case RunDone(run=run):
                await self._store.finish(run)
                self.error = None

    def _fall_behind(self, error: StoreError) -> None:
        self._behind = True
        self.error = self.error or error
        # Queued events build on what could not be written; only the end is complete in itself.
        self._backlog = deque(event for event in self._backlog if isinstance(event, RunDone))


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
    def keep_alive(self, journal: Journal) -> Iterator[None]:
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
                journal.mark_taken_over(
                    RunTakenOver(f"{journal.run_id} was taken over by another process")
                )


class RunSink(NamedTuple):
    """Where a run's events go.

    `persist`, where set, waits until events are persisted. It raises `StoreError` for a new run
    that cannot be written.
    """

    emit: Emit
    persist: Callable[[], Awaitable[None]] | None


@asynccontextmanager
async def journal_events(
    store: RunStore,
    heartbeat: Heartbeat,
    emit: Emit | None,
    *,
    claimed: Run | None = None,
    leave_running_on_cancel: bool = False,
) -> AsyncIterator[RunSink]:
    """Send a run's events to the store and to `emit`, with a heartbeat until the run is kept.

    If another process takes the run over, it is stopped here and `RunTakenOver` is raised, however
    far it came. `claimed` is a run that is resumed; it is released if it ends before it starts.
    With `leave_running_on_cancel`, a cancelled run stays `running` on record, for another process
    to resume.
    """
    run_task = asyncio.current_task()
    assert run_task is not None, "a run is performed by a task"

    def stop(error: RunTakenOver) -> None:
        log.warning("%s; it is stopped here", error)
        if not is_over:
            run_task.cancel()

    is_over = has_begun = False
    journal = Journal(store, on_lost=stop, run_id=claimed.id if claimed is not None else None)

    def emit_both(event: Event) -> None:
        nonlocal emit, has_begun
        has_begun = has_begun or isinstance(event, RunStarted)
        journal.emit(
            _as_running(event) if leave_running_on_cancel and run_task.cancelling() else event
        )
        if emit is not None:
            try:
                emit(event)
            except Exception as error:  # noqa: BLE001 - a listener may be anyone's
                log.warning("a listener of this run failed: %r", error)
                emit = None

    async def persist() -> None:
        await journal.drain()
        if claimed is None:
            journal.require_begun()

    async def end() -> None:
        await journal.close()
        if claimed is not None and not has_begun and journal.taken_over is None:
            await _release(store, claimed)

    try:
        with heartbeat.keep_alive(journal):
            try:
                try:
                    yield RunSink(emit_both, persist if store.is_write_ahead else None)
                finally:
                    is_over = True
                    await _finish(end())
            except asyncio.CancelledError:
                if journal.taken_over is not None and run_task.uncancel() == 0:
                    raise journal.taken_over from None
                raise
        if journal.taken_over is not None:
            raise journal.taken_over
    finally:
        if journal.error is not None:
            log.warning("this run was not stored: %s", journal.error)


def _as_running(event: Event) -> Event:
    """Return an interrupted end as still running, in one write under the claim.

    Between two writes another process could resume the run and lose what was done.
    """
    if isinstance(event, RunDone) and event.run.status == "interrupted":
        return RunDone(replace(event.run, status="running", answer=None, process=""))
    return event


async def _release(store: RunStore, claimed: Run) -> None:
    try:
        await store.release_claim(claimed)
    except PodiumError as error:
        log.warning("%s could not be released: %s", claimed.id, error)


async def _finish(work: Coroutine[None, None, None]) -> None:
    """Finish the work even if cancelled meanwhile, and only then be cancelled."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
