"""Those who watch a run: its journal, and whoever asked to be told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import NamedTuple

from podium.errors import TakenOver
from podium.events import Emit, Event
from podium.store import Journal, Pulse, RunStore

log = logging.getLogger("podium")


class Told(NamedTuple):
    """Who is told of a run: `emit` takes its events, and `on_record` waits until they are,
    where the store says that nothing may be done before; a run that begins there and cannot be
    written is not begun: it raises `StoreError`."""

    emit: Emit
    on_record: Callable[[], Awaitable[None]] | None


@asynccontextmanager
async def journalled(
    store: RunStore, pulse: Pulse, emit: Emit | None, *, begins: bool = False
) -> AsyncIterator[Told]:
    """Where a run's events go: into the store, and to whoever watches. The run `begins`, or is one
    that the store has already. The pulse beats for the run until it is kept. Should another process
    take the run over, it is stopped here, and `TakenOver` is raised however far it had come: its
    end is for the other to tell."""
    performing = asyncio.current_task()
    assert performing is not None, "a run is performed by a task"

    def stop(error: TakenOver) -> None:
        log.warning("%s; it is stopped here", error)
        if not is_over:
            performing.cancel()

    is_over = False
    journal = Journal(store, lost=stop)
    watched = telling(emit)
    writes_first = getattr(store, "writes_first", False)  # a store may be anyone's

    def both(event: Event) -> None:
        journal.emit(event)
        watched(event)

    async def on_record() -> None:
        await journal.drain()
        if begins:
            journal.insist()

    try:
        with pulse.of(journal):
            try:
                try:
                    yield Told(both, on_record if writes_first else None)
                finally:
                    is_over = True
                    await _to_the_end(journal.close())
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


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Finish the work even when cancelled meanwhile, and be cancelled only then."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
