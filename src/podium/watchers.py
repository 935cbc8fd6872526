"""Those who watch a run: its journal, and whoever asked to be told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from podium.events import Emit, Event
from podium.store import Journal, Pulse, RunStore

log = logging.getLogger("podium")


@asynccontextmanager
async def journalled(store: RunStore, pulse: Pulse, emit: Emit | None) -> AsyncIterator[Emit]:
    """Where a run's events go: into the store, and to whoever watches. The pulse beats for the run
    until it is kept."""
    journal = Journal(store)
    watched = telling(emit)

    def both(event: Event) -> None:
        journal.emit(event)
        watched(event)

    try:
        with pulse.of(journal):
            try:
                yield both
            finally:
                await _to_the_end(journal.close())
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
