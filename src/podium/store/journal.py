"""The journal: turns the events of one run into writes to a store, in order.

The engine emits events and must not wait, so they are put into a backlog that a task of the
journal's own writes out. The backlog is bounded. When it is full, or when a write fails (the disk
is full, say), the journal falls behind: what the store holds stays the run as it was until then,
further steps are skipped, and the end of the run writes the run whole. So a slow or broken store
delays nothing and never costs the answer; at worst it costs what a crash would need to resume.
Where another process has taken the run over, nothing is written any more, and whoever performs it
here is told.

    journal = Journal(store)
    run = await engine.run(..., emit=journal.emit)
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
"""The most writes that may wait. A run makes a few dozen; the values they hold are the run's."""

Written = RunStarted | Planned | StepNoted | StepDone | RoundDone | RunDone


class Journal:
    """Writes one run down as it happens. Runs nested in it are part of its steps. `lost` is called
    once, where another process has taken the run over. `run_id` is the run's, where it is known."""

    def __init__(
        self,
        store: RunStore,
        *,
        backlog: int = BACKLOG,
        lost: Callable[[RunTakenOver], None] | None = None,
        run_id: str | None = None,
    ) -> None:
        self._store = store
        self._lost = lost
        self._taken_over: RunTakenOver | None = None
        self._limit = backlog
        self._backlog: deque[Written] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._run_id = run_id
        self._begun = False
        self._behind = False
        self._closed = False
        self._error: StoreError | None = None

    @property
    def run_id(self) -> str | None:
        """The run that it keeps, once that is known."""
        return self._run_id

    @property
    def error(self) -> StoreError | None:
        """The first write that failed, or None when the run, once it has ended, is kept whole."""
        return self._error

    @property
    def taken_over(self) -> RunTakenOver | None:
        """Why nothing of the run is written any more, where another process performs it."""
        return self._taken_over

    def insist(self) -> None:
        """Raise the error where not even the run's beginning was written; nothing more is then."""
        if not self._begun and self._error is not None:
            self._closed = True
            raise self._error

    def lose(self, error: RunTakenOver) -> None:
        """Another process performs the run: write nothing more, and say so."""
        self._closed = True
        self._backlog.clear()
        if self._taken_over is None:
            self._taken_over = error
            if self._lost is not None:
                self._lost(error)

    def emit(self, event: Event) -> None:
        """Take an event. Returns at once; must be called on the event loop."""
        if self._closed or not isinstance(event, Written):
            return
        if isinstance(event, RunStarted) and event.parent is None:
            self._follow(event.run_id)
        if event.run_id != self._run_id:
            return
        if isinstance(event, RunDone):
            self._backlog.clear()  # the end holds everything that was still waiting
        elif self._behind or len(self._backlog) >= self._limit:
            self._behind = True
            return
        self._backlog.append(event)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write_backlog())

    async def drain(self) -> None:
        """Wait until every event taken so far is written or its write has failed."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait({self._writer})

    async def close(self) -> None:
        """Drain, and take no event from now on, so that the store may be closed."""
        self._closed = True
        await self.drain()

    def _follow(self, run_id: str) -> None:
        if self._run_id not in (None, run_id):
            raise UsageError(
                f"this journal keeps run {self._run_id} and was given {run_id}; "
                f"make a journal for each run"
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
            # A store may be anyone's, and its bugs must not cost the answer either.
            except Exception as error:  # noqa: BLE001
                self._fall_behind(StoreError(f"the store failed unexpectedly: {error!r}"))

    async def _write(self, event: Written) -> None:
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
        # Whatever waits goes on from what could not be written; only the end stands by itself.
        self._backlog = deque(event for event in self._backlog if isinstance(event, RunDone))


log = logging.getLogger("podium")

BEATS_PER_LEASE: Final = 4
"""So that a run outlives some beats that come late or fail."""


class Heartbeat:
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
            lost = await self._store.heartbeat(runs)
        except PodiumError as error:
            log.warning("that runs are going on could not be written down: %s", error)
            return
        for journal in tuple(self._journals):
            if journal.run_id in lost:
                journal.lose(RunTakenOver(f"{journal.run_id} was taken over by another process"))
