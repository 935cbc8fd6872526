"""Keeping runs without making anybody wait: a store in front of the store.

Most runs of a server are over in a moment, and what is written of them on the way is written
over at once. So a run that begins is not written before it has gone on for a while; one that has
ended by then is written once, as a whole, together with whatever else has ended meanwhile. A
run of which nothing is to be kept never reaches the store; where it waits for the results of
tools, it is held in memory for as long as a client may reasonably take.

Where several processes share the store, the next request may come to another than this, and
another is to go on should this one end. So a run is written as it begins, and as it goes on;
whoever ends one waits until it is written, and a run that is only held while it waits for tools is
held in the store, and deleted from there when it has ended or, by `retention`, when nobody came.

A run that ends while the store is away is held in memory, and written as soon as it is back
(`owed`). While it was away nobody could say in it that they are at work, so that a run of which
nothing was heard for long is for a while not one that was cut off.

What a crash may cost where the store is not shared: runs that have just ended, and the beginning
of those that have just begun.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from podium.core.errors import Conflict, NotFound, PodiumError, RunTakenOver, StoreError
from podium.core.run import Round, Run, StepRecord, timestamp
from podium.engine.tool_calls import awaits_results
from podium.server.logs import LOGGER
from podium.store import (
    EVERY_RUN,
    LEASE_SECONDS,
    AbandonedRun,
    Feedback,
    IdempotencyStore,
    RunFilter,
    RunList,
    RunStore,
    feedback_in,
    idempotency_in,
)

AGAIN_SECONDS: Final = 0.25
"""How soon the store is tried again: sooner than anybody else looks for runs to take over."""

OWED_SECONDS: Final = 3600.0
MOST_OWED: Final = 2_000
"""How long, and how many, runs are held."""

LAST_TRIES: Final = 3
"""How often the store is tried as the server ends; a run that it never takes may come first."""


class _Held(NamedTuple):
    until: float
    run: Run
    why: str


class WriteRetryQueue:
    """Holds runs until `write` takes them. It belongs to one event loop."""

    def __init__(self, write: Callable[[Run], Awaitable[None]]) -> None:
        self._write = write
        self._runs: OrderedDict[str, _Held] = OrderedDict()
        self._writing = asyncio.Lock()
        self._again: asyncio.Task[None] | None = None

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def get(self, run_id: str) -> Run | None:
        """The run as it ended, where it is held."""
        return self._runs[run_id].run if run_id in self._runs else None

    def hold(self, run: Run, error: StoreError) -> None:
        """Hold a run that could not be written."""
        LOGGER.warning("%s is not stored yet, and held until it can be: %s", run.id, error)
        self._runs[run.id] = _Held(time.monotonic() + OWED_SECONDS, run, str(error))
        if len(self._runs) > MOST_OWED:
            self._let_go(next(iter(self._runs)), f"more than {MOST_OWED} wait for the store")
        if self._again is None or self._again.done():
            self._again = asyncio.create_task(self._try_again())

    def forget(self, run_id: str) -> None:
        """Hold the run no longer."""
        self._runs.pop(run_id, None)

    async def write(self) -> None:
        """Write what is held, if the store takes it."""
        if not self._runs:
            return
        async with self._writing:
            is_back = False
            for run_id in tuple(self._runs):
                if run_id in self._runs:
                    is_back |= await self._is_written(run_id)
                if not is_back:
                    return

    async def close(self) -> None:
        """Try once more, and say what is lost."""
        if self._again is not None:
            self._again.cancel()
            await asyncio.wait({self._again})
        for _ in range(LAST_TRIES):
            await self.write()
        for run_id, held in tuple(self._runs.items()):
            self._let_go(run_id, held.why)

    async def _try_again(self) -> None:
        while self._runs:
            await asyncio.sleep(AGAIN_SECONDS)
            await self.write()

    async def _is_written(self, run_id: str) -> bool:
        """Whether the store answered, be it that it will not have the run."""
        held = self._runs[run_id]
        try:
            await self._write(held.run)
        except StoreError as error:
            if time.monotonic() > held.until:
                self._let_go(run_id, str(error))
            elif run_id in self._runs:
                self._runs.move_to_end(run_id)
            return False
        except PodiumError as error:
            self._let_go(run_id, str(error))
            return True
        self._runs.pop(run_id, None)
        LOGGER.info("stored a run that had waited for that", extra={"run": run_id})
        return True

    def _let_go(self, run_id: str, why: str) -> None:
        self._runs.pop(run_id, None)
        LOGGER.warning("%s was not stored: %s", run_id, why)


PATIENCE: Final = 1.0
"""Seconds that a run goes on before its beginning is written."""

HELD_SECONDS: Final = 3600.0
MOST_HELD: Final = 10_000
"""How long, and how many, runs wait in memory for tools where nothing of them is to be kept."""

BACKLOG: Final = 2_000
"""Ended runs that may wait to be written; with more, whoever ends one waits for it."""

Write = Callable[[], Awaitable[None]]
Writes = list[Write]


class BufferedRunStore:
    """Keeps runs in a store, later and together. It is a `RunStore` itself, and closes that one.

    `patience` is how long a run goes on before its beginning is written; `shared` says that other
    processes keep runs in the same store, and `lease_seconds` how long one of theirs may be silent.
    """

    def __init__(
        self,
        store: RunStore,
        *,
        patience: float = PATIENCE,
        shared: bool = False,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._shared = shared
        self._patience = patience
        self._unwritten: dict[str, Writes] = {}
        self._begun: dict[str, Run] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._left_out: set[str] = set()
        self._held: OrderedDict[str, tuple[float, Run]] = OrderedDict()
        self._ended: dict[str, Run] = {}
        self._being_written: dict[str, Run] = {}
        self._batch_written = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._taken_over: dict[str, RunTakenOver] = {}
        self._owed = WriteRetryQueue(self._store.finish)
        self._lease_seconds = lease_seconds
        self._unsure_until = 0.0

    @property
    def writes_first(self) -> bool:
        """Whether a run is to be on record before anything is done for it."""
        return self._shared

    def do_not_store(self, run: Run) -> None:
        """Keep nothing of that run, which begins now."""
        self._left_out.add(run.id)

    def keeps(self, run_id: str) -> bool:
        """Whether that run is one of which something is kept."""
        return run_id not in self._left_out and run_id not in self._held

    async def give_feedback(self, feedback: Feedback) -> None:
        """Write what was thought of a run, once the run itself is written."""
        await self._on_record(feedback.run_id)
        await feedback_in(self._store).save(feedback)

    async def withdraw_feedback(self, run_id: str) -> None:
        """Forget what was thought of a run; raises `NotFound` where nobody said."""
        await feedback_in(self._store).delete(run_id)

    async def feedback_of(self, run_id: str) -> Feedback | None:
        """What was thought of a run, if anybody said: of one that is not written, nobody did."""
        if not self.keeps(run_id) or self._unwritten_run(run_id) is not None:
            return None
        return await feedback_in(self._store).get(run_id)

    @property
    def idempotency(self) -> IdempotencyStore:
        """The names that clients gave their requests."""
        return idempotency_in(self._store)

    async def flush(self) -> RunStore:
        """The store itself, once every run that has ended by now is written to it."""
        await self._drained()
        return self._store

    async def begin(self, run: Run) -> None:
        """Write a run that begins or is resumed; where only this process would miss it, unless it
        ends soon."""
        if run.id in self._held:  # resumed, and still not to be kept
            del self._held[run.id]
            self._left_out.add(run.id)
        if run.id in self._left_out:
            return
        await self._written(run.id)  # it may be resumed before its end so far was
        if self._shared:
            await self._store.begin(run)
            return
        self._unwritten[run.id] = [lambda: self._store.begin(run)]
        self._begun[run.id] = run
        loop = asyncio.get_running_loop()
        self._timers[run.id] = loop.call_later(self._patience, self._write_begun, run.id)

    async def save_round(self, run_id: str, round_: Round) -> None:
        """Write a round, or note it where the run itself is not written yet."""
        await self._later(run_id, lambda: self._store.save_round(run_id, round_))

    async def save_step(self, run_id: str, step: StepRecord) -> None:
        """Write a step, or note it where the run itself is not written yet."""
        await self._later(run_id, lambda: self._store.save_step(run_id, step))

    async def finish(self, *runs: Run) -> None:
        """Write the whole runs soon, with others that have ended."""
        for run in runs:
            await self._finish(run)

    async def _finish(self, run: Run) -> None:
        if not self.keeps(run.id):
            self._left_out.discard(run.id)
            self._held.pop(run.id, None)  # a run may end before its beginning came by here
            if self._shared:
                await self._hold_in_store(run)
            elif awaits_results(run):
                self._hold(run)
            return
        self._stop_writing(run.id)
        if run.id in self._writing:  # its beginning must not be written over its end
            await asyncio.wait({self._writing[run.id]})
        self._ended[run.id] = run
        self._begun.pop(run.id, None)  # not before: until now it was nowhere else
        if not self._is_writing():
            self._writer = asyncio.create_task(self._write_ended())
        if self._shared or len(self._ended) > BACKLOG:
            await self._written(run.id)
        if run.id in self._taken_over:
            raise self._taken_over.pop(run.id)

    async def claim(self, run_id: str, process: str, *, takeover: bool = False) -> Run:
        """Take a run up, wherever it is."""
        if self._goes_on(run_id):
            raise Conflict(f"{run_id} is still going on; wait for it or stop it")
        self._let_go()
        if run_id in self._held:
            self._left_out.add(run_id)
            return self._held.pop(run_id)[1]
        await self._on_record(run_id)
        if run_id in self._owed:
            raise StoreError(f"{run_id} cannot be taken up before its end so far is stored")
        return await self._store.claim(run_id, process, takeover=takeover)

    async def release_claim(self, run: Run) -> None:
        """Have a run that was taken up, and has not begun again, be as it was before."""
        if run.id in self._left_out:
            self._left_out.discard(run.id)
            self._hold(run)
            return
        await self._store.release_claim(run)

    async def heartbeat(self, run_ids: Sequence[str]) -> Sequence[str]:
        """Write down that these runs are still being performed, so far as they are written."""
        written = [run_id for run_id in run_ids if run_id not in self._unwritten]
        return await self._store.heartbeat(written) if written else ()

    async def list_abandoned(self, limit: int) -> Sequence[AbandonedRun]:
        """Runs that were cut off with their processes; none while that cannot be told."""
        await self._owed.write()
        try:
            found = await self._store.list_abandoned(limit)
        except StoreError:
            # Twice as long as others may take until they say again that they are at work.
            self._unsure_until = time.monotonic() + self._lease_seconds / 2
            raise
        if self.was_unavailable:
            return ()
        return [run for run in found if run.id not in self._owed]

    @property
    def was_unavailable(self) -> bool:
        """Whether the store was away just now, so that a silent process need not be gone."""
        return time.monotonic() < self._unsure_until

    async def is_claimed(self, run_id: str) -> bool:
        """Whether a process is at work on that run, be it this one or another."""
        if run_id in self._owed:
            return False
        return self._goes_on(run_id) or await self._store.is_claimed(run_id)

    def _goes_on(self, run_id: str) -> bool:
        return run_id in self._unwritten or run_id in self._left_out

    async def load(self, run_id: str) -> Run:
        """Give back a run, be it written yet or not."""
        self._let_go()
        if run_id in self._held:
            return self._held[run_id][1]
        return self._unwritten_run(run_id) or await self._store.load(run_id)

    def _unwritten_run(self, run_id: str) -> Run | None:
        """A run that is to be kept, and not written yet as it is."""
        found = self._ended.get(run_id) or self._being_written.get(run_id)
        return found or self._owed.get(run_id) or self._begun.get(run_id)

    async def list(
        self, wanted: RunFilter = EVERY_RUN, *, limit: int = 20, before: str | None = None
    ) -> RunList:
        """The newest runs first."""
        await self._drained()
        return await self._store.list(wanted, limit=limit, before=before)

    async def delete(self, run_id: str) -> None:
        """Forget a run, wherever it is."""
        if self._held.pop(run_id, None) is not None:
            return
        await self._on_record(run_id)
        await self._store.delete(run_id)
        self._owed.forget(run_id)

    async def delete_before(self, moment: str) -> int:
        """Forget every run in the store that was begun before that moment, and say how many."""
        await self._drained()
        return await self._store.delete_before(moment)

    async def save_until(self, run: Run, until: str) -> None:
        """Write a run that is to be forgotten after that moment."""
        await self._store.save_until(run, until)

    async def delete_expired(self) -> int:
        """Forget every run in the store that was held for long enough, and say how many."""
        return await self._store.delete_expired()

    async def close(self) -> None:
        """Write what is still to be written, and close the store."""
        for run_id in list(self._unwritten):
            self._write_begun(run_id)
        if self._writing:
            await asyncio.wait(self._writing.values())
        if self._writer is not None:
            await asyncio.wait({self._writer})
        await self._owed.close()
        await self._store.close()

    async def _later(self, run_id: str, write: Write) -> None:
        if run_id in self._left_out:
            return
        waiting = self._unwritten.get(run_id)
        if waiting is None:
            await write()
        else:
            waiting.append(write)

    def _write_begun(self, run_id: str) -> None:
        """The run goes on for a while already: write what there is, and go on as it happens."""
        timer = self._timers.pop(run_id, None)
        if timer is not None:
            timer.cancel()
        task = asyncio.create_task(self._write_all(run_id, self._unwritten[run_id]))
        self._writing[run_id] = task
        task.add_done_callback(lambda _: self._writing.pop(run_id, None))

    async def _write_all(self, run_id: str, waiting: Writes) -> None:
        """Writes that come meanwhile go to the end of the same list, so that their order holds."""
        while waiting and self._unwritten.get(run_id) is waiting:
            write = waiting.pop(0)
            await self._trying(write, run_id)
        if self._unwritten.get(run_id) is waiting:
            del self._unwritten[run_id], self._begun[run_id]

    def _stop_writing(self, run_id: str) -> None:
        """Leave what there is to write of its beginning: it will be written whole."""
        self._unwritten.pop(run_id, None)
        timer = self._timers.pop(run_id, None)
        if timer is not None:
            timer.cancel()

    async def _write_ended(self) -> None:
        while self._ended:
            self._being_written, self._ended = self._ended, {}
            try:
                await self._write_together(tuple(self._being_written.values()))
            finally:  # however it ends, whoever waits for these has waited long enough
                self._being_written = {}
                self._batch_written.set()
                self._batch_written = asyncio.Event()

    async def _write_together(self, runs: tuple[Run, ...]) -> None:
        try:
            await self._store.finish(*runs)
        except PodiumError:  # one that cannot be stored must not cost the others
            for run in runs:
                await self._trying(partial(self._finish_one, run), run.id)

    async def _finish_one(self, run: Run) -> None:
        try:
            await self._store.finish(run)
        except StoreError as error:
            self._owed.hold(run, error)
        except RunTakenOver as error:
            if not self._shared:  # nobody waits to hear of it
                raise
            self._taken_over[run.id] = error

    async def _trying(self, write: Write, run_id: str) -> None:
        try:
            await write()
        except PodiumError as error:
            LOGGER.warning("%s was not stored: %s", run_id, error)

    def _is_writing(self) -> bool:
        return self._writer is not None and not self._writer.done()

    async def _drained(self) -> None:
        """Wait until every run that has ended by now is written. Where runs end all the time there
        is always one that is not: those that end meanwhile are not waited for."""
        for run_id in (*self._being_written, *self._ended):
            await self._written(run_id)
        await self._owed.write()

    async def _on_record(self, run_id: str) -> None:
        """Wait until the run is written, and try once more where it could not be."""
        await self._written(run_id)
        await self._owed.write()

    async def _written(self, run_id: str) -> None:
        """Wait until the run is written, or has failed to be; what came after it may still wait."""
        while self._is_writing() and (run_id in self._ended or run_id in self._being_written):
            await self._batch_written.wait()

    async def _hold_in_store(self, run: Run) -> None:
        """Keep the run only while it waits: for an hour at most."""
        if not awaits_results(run):
            await self._trying(partial(self._delete_if_there, run.id), run.id)
            return
        until = timestamp(datetime.now(UTC) + timedelta(seconds=HELD_SECONDS))
        await self._trying(partial(self._store.save_until, run, until), run.id)

    async def _delete_if_there(self, run_id: str) -> None:
        try:
            await self._store.delete(run_id)
        except NotFound:
            return  # it ended the first time that it was performed

    def _hold(self, run: Run) -> None:
        self._let_go()
        self._held[run.id] = (time.monotonic() + HELD_SECONDS, run)
        if len(self._held) > MOST_HELD:
            self._held.popitem(last=False)

    def _let_go(self) -> None:
        now = time.monotonic()
        while self._held and next(iter(self._held.values()))[0] < now:
            self._held.popitem(last=False)
