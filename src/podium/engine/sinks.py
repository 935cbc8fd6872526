"""Those who watch a run: its journal, and whoever asked to be told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from podium.core.errors import PodiumError, TakenOver
from podium.core.events import Emit, Event, RunDone, RunStarted
from podium.core.run import Run
from podium.store import Heartbeat, Journal, RunStore

log = logging.getLogger("podium")


class RunSink(NamedTuple):
    """Who is told of a run: `emit` takes its events, and `on_record` waits until they are,
    where the store says that nothing may be done before; a run that begins there and cannot be
    written is not begun: it raises `StoreError`."""

    emit: Emit
    on_record: Callable[[], Awaitable[None]] | None


@asynccontextmanager
async def journaling(
    store: RunStore,
    pulse: Heartbeat,
    emit: Emit | None,
    *,
    claimed: Run | None = None,
    hands_back: bool = False,
) -> AsyncIterator[RunSink]:
    """Where a run's events go: into the store, and to whoever watches. The run begins, or was
    `claimed` to go on. The pulse beats for it until it is kept. Should another process take the run
    over, it is stopped here, and `TakenOver` is raised however far it had come: its end is for the
    other to tell.

    A run that was claimed and ends before it has begun again is let go of. With `hands_back` one
    that is cancelled stays on record as running, for whoever looks next."""
    performing = asyncio.current_task()
    assert performing is not None, "a run is performed by a task"

    def stop(error: TakenOver) -> None:
        log.warning("%s; it is stopped here", error)
        if not is_over:
            performing.cancel()

    is_over = has_begun = False
    journal = Journal(store, lost=stop, run_id=claimed.id if claimed is not None else None)
    watched = telling(emit)
    writes_first = getattr(store, "writes_first", False)  # a store may be anyone's

    def both(event: Event) -> None:
        nonlocal has_begun
        has_begun = has_begun or isinstance(event, RunStarted)
        journal.emit(_handed_back(event) if hands_back and performing.cancelling() else event)
        watched(event)

    async def on_record() -> None:
        await journal.drain()
        if claimed is None:
            journal.insist()

    async def end() -> None:
        await journal.close()
        if claimed is not None and not has_begun and journal.taken_over is None:
            await _let_go(store, claimed)

    try:
        with pulse.of(journal):
            try:
                try:
                    yield RunSink(both, on_record if writes_first else None)
                finally:
                    is_over = True
                    await _to_the_end(end())
            except asyncio.CancelledError:
                if journal.taken_over is not None and performing.uncancel() == 0:
                    raise journal.taken_over from None
                raise
        if journal.taken_over is not None:
            raise journal.taken_over
    finally:
        if journal.error is not None:
            log.warning("this run was not stored: %s", journal.error)


def telling(*watchers: Emit | None) -> Emit:
    """Tell each of these watchers. One that fails is told nothing more: the run and the other
    watchers must not suffer for it."""
    listening = [watcher for watcher in watchers if watcher is not None]

    def tell(event: Event) -> None:
        for watcher in tuple(listening):
            try:
                watcher(event)
            except Exception as error:  # noqa: BLE001 - the watcher is anyone's
                listening.remove(watcher)
                log.warning("the watcher of this run failed: %r", error)

    return tell


def _handed_back(event: Event) -> Event:
    """The event, with the run as it is left to others where it is its end. That is one write, under
    the claim: between two somebody could go on with the run, and lose what was done."""
    if isinstance(event, RunDone) and event.run.status == "interrupted":
        return RunDone(replace(event.run, status="running", answer=None, process=""))
    return event


async def _let_go(store: RunStore, claimed: Run) -> None:
    try:
        await store.release_claim(claimed)
    except PodiumError as error:
        log.warning("%s could not be let go of: %s", claimed.id, error)


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Finish the work even when cancelled meanwhile, and be cancelled only then."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
