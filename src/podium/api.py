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
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypedDict, TypeVar, Unpack

from podium.assembly import Assembly, assemble, usual_options
from podium.budget import Budget
from podium.conductor import Conductor, FixedConductor, ModelConductor, for_tier
from podium.config import McpSettings, Settings, current_settings
from podium.engine import RetryPolicy, Switchboard, Toolbox
from podium.errors import ConfigError, UsageError
from podium.events import Emit, Event
from podium.mcp.client import McpToolbox
from podium.pool import Pool
from podium.process import is_alive
from podium.providers import Http
from podium.request import Image, Message, Terms, ToolResult
from podium.run import Round, Run, Tier
from podium.runner import Options, Runner
from podium.store import NullStore, RunStore, open_store
from podium.watchers import journalled, telling
from podium.worker import Worker
from podium.workflow import Workflow

Result = TypeVar("Result")

CLOSED: Final = "this Podium is closed; make another one"
CUT_OFF: Final = "this Podium was closed while the run was going on"


class Wishes(TypedDict, total=False):
    """What may be asked for one run; what is left out is as the settings say.

    `history` is the conversation before the question, `images` are part of the question.
    `terms` are demanded of the answer; `owner` is whose run it is. `exclude` names workers and
    providers that this run must not use, besides those that the options exclude. `emit` gets
    every event as it happens, and with `stream` the answer piece by piece; it is called on the
    event loop's thread and must return at once.
    """

    history: tuple[Message, ...]
    images: tuple[Image, ...]
    terms: Terms
    owner: str
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
    own, which stays yours to close). Without workers everything comes from `settings`, or else
    from what the machine offers, and runs are kept in the store that is named there. `toolbox`
    holds tools that workers may use inside their steps, in place of those of the servers that
    the settings name.
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
        toolbox: Toolbox | None = None,
    ) -> None:
        self._toolbox = toolbox
        self._assembly = None if workers is None else _assembled(workers, conductor, pool)
        self._conductor = conductor
        self._options = options
        self._retry = retry
        self._store = store
        self._settings = settings
        self._http = Http()
        self._opening = asyncio.Lock()
        self._opened: _Opened | None = None
        self._to_close = AsyncExitStack()
        self._to_close.push_async_callback(self._http.close)
        self._going_on: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def ask(self, question: str, **wishes: Unpack[Wishes]) -> Run:
        """Answer the question. How it ended is on the run: `status`, `answer`, `error`."""
        return await self._until_closed(lambda opened: opened.ask(question, wishes))

    async def run(self, workflow: Workflow, question: str, **wishes: Unpack[Wishes]) -> Run:
        """Carry out a workflow that you wrote."""
        return await self._until_closed(lambda opened: opened.run(workflow, question, wishes))

    async def plan(self, question: str, **wishes: Unpack[Wishes]) -> Round:
        """Only plan: the first round's workflow, with nothing of it carried out."""
        return await self._until_closed(lambda opened: opened.plan(question, wishes))

    async def resume(
        self,
        run: Run | str,
        *,
        results: Sequence[ToolResult] = (),
        terms: Terms | None = None,
        budget: Budget | None = None,
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Go on with a run, given as it is or by its id in the store: one that was cut off, or one
        that waits, with the results of all the tools that it waits for. `terms` and `budget`
        replace those of the run."""
        return await self._until_closed(
            lambda opened: opened.resume(run, results, terms, budget, emit, stream)
        )

    async def stream(self, question: str, **wishes: Unpack[Wishes]) -> AsyncGenerator[Event]:
        """Answer the question and watch: every event as it happens, the run's end last.

        Leaving early stops the run.
        """
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        wishes["emit"], wishes["stream"] = telling(events.put_nowait, wishes.get("emit")), True
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

    async def options(self) -> Options:
        """What a run has where nothing is wished for."""
        return (await self._open()).options

    async def switchboard(self) -> Switchboard:
        """What every call to these workers shares, one outside of any run as well: the gates,
        the deadlines and the retry policy."""
        return (await self._open()).board

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

    async def _until_closed(self, work: Callable[[_Opened], Coroutine[Any, Any, Result]]) -> Result:
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

    async def _open(self) -> _Opened:
        """Read the settings, connect the workers and open the store, the first time."""
        async with self._opening:
            if self._closed:
                raise UsageError(CLOSED)
            if self._opened is None:
                self._opened = await self._open_now()
            return self._opened

    async def _open_now(self) -> _Opened:
        """The store comes last: settings that cannot be used must not leave it open."""
        settings = None
        assembly, options, retry = self._assembly, self._options or Options(), self._retry
        if assembly is None:
            settings = self._settings or await current_settings(os.environ)
            assembly = assemble(settings, os.environ, self._http)
            if self._conductor is not None:
                assembly = replace(assembly, conductor=self._conductor)
            options = self._options or usual_options(settings)
            retry = self._retry or settings.retry
        store = await self._open_store(settings)
        self._to_close.push_async_callback(assembly.close)
        toolbox = self._toolbox
        if toolbox is None and settings is not None and settings.mcp:
            toolbox = await self._open_tools(settings.mcp)
        return _Opened(assembly, store, options, Switchboard(retry), toolbox)

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
        store = await open_store(where)
        self._to_close.push_async_callback(store.close)
        return store


@dataclass(frozen=True, slots=True)
class _Opened:
    """Everything that runs share."""

    assembly: Assembly
    store: RunStore
    options: Options
    board: Switchboard
    toolbox: Toolbox | None
    taken_up: set[str] = field(default_factory=set)

    async def ask(self, question: str, wishes: Wishes) -> Run:
        options = self._options_for(wishes)
        conductor = for_tier(options.tier, self.assembly.conductor)
        return await self._answer(question, conductor, options, wishes)

    async def run(self, workflow: Workflow, question: str, wishes: Wishes) -> Run:
        options = self._options_for(wishes)
        workflow.check(self.assembly.pool.without(options.exclude).names, options.max_steps)
        return await self._answer(question, FixedConductor(workflow), options, wishes)

    async def plan(self, question: str, wishes: Wishes) -> Round:
        options = self._options_for(wishes)
        conductor = for_tier(options.tier, self.assembly.conductor)
        return await self._runner(conductor, options.tier).plan(
            question,
            history=wishes.get("history", ()),
            images=wishes.get("images", ()),
            options=options,
        )

    async def resume(
        self,
        run: Run | str,
        results: Sequence[ToolResult],
        terms: Terms | None,
        budget: Budget | None,
        emit: Emit | None,
        stream: bool,
    ) -> Run:
        if isinstance(run, str):
            run = await self.store.load(run)
        if run.id in self.taken_up or (run.status == "running" and is_alive(run.process)):
            raise UsageError(
                f"{run.id} is still going on in process {run.process}; wait for it or stop it"
            )
        runner = self._runner(_conductor_of(run, self.assembly.conductor), run.tier)
        self.taken_up.add(run.id)
        try:
            async with journalled(self.store, emit) as told:
                return await runner.resume(
                    run, results=results, terms=terms, budget=budget, emit=told, stream=stream
                )
        finally:
            self.taken_up.discard(run.id)

    async def _answer(
        self, question: str, conductor: Conductor, options: Options, wishes: Wishes
    ) -> Run:
        """Answer with that conductor, and keep the run."""
        async with journalled(self.store, wishes.get("emit")) as told:
            return await self._runner(conductor, options.tier).run(
                question,
                history=wishes.get("history", ()),
                images=wishes.get("images", ()),
                options=options,
                emit=told,
                stream=wishes.get("stream", False),
            )

    def _runner(self, conductor: Conductor, tier: Tier) -> Runner:
        """A run loop over the shared workers. Whoever leads the run, the runs nested in it are
        led by the tier's conductor: a workflow by hand would only call itself again."""
        return Runner(
            conductor,
            self.assembly.workers,
            pool=self.assembly.pool,
            board=self.board,
            nested_conductor=for_tier(tier, self.assembly.conductor),
            toolbox=self.toolbox,
        )

    def _options_for(self, wishes: Wishes) -> Options:
        """The options with what was wished for in place of what is usual."""
        for name in sorted(wishes.keys() - Wishes.__annotations__.keys()):
            known = ", ".join(Wishes.__annotations__)
            raise ConfigError(f"there is no wish {name!r}; a run may have {known}")
        usual = self.options
        return Options(
            max_steps=wishes.get("max_steps", usual.max_steps),
            rounds=wishes.get("rounds", usual.rounds),
            budget=wishes.get("budget", usual.budget),
            tier=wishes.get("tier", usual.tier),
            exclude=usual.exclude | self._checked(frozenset(wishes.get("exclude", ()))),
            terms=wishes.get("terms", usual.terms),
            owner=wishes.get("owner", usual.owner),
        )

    def _checked(self, excluded: frozenset[str]) -> frozenset[str]:
        """A misspelt exclusion would let a worker in that was to be kept out."""
        profiles = [*self.assembly.pool]
        planner = getattr(self.assembly.conductor, "worker", None)
        if planner is not None:
            profiles.append(planner.profile)
        known = {name for profile in profiles for name in (profile.name, profile.provider)} - {""}
        for name in sorted(excluded - known):
            raise ConfigError(
                f"{name!r} is to be excluded, but no worker or provider is called so; "
                f"there is {', '.join(sorted(known))}"
            )
        return excluded


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
