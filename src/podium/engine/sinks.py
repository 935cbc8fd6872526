"""Listeners of a run: its journal in the store, and callers' callbacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from podium.core.errors import PodiumError, RunTakenOver
from podium.core.events import Emit, Event, RunDone, RunStarted
from podium.core.run import Run
from podium.store import Heartbeat, Journal, RunStore

log = logging.getLogger("podium")


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
    pulse: Heartbeat,
    emit: Emit | None,
    *,
    claimed: Run | None = None,
    hands_back: bool = False,
) -> AsyncIterator[RunSink]:
    """Send a run's events to the store and to `emit`, with a heartbeat until the run is kept.

    If another process takes the run over, it is stopped here and `RunTakenOver` is raised, however
    far it came. `claimed` is a run that is resumed; it is released if it ends before it starts.
    With `hands_back`, a cancelled run stays `running` on record, for another process to resume.
    """
    performing = asyncio.current_task()
    assert performing is not None, "a run is performed by a task"

    def stop(error: RunTakenOver) -> None:
        log.warning("%s; it is stopped here", error)
        if not is_over:
            performing.cancel()

    is_over = has_begun = False
    journal = Journal(store, on_lost=stop, run_id=claimed.id if claimed is not None else None)
    listener = fan_out(emit)
    writes_first = getattr(store, "writes_first", False)  # a store may be anyone's

    def emit_both(event: Event) -> None:
        nonlocal has_begun
        has_begun = has_begun or isinstance(event, RunStarted)
        journal.emit(_as_running(event) if hands_back and performing.cancelling() else event)
        listener(event)

    async def persist() -> None:
        await journal.drain()
        if claimed is None:
            journal.require_begun()

    async def end() -> None:
        await journal.close()
        if claimed is not None and not has_begun and journal.taken_over is None:
            await _release(store, claimed)

    try:
        with pulse.of(journal):
            try:
                try:
                    yield RunSink(emit_both, persist if writes_first else None)
                finally:
                    is_over = True
                    await _finish(end())
            except asyncio.CancelledError:
                if journal.taken_over is not None and performing.uncancel() == 0:
                    raise journal.taken_over from None
                raise
        if journal.taken_over is not None:
            raise journal.taken_over
    finally:
        if journal.error is not None:
            log.warning("this run was not stored: %s", journal.error)


def fan_out(*listeners: Emit | None) -> Emit:
    """Return an `Emit` that calls each listener; one that fails is dropped."""
    active = [listener for listener in listeners if listener is not None]

    def emit(event: Event) -> None:
        for listener in tuple(active):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - a listener may be anyone's
                active.remove(listener)
                log.warning("a listener of this run failed: %r", error)

    return emit


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
