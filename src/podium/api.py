"""Podium as a library.

    from podium import Podium

    with Podium() as podium:
        run = podium.ask("What is the capital of Japan?")
        print(run.answer, run.cost_usd)

`Podium()` takes what the machine offers: `podium.toml`, else the keys in the environment, else
the embedded pool. `Podium(workers, conductor)` takes your own. `AsyncPodium` is the same for
code that already runs on an event loop; `Podium` only waits for it on a loop of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

from podium.assembly import Assembly, assemble
from podium.budget import Budget
from podium.conductor import Conductor, FixedConductor, ModelConductor, for_tier
from podium.config import Settings, current_settings
from podium.engine import RetryPolicy, Switchboard
from podium.events import Emit, Event
from podium.pool import Pool
from podium.providers import Http
from podium.request import Message
from podium.run import Round, Run, Tier
from podium.runner import Options, Runner
from podium.store import Journal, NullStore, RunStore, open_store
from podium.worker import Worker
from podium.workflow import Workflow

log = logging.getLogger("podium")


class Wishes(TypedDict, total=False):
    """What may be asked for one run; what is left out is as the settings say.

    `history` is the conversation before the question. `emit` gets every event as it happens,
    and with `stream` the answer piece by piece.
    """

    history: tuple[Message, ...]
    tier: Tier
    max_steps: int
    rounds: int
    budget: Budget
    exclude: frozenset[str]
    emit: Emit | None
    stream: bool


class AsyncPodium:
    """Answers questions with a pool of workers and a conductor that leads them.

    Give `workers` to use your own: the best of them plans unless you give a `conductor`, and
    runs are kept only if you give a `store` (a file, a database's address, or a store of your
    own). Without workers everything comes from `settings`, or else from what the machine
    offers, and runs are kept in the store that is named there.
    """

    def __init__(
        self,
        workers: Sequence[Worker] | None = None,
        conductor: Conductor | None = None,
        *,
        pool: Pool | None = None,
        options: Options | None = None,
        retry: RetryPolicy | None = None,
        store: RunStore | Path | str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._assembly = None if workers is None else _assembled(workers, conductor, pool)
        self._conductor = conductor
        self._options = options
        self._retry = retry
        self._store = store
        self._settings = settings
        self._http = Http()
        self._opening = asyncio.Lock()
        self._opened: _Opened | None = None

    async def ask(self, question: str, **wishes: Unpack[Wishes]) -> Run:
        """Answer the question. How it ended is on the run: `status`, `answer`, `error`."""
        opened = await self._open()
        return await opened.answer(question, opened.conductor_for(wishes), wishes)

    async def run(self, workflow: Workflow, question: str, **wishes: Unpack[Wishes]) -> Run:
        """Carry out a workflow that you wrote."""
        opened = await self._open()
        workflow.check(opened.assembly.pool.names, opened.options_for(wishes).max_steps)
        return await opened.answer(question, FixedConductor(workflow), wishes)

    async def plan(self, question: str, **wishes: Unpack[Wishes]) -> Round:
        """Only plan: the first round's workflow, with nothing of it carried out."""
        opened = await self._open()
        runner = opened.runner(opened.conductor_for(wishes))
        history = wishes.get("history", ())
        return await runner.plan(question, history=history, options=opened.options_for(wishes))

    async def resume(
        self,
        run: Run | str,
        *,
        budget: Budget | None = None,
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Go on with a run that was cut off, given as it is or by its id in the store."""
        opened = await self._open()
        if isinstance(run, str):
            run = await opened.store.load(run)
        runner = opened.runner(_conductor_of(run, opened.assembly.conductor))
        async with _journalled(opened.store, emit) as told:
            return await runner.resume(run, budget=budget, emit=told, stream=stream)

    async def stream(self, question: str, **wishes: Unpack[Wishes]) -> AsyncGenerator[Event]:
        """Answer the question and watch: every event as it happens, the run's end last.

        Leaving early stops the run.
        """
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        wishes["emit"], wishes["stream"] = events.put_nowait, True
        task = asyncio.create_task(self.ask(question, **wishes))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def workers(self) -> tuple[Worker, ...]:
        """The workers of the pool, ready to be called."""
        return (await self._open()).assembly.workers

    async def pool(self) -> Pool:
        """What a conductor may know of them."""
        return (await self._open()).assembly.pool

    async def store(self) -> RunStore:
        """Where runs are kept."""
        return (await self._open()).store

    async def close(self) -> None:
        """Close the connections, the local models and the store."""
        if self._opened is not None:
            await self._opened.assembly.close()
            await self._opened.store.close()
            self._opened = None
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _open(self) -> _Opened:
        """Read the settings, connect the workers and open the store, the first time."""
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open_now()
            return self._opened

    async def _open_now(self) -> _Opened:
        store = self._store
        if isinstance(store, str | Path):
            store = await open_store(store)
        if self._assembly is not None:
            options = self._options or Options()
            board = Switchboard(self._retry)
            return _Opened(self._assembly, store or NullStore(), options, board)
        settings = self._settings or await current_settings(os.environ)
        assembly = assemble(settings, os.environ, self._http)
        if self._conductor is not None:
            assembly = replace(assembly, conductor=self._conductor)
        options = self._options or Options(
            max_steps=settings.conductor.max_steps,
            rounds=settings.conductor.rounds,
            budget=settings.budget,
        )
        store = store or await open_store(settings.store.url or settings.store.path)
        return _Opened(assembly, store, options, Switchboard(self._retry or settings.retry))


@dataclass(frozen=True, slots=True)
class _Opened:
    """Everything that runs share."""

    assembly: Assembly
    store: RunStore
    options: Options
    board: Switchboard

    async def answer(self, question: str, conductor: Conductor, wishes: Wishes) -> Run:
        """Answer with that conductor, and keep the run."""
        async with _journalled(self.store, wishes.get("emit")) as told:
            return await self.runner(conductor).run(
                question,
                history=wishes.get("history", ()),
                options=self.options_for(wishes),
                emit=told,
                stream=wishes.get("stream", False),
            )

    def runner(self, conductor: Conductor) -> Runner:
        """A run loop over the shared workers."""
        assembly = self.assembly
        return Runner(conductor, assembly.workers, pool=assembly.pool, board=self.board)

    def conductor_for(self, wishes: Wishes) -> Conductor:
        """The conductor of the tier that was wished for."""
        return for_tier(self.options_for(wishes).tier, self.assembly.conductor)

    def options_for(self, wishes: Wishes) -> Options:
        """The options with what was wished for in place of what is usual."""
        usual = self.options
        return Options(
            max_steps=wishes.get("max_steps", usual.max_steps),
            rounds=wishes.get("rounds", usual.rounds),
            budget=wishes.get("budget", usual.budget),
            tier=wishes.get("tier", usual.tier),
            exclude=wishes.get("exclude", usual.exclude),
        )


@asynccontextmanager
async def _journalled(store: RunStore, emit: Emit | None) -> AsyncIterator[Emit]:
    """Where a run's events go: into the store, and to whoever watches."""
    journal = Journal(store)

    def both(event: Event) -> None:
        journal.emit(event)
        if emit is not None:
            emit(event)

    try:
        yield both
    finally:
        await _to_the_end(journal.close())
        if journal.error is not None:
            log.warning("this run was not stored: %s", journal.error)


async def _to_the_end(work: Coroutine[None, None, None]) -> None:
    """Finish the work even when cancelled meanwhile, and be cancelled only then."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _assembled(
    workers: Sequence[Worker], conductor: Conductor | None, pool: Pool | None
) -> Assembly:
    pool = pool or Pool(tuple(worker.profile for worker in workers))
    if conductor is None:
        by_name = {worker.profile.name: worker for worker in workers}
        conductor = ModelConductor(by_name[pool.best.name])
    return Assembly(tuple(workers), pool, conductor)


def _conductor_of(run: Run, configured: Conductor) -> Conductor:
    """Who goes on with a run: its own workflow if it was given one, else its tier's conductor."""
    given = run.rounds[0].workflow if run.rounds and run.conductor == "fixed" else None
    return FixedConductor(given) if given is not None else for_tier(run.tier, configured)
