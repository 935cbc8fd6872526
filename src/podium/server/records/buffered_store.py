"""A write-behind `RunStore`: requests do not wait for the database.

A run is written only after it has been running for a while; one that ends sooner is written once,
together with others. A run that must not be stored stays in memory while it waits for tool results.

If several processes share the store, a run is written from its start, and finishing it waits until
it is written; one that must not be stored is held in the store while it waits for tool results.

A run that ends while the store is unavailable is kept in memory and retried (`WriteRetryQueue`).
Meanwhile no process can renew its lease, so no run counts as abandoned for a while.

If the store is not shared, a crash loses runs that have just ended and the start of recent ones.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from podium.core.errors import Conflict, NotFound, PodiumError, RunTakenOver, StoreError
from podium.core.run import Round, Run, StepRecord, timestamp
from podium.engine.tool_calls import awaits_results
from podium.server.logs import LOGGER
from podium.store import (
    EVERY_RUN,
    LEASE_SECONDS,
    AbandonedRun,
    Feedback,
    RunFilter,
    RunList,
    RunStore,
)

RETRY_SECONDS: Final = 0.25
"""The retry interval, shorter than the interval of recovery."""

RETRY_LIMIT_SECONDS: Final = 3600.0
MAX_RETRIED: Final = 2_000

FINAL_TRIES: Final = 3
"""Tries at shutdown; a run that the store never accepts may come first."""


class _PendingRun(NamedTuple):
    until: float
    run: Run
    reason: str


class WriteRetryQueue:
    """Retries writing runs until the store accepts them. Belongs to one event loop.

    After the first success all others are written. A run that the store never accepts comes last.
    """

    def __init__(self, write: Callable[[Run], Awaitable[None]]) -> None:
        self._write = write
        self._runs: OrderedDict[str, _PendingRun] = OrderedDict()
        self._writing = asyncio.Lock()
        self._retry_task: asyncio.Task[None] | None = None

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def get(self, run_id: str) -> Run | None:
        """Return a run that is waiting to be written."""
        return self._runs[run_id].run if run_id in self._runs else None

    def add(self, run: Run, error: StoreError) -> None:
        LOGGER.warning("%s is not stored yet, retrying: %s", run.id, error)
        self._runs[run.id] = _PendingRun(time.monotonic() + RETRY_LIMIT_SECONDS, run, str(error))
        if len(self._runs) > MAX_RETRIED:
            self._drop(next(iter(self._runs)), f"more than {MAX_RETRIED} runs wait for the store")
        if self._retry_task is None or self._retry_task.done():
            self._retry_task = asyncio.create_task(self._retry())

    def forget(self, run_id: str) -> None:
        self._runs.pop(run_id, None)

    async def write(self) -> None:
        """Write the waiting runs, if the store is back."""
        if not self._runs:
            return
        async with self._writing:
            is_back = False
            for run_id in tuple(self._runs):
                if run_id in self._runs:
                    is_back |= await self._try_write(run_id)
                if not is_back:
                    return

    async def close(self) -> None:
        """Try a last time, and log what is lost."""
        if self._retry_task is not None:
            self._retry_task.cancel()
            await asyncio.wait({self._retry_task})
        for _ in range(FINAL_TRIES):
            await self.write()
        for run_id, held in tuple(self._runs.items()):
            self._drop(run_id, held.reason)

    async def _retry(self) -> None:
        while self._runs:
            await asyncio.sleep(RETRY_SECONDS)
            await self.write()

    async def _try_write(self, run_id: str) -> bool:
        """True if the store answered, even if it rejected the run."""
        held = self._runs[run_id]
        try:
            await self._write(held.run)
        except StoreError as error:
            if time.monotonic() > held.until:
                self._drop(run_id, str(error))
            elif run_id in self._runs:
                self._runs.move_to_end(run_id)
            return False
        except PodiumError as error:
            self._drop(run_id, str(error))
            return True
        self._runs.pop(run_id, None)
        LOGGER.info("stored a run after retrying", extra={"run": run_id})
        return True

    def _drop(self, run_id: str, reason: str) -> None:
        self._runs.pop(run_id, None)
        LOGGER.warning("%s was not stored: %s", run_id, reason)


WRITE_DELAY: Final = 1.0
"""Seconds that a run may take before its start is written."""

HELD_SECONDS: Final = 3600.0
MAX_HELD: Final = 10_000
"""The limits of runs that are not stored and wait for tool results."""

BACKLOG: Final = 2_000
"""Finished runs that may wait to be written; with more, finishing a run waits."""

Write = Callable[[], Awaitable[None]]
Writes = list[Write]


class BufferedRunStore(RunStore):
    """Writes runs to a store later and in batches; closes that store.

    `write_delay` is how long a run may take before its start is written; `shared` says that other
    processes use the same store, whose leases last `lease_seconds`.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        write_delay: float = WRITE_DELAY,
        shared: bool = False,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._shared = self.is_write_ahead = shared
        self._write_delay = write_delay
        self._unwritten: dict[str, Writes] = {}
        self._started: dict[str, Run] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._not_stored: set[str] = set()
        self._held: OrderedDict[str, tuple[float, Run]] = OrderedDict()
        self._ended: dict[str, Run] = {}
        self._being_written: dict[str, Run] = {}
        self._batch_written = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._taken_over: dict[str, RunTakenOver] = {}
        self._retries = WriteRetryQueue(self._store.finish)
        self._lease_seconds = lease_seconds
        self._unsure_until = 0.0

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def do_not_store(self, run: Run) -> None:
        """Store nothing of a run that starts now."""
        self._not_stored.add(run.id)

    def is_stored(self, run_id: str) -> bool:
        return run_id not in self._not_stored and run_id not in self._held

    async def give_feedback(self, feedback: Feedback) -> None:
        """Write feedback on a run, after the run itself."""
        await self._ensure_written(feedback.run_id)
        await self._store.feedback.save(feedback)

    async def feedback_of(self, run_id: str) -> Feedback | None:
        """Return the feedback on a run, if any; an unwritten run has none."""
        if not self.is_stored(run_id) or self._unwritten_run(run_id) is not None:
            return None
        return await self._store.feedback.get(run_id)

    async def flush(self) -> RunStore:
        """Write every finished run, and return the underlying store."""
        await self._flush()
        return self._store

    async def begin(self, run: Run) -> None:
        """Write a run that starts or is resumed; if the store is not shared, with a delay."""
        if run.id in self._held:  # resumed, and still not stored
            del self._held[run.id]
            self._not_stored.add(run.id)
        if run.id in self._not_stored:
            return
        await self._wait_until_written(run.id)  # it may be resumed before its last end is written
        if self._shared:
            await self._store.begin(run)
            return
        self._unwritten[run.id] = [lambda: self._store.begin(run)]
        self._started[run.id] = run
        loop = asyncio.get_running_loop()
        self._timers[run.id] = loop.call_later(self._write_delay, self._write_started, run.id)

    async def save(self, run_id: str, content: Round | StepRecord) -> None:
        """Write a round or a step, after the run itself."""
        if run_id in self._not_stored:
            return
        write = partial(self._store.save, run_id, content)
        waiting = self._unwritten.get(run_id)
        if waiting is None:
            await write()
        else:
            waiting.append(write)

    async def finish(self, *runs: Run) -> None:
        """Write finished runs soon, together with others."""
        for run in runs:
            await self._finish(run)

    async def _finish(self, run: Run) -> None:
        if not self.is_stored(run.id):
            self._not_stored.discard(run.id)
            self._held.pop(run.id, None)  # it may end before `begin` was called
            if self._shared:
                await self._hold_in_store(run)
            elif awaits_results(run):
                self._hold(run)
            return
        self._stop_writing(run.id)
        if run.id in self._writing:  # its start must not overwrite its end
            await asyncio.wait({self._writing[run.id]})
        self._ended[run.id] = run
        self._started.pop(run.id, None)
        if not self._is_writing():
            self._writer = asyncio.create_task(self._write_ended())
        if self._shared or len(self._ended) > BACKLOG:
            await self._wait_until_written(run.id)
        if run.id in self._taken_over:
            raise self._taken_over.pop(run.id)

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
        if self._is_running(run_id):
            raise Conflict(f"{run_id} is still running; wait for it or stop it")
        self._expire_held()
        if run_id in self._held:
            self._not_stored.add(run_id)
            return self._held.pop(run_id)[1]
        await self._ensure_written(run_id)
        if run_id in self._retries:
            raise StoreError(f"{run_id} cannot be claimed before its last state is stored")
        return await self._store.claim(run_id, process, takeover=takeover)

    async def release_claim(self, run: Run) -> None:
        if run.id in self._not_stored:
            self._not_stored.discard(run.id)
            self._hold(run)
            return
        await self._store.release_claim(run)

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        written = [run_id for run_id in run_ids if run_id not in self._unwritten]
        return await self._store.heartbeat(written) if written else ()

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        """Return runs whose process died; none while that is uncertain."""
        await self._retries.write()
        try:
            found = await self._store.list_abandoned(limit)
        except StoreError:
            # Twice as long as other processes may take to renew their leases.
            self._unsure_until = time.monotonic() + self._lease_seconds / 2
            raise
        if self.was_unavailable:
            return ()
        return [run for run in found if run.id not in self._retries]

    @property
    def was_unavailable(self) -> bool:
        """True if the store was unavailable recently, so that a silent process may be alive."""
        return time.monotonic() < self._unsure_until

    async def is_claimed(self, run_id: str) -> bool:
        """True if any process performs the run."""
        if run_id in self._retries:
            return False
        return self._is_running(run_id) or await self._store.is_claimed(run_id)

    def _is_running(self, run_id: str) -> bool:
        return run_id in self._unwritten or run_id in self._not_stored

    async def load(self, run_id: str) -> Run:
        self._expire_held()
        if run_id in self._held:
            return self._held[run_id][1]
        return self._unwritten_run(run_id) or await self._store.load(run_id)

    def _unwritten_run(self, run_id: str) -> Run | None:
        """Return a run whose latest state is not written yet."""
        found = self._ended.get(run_id) or self._being_written.get(run_id)
        return found or self._retries.get(run_id) or self._started.get(run_id)

    async def list(
        self, wanted: RunFilter = EVERY_RUN, *, limit: int = 20, before: str | None = None
    ) -> RunList:
        await self._flush()
        return await self._store.list(wanted, limit=limit, before=before)

    async def delete(self, run_id: str) -> None:
        if self._held.pop(run_id, None) is not None:
            return
        await self._ensure_written(run_id)
        await self._store.delete(run_id)
        self._retries.forget(run_id)

    async def delete_before(self, moment: str) -> int:
        await self._flush()
        return await self._store.delete_before(moment)

    async def save_until(self, run: Run, until: str) -> None:
        """Write a run that is deleted after a time."""
        await self._store.save_until(run, until)

    async def delete_expired(self) -> int:
        return await self._store.delete_expired()

    async def close(self) -> None:
        for run_id in list(self._unwritten):
            self._write_started(run_id)
        if self._writing:
            await asyncio.wait(self._writing.values())
        if self._writer is not None:
            await asyncio.wait({self._writer})
        await self._retries.close()
        await self._store.close()

    def _write_started(self, run_id: str) -> None:
        """Write a long-running run so far; later changes are written at once."""
        timer = self._timers.pop(run_id, None)
        if timer is not None:
            timer.cancel()
        task = asyncio.create_task(self._write_all(run_id, self._unwritten[run_id]))
        self._writing[run_id] = task
        task.add_done_callback(lambda _: self._writing.pop(run_id, None))

    async def _write_all(self, run_id: str, waiting: Writes) -> None:
        """Write in order; new writes are appended to the same list meanwhile."""
        while waiting and self._unwritten.get(run_id) is waiting:
            write = waiting.pop(0)
            await self._try_to(write, run_id)
        if self._unwritten.get(run_id) is waiting:
            del self._unwritten[run_id], self._started[run_id]

    def _stop_writing(self, run_id: str) -> None:
        """Drop the pending writes of a run that will be written as a whole."""
        self._unwritten.pop(run_id, None)
        timer = self._timers.pop(run_id, None)
        if timer is not None:
            timer.cancel()

    async def _write_ended(self) -> None:
        while self._ended:
            self._being_written, self._ended = self._ended, {}
            try:
                await self._write_together(tuple(self._being_written.values()))
            finally:  # wake up the waiting tasks in any case
                self._being_written = {}
                self._batch_written.set()
                self._batch_written = asyncio.Event()

    async def _write_together(self, runs: tuple[Run, ...]) -> None:
        try:
            await self._store.finish(*runs)
        except PodiumError:  # write the others even if one fails
            for run in runs:
                await self._try_to(partial(self._finish_one, run), run.id)

    async def _finish_one(self, run: Run) -> None:
        try:
            await self._store.finish(run)
        except StoreError as error:
            self._retries.add(run, error)
        except RunTakenOver as error:
            if not self._shared:
                raise
            self._taken_over[run.id] = error

    async def _try_to(self, write: Write, run_id: str) -> None:
        try:
            await write()
        except PodiumError as error:
            LOGGER.warning("%s was not stored: %s", run_id, error)

    def _is_writing(self) -> bool:
        return self._writer is not None and not self._writer.done()

    async def _flush(self) -> None:
        """Wait until every run that has ended by now is written, but not for later ones."""
        for run_id in (*self._being_written, *self._ended):
            await self._wait_until_written(run_id)
        await self._retries.write()

    async def _ensure_written(self, run_id: str) -> None:
        """Wait until the run is written, and retry once if that failed."""
        await self._wait_until_written(run_id)
        await self._retries.write()

    async def _wait_until_written(self, run_id: str) -> None:
        while self._is_writing() and (run_id in self._ended or run_id in self._being_written):
            await self._batch_written.wait()

    async def _hold_in_store(self, run: Run) -> None:
        """Hold a run in the store while it waits for tool results, for an hour at most."""
        if not awaits_results(run):
            await self._try_to(partial(self._delete_if_stored, run.id), run.id)
            return
        until = timestamp(datetime.now(UTC) + timedelta(seconds=HELD_SECONDS))
        await self._try_to(partial(self._store.save_until, run, until), run.id)

    async def _delete_if_stored(self, run_id: str) -> None:
        try:
            await self._store.delete(run_id)
        except NotFound:
            return  # it was never held

    def _hold(self, run: Run) -> None:
        self._expire_held()
        self._held[run.id] = (time.monotonic() + HELD_SECONDS, run)
        if len(self._held) > MAX_HELD:
            self._held.popitem(last=False)

    def _expire_held(self) -> None:
        now = time.monotonic()
        while self._held and next(iter(self._held.values()))[0] < now:
            self._held.popitem(last=False)
