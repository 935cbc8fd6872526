"""The pulse: says every so often in the store that runs are still being performed.

Other processes tell by it whether a run that says it is running has anybody at work on it. One
timer serves all runs of a Podium, and there is none while no run goes on. Where a process was
silent for so long that another has taken its runs over, it hears so here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from podium.errors import PodiumError, TakenOver
from podium.store.base import LEASE_SECONDS, RunStore
from podium.store.journal import Journal

log = logging.getLogger("podium")

BEATS_PER_LEASE: Final = 4
"""So that a run outlives some beats that come late or fail."""


class Pulse:
    """Beats for the runs of the journals that are given to it."""

    def __init__(
        self, store: RunStore, *, seconds: float = LEASE_SECONDS / BEATS_PER_LEASE
    ) -> None:
        self._store = store
        self._seconds = seconds
        self._journals: set[Journal] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._beat: asyncio.Task[None] | None = None

    @contextmanager
    def of(self, journal: Journal) -> Iterator[None]:
        """Beat for the journal's run meanwhile."""
        self._journals.add(journal)
        if self._timer is None:
            self._rest()
        try:
            yield
        finally:
            self._journals.discard(journal)
            if not self._journals and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    async def close(self) -> None:
        """Wait for a beat that is being written, so that the store may be closed."""
        if self._beat is not None:
            await asyncio.wait({self._beat})

    def _rest(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._go_on)

    def _go_on(self) -> None:
        if self._beat is None or self._beat.done():
            self._beat = asyncio.get_running_loop().create_task(self._write())
        self._rest()

    async def _write(self) -> None:
        runs = [journal.run_id for journal in self._journals if journal.run_id is not None]
        try:
            lost = await self._store.beat(runs)
        except PodiumError as error:
            log.warning("that runs are going on could not be written down: %s", error)
            return
        for journal in tuple(self._journals):
            if journal.run_id in lost:
                journal.lose(TakenOver(f"{journal.run_id} was taken over by another process"))
