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
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from podium.client.assembly import Assembly, assemble, default_options
from podium.client.runtime import RunOptions, Runtime
from podium.conductors import Conductor, ModelConductor, TierRouter
from podium.config import McpSettings, Settings, discover_settings
from podium.core.budget import Account, Budget
from podium.core.errors import UsageError
from podium.core.events import Emit, Event
from podium.core.pool import Pool
from podium.core.request import ResponseOptions, ToolResult
from podium.core.run import Round, Run, Tier
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.engine import (
    BreakerPolicy,
    CallPolicy,
    Hedge,
    RetryPolicy,
    Toolbox,
    check_hedges,
)
from podium.engine.guardrails import Guardrail, Hook, as_guardrail
from podium.engine.guardrails.redaction import restoring
from podium.engine.runner import Options
from podium.engine.sinks import telling
from podium.store import (
    BEATS_PER_LEASE,
    LEASE_SECONDS,
    Heartbeat,
    NullStore,
    RunStore,
    open_store,
)
from podium.workers import Http
from podium.workers.mcp import McpToolbox

Result = TypeVar("Result")

CLOSED: Final = "this Podium is closed; make another one"
CUT_OFF: Final = "this Podium was closed while the run was going on"


class AsyncPodium:
    """Answers questions with a pool of workers and a conductor that leads them.

    Give `workers` to use your own: the best of them plans unless you give a `conductor`, and
    runs are kept only if you give a `store` (a file, a database's address, or a store of your
    own, which stays yours to close). Without workers everything comes from `settings`, or else
    from what the machine offers, and runs are kept in the store that is named there. `toolbox`
    holds tools that workers may use inside their steps, in place of those of the servers that
    the settings name. `guardrails` look at questions, replies and answers, after those that the
    settings name; a bare function looks everywhere. `mini` serves the mini tier, in place of the
    router that the settings name.
    """

    def __init__(
        self,
        workers: Sequence[Worker] | None = None,
        conductor: Conductor | None = None,
        *,
        pool: Pool | None = None,
        options: Options | None = None,
        retry: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        hedges: Mapping[str, Hedge] | None = None,
        store: RunStore | Path | str | None = None,
        settings: Settings | None = None,
        toolbox: Toolbox | None = None,
        guardrails: Sequence[Guardrail | Hook] = (),
        mini: TierRouter | None = None,
    ) -> None:
        self._toolbox = toolbox
        self._guardrails = tuple(map(as_guardrail, guardrails))
        self._assembly = None if workers is None else _assembled(workers, conductor, pool)
        self._conductor = conductor
        self._mini = mini
        self._options = options
        self._retry = retry
        self._breaker = breaker
        self._hedges = hedges
        self._store = store
        self._settings = settings
        self._http = Http()
        self._opening = asyncio.Lock()
        self._opened: Runtime | None = None
        self._to_close = AsyncExitStack()
        self._to_close.push_async_callback(self._http.close)
        self._going_on: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def ask(self, question: str, **wishes: Unpack[RunOptions]) -> Run:
        """Answer the question. How it ended is on the run: `status`, `answer`, `error`."""
        return await self._until_closed(lambda opened: opened.ask(question, wishes))

    async def run(self, workflow: Workflow, question: str, **wishes: Unpack[RunOptions]) -> Run:
        """Carry out a workflow that you wrote."""
        return await self._until_closed(lambda opened: opened.run(workflow, question, wishes))

    async def plan(self, question: str, **wishes: Unpack[RunOptions]) -> Round:
        """Only plan: the first round's workflow, with nothing of it carried out."""
        return await self._until_closed(lambda opened: opened.plan(question, wishes))

    async def resume(
        self,
        run: Run | str,
        *,
        results: Sequence[ToolResult] = (),
        response_options: ResponseOptions | None = None,
        budget: Budget | None = None,
        account: Account | None = None,
        emit: Emit | None = None,
        stream: bool = False,
        takeover: bool = False,
    ) -> Run:
        """Go on with a run, given as it is or by its id in the store: one that was cut off, or one
        that waits, with the results of all the tools that it waits for. `response_options` and
        `budget`
        replace those of the run; `account` is what its calls draw on besides. A `takeover`, by
        whoever goes on with runs that nobody asked for again, is counted on the run."""
        return await self._until_closed(
            lambda opened: opened.resume(
                run, results, response_options, budget, account, emit, stream, takeover
            )
        )

    async def stream(self, question: str, **wishes: Unpack[RunOptions]) -> AsyncGenerator[Event]:
        """Answer the question and watch: every event as it happens, the run's end last.

        Leaving early stops the run.
        """
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        wishes["emit"], wishes["stream"] = (
            telling(restoring(events.put_nowait), wishes.get("emit")),
            True,
        )
        task = asyncio.create_task(self.ask(question, **wishes))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def workers(self) -> tuple[Worker, ...]:
        """The workers of the pool, ready to be called."""
        return (await self._open()).assembly.workers

    async def pool(self) -> Pool:
        """What a conductor may know of them."""
        return (await self._open()).assembly.pool

    async def store(self) -> RunStore:
        """Where runs are kept."""
        return (await self._open()).store

    async def conductor(self) -> Conductor:
        """Who plans, unless a tier says otherwise."""
        return (await self._open()).assembly.conductor

    async def conductor_for(self, tier: Tier) -> Conductor:
        """Who leads the runs of that tier."""
        return (await self._open()).assembly.conductor_for(tier)

    async def mini(self) -> TierRouter | None:
        """The learned router that serves the mini tier, where there is one."""
        return (await self._open()).assembly.mini()

    async def excludable(self) -> frozenset[str]:
        """The names that a run may exclude: of workers, of providers, and of servers of tools."""
        return (await self._open()).excludable

    async def options(self) -> Options:
        """What a run has where nothing is wished for."""
        return (await self._open()).options

    async def call_policy(self) -> CallPolicy:
        """What every call to these workers shares, one outside of any run as well: the gates,
        the deadlines and the retry policy."""
        return (await self._open()).call_policy

    async def guardrails(self) -> tuple[Guardrail, ...]:
        """What looks at every run."""
        return (await self._open()).assembly.guardrails

    async def toolbox(self) -> Toolbox | None:
        """The tools that are carried out inside steps, where there are any."""
        return (await self._open()).toolbox

    async def close(self) -> None:
        """Stop the runs that are going on, and close the connections, the local models and the
        store, unless the store is the caller's. Runs that are stopped are kept as interrupted."""
        self._closed = True
        stopped = self._going_on - {asyncio.current_task()}
        for task in stopped:
            task.cancel()
        if stopped:
            await asyncio.wait(stopped)
        async with self._opening:
            await self._to_close.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _until_closed(self, work: Callable[[Runtime], Coroutine[Any, Any, Result]]) -> Result:
        """Do the work in a task of its own, so that `close` stops it and not its caller."""

        async def begin() -> Result:
            return await work(await self._open())

        caller = asyncio.current_task()
        assert caller is not None, "who awaits this is a task"
        stops_before = caller.cancelling()
        task = asyncio.create_task(begin())
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if self._closed and caller.cancelling() == stops_before:
                raise UsageError(CUT_OFF) from None
            raise

    async def _open(self) -> Runtime:
        """Read the settings, connect the workers and open the store, the first time."""
        async with self._opening:
            if self._closed:
                raise UsageError(CLOSED)
            if self._opened is None:
                self._opened = await self._open_now()
            return self._opened

    async def _open_now(self) -> Runtime:
        """The store comes last: settings that cannot be used must not leave it open."""
        settings = None
        assembly, options, retry = self._assembly, self._options or Options(), self._retry
        breaker, hedges = self._breaker or BreakerPolicy(), self._hedges or {}
        if assembly is None:
            settings = self._settings or await discover_settings(os.environ)
            assembly = assemble(settings, os.environ, self._http)
            if self._conductor is not None:
                assembly = replace(assembly, conductor=self._conductor)
            options = self._options or default_options(settings)
            retry = self._retry or settings.retry
            breaker = self._breaker or settings.breaker
            hedges = settings.hedges if self._hedges is None else self._hedges
        if self._guardrails:
            guardrails = (*assembly.guardrails, *self._guardrails)
            assembly = replace(assembly, guardrails=guardrails)
        if self._mini is not None:
            mini = self._mini.fitted_to(assembly.pool)
            assembly = replace(assembly, mini=lambda: mini)
        check_hedges(hedges, assembly.pool)
        store = await self._open_store(settings)
        self._to_close.push_async_callback(assembly.close)
        toolbox = self._toolbox
        if toolbox is None and settings is not None and settings.mcp:
            toolbox = await self._open_tools(settings.mcp)
        lease = settings.store.lease_seconds if settings is not None else LEASE_SECONDS
        pulse = Heartbeat(store, seconds=lease / BEATS_PER_LEASE)
        self._to_close.push_async_callback(pulse.close)
        call_policy = CallPolicy(retry, breaker, hedges)
        return Runtime(assembly, store, options, call_policy, toolbox, pulse)

    async def _open_tools(self, servers: Sequence[McpSettings]) -> Toolbox:
        toolbox = McpToolbox(servers, os.environ)
        self._to_close.push_async_callback(toolbox.close)
        await toolbox.open()
        return toolbox

    async def _open_store(self, settings: Settings | None) -> RunStore:
        where = self._store
        if where is None:
            if settings is None:
                return NullStore()
            where = settings.store.url or settings.store.path
        elif not isinstance(where, str | Path):
            return where  # the caller's, who closes it
        lease = settings.store.lease_seconds if settings is not None else LEASE_SECONDS
        store = await open_store(where, lease_seconds=lease)
        self._to_close.push_async_callback(store.close)
        return store


def _assembled(
    workers: Sequence[Worker], conductor: Conductor | None, pool: Pool | None
) -> Assembly:
    pool = pool or Pool(tuple(worker.profile for worker in workers))
    if conductor is None:
        by_name = {worker.profile.name: worker for worker in workers}
        conductor = ModelConductor(by_name[pool.best.name])
    return Assembly(tuple(workers), pool, conductor)
