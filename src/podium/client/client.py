"""`AsyncPodium`: ask questions from code that runs on an event loop.

It opens a `Runtime` with the first call and closes it in the end. The runtime holds the workers,
store and policies that runs share, and starts each run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar, Unpack

from podium._util.process import is_alive, this_process
from podium.client.assembly import (
    Assembly,
    assemble,
    assemble_workers,
    check_quality_bias,
    default_options,
)
from podium.client.run_options import ResumeOptions, RunOptions
from podium.conductors import (
    AdaptiveConductor,
    Conductor,
    FixedConductor,
    TierRouter,
    conductor_for_tier,
)
from podium.config import Settings, choose_conductor, discover_settings
from podium.core.conductor import FIXED, RequestWorkflowConductor
from podium.core.errors import ConfigError, Conflict, NotFound, UsageError
from podium.core.events import Event, fan_out
from podium.core.pool import Pool, WorkerProfile, check_excluded, excludable_names
from podium.core.run import Round, Run, Tier
from podium.core.worker import Worker, mcp_servers
from podium.core.workflow import Workflow
from podium.engine import BreakerPolicy, CallPolicy, RetryPolicy, Toolbox
from podium.engine.guardrails import Guardrail, Hook, as_guardrail
from podium.engine.guardrails.chain import GuardrailStates
from podium.engine.guardrails.redaction import restore_events
from podium.engine.runner import Options, Runner
from podium.store import HEARTBEATS_PER_LEASE, LEASE_SECONDS, Heartbeat, RunStore, open_store
from podium.store.journal import RunSink, journal_events
from podium.workers import Http
from podium.workers.mcp import McpServers

Result = TypeVar("Result")

_OPTION_NAMES: Final = frozenset(item.name for item in fields(Options))

CLOSED: Final = "this Podium is closed; create a new one"
INTERRUPTED: Final = "this Podium was closed during the run"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The state that all runs of an open Podium share.

    Attributes:
        options: Defaults of every run.
        call_policy: Limits, timeouts and retries of every call, also of calls outside runs.
        resuming: Ids of the runs that are being resumed here.
        guardrail_states: The state of guardrails for waiting runs.

    """

    assembly: Assembly
    store: RunStore
    options: Options
    call_policy: CallPolicy
    toolbox: Toolbox | None
    heartbeat: Heartbeat
    resuming: set[str] = field(default_factory=set)
    guardrail_states: GuardrailStates = field(default_factory=GuardrailStates)

    async def ask(self, question: str, overrides: RunOptions) -> Run:
        """Plan and execute, and store the run."""
        options = self._resolve_options(overrides)
        self._check_quality_bias(options)
        conductor = self.conductor_for(options.tier)
        return await self._execute(question, conductor, conductor, options, overrides)

    async def run(self, workflow: Workflow, question: str, overrides: RunOptions) -> Run:
        """Execute a workflow of the caller's, and store the run."""
        options = self._resolve_options(overrides)
        if options.quality_bias is not None:
            raise UsageError(
                "a quality bias is for a router, and this workflow is given; drop one of them"
            )
        workflow.check(self.assembly.pool.without(options.exclude).names, options.max_steps)
        # Nested runs get the tier's conductor: a fixed workflow would only call itself again.
        nested = self.conductor_for(options.tier)
        conductor = RequestWorkflowConductor(workflow)
        return await self._execute(question, conductor, nested, options, overrides)

    async def plan(self, question: str, overrides: RunOptions) -> Round:
        """Plan the first round without executing it."""
        options = self._resolve_options(overrides)
        self._check_quality_bias(options)
        conductor = self.conductor_for(options.tier)
        return await self._runner(conductor, conductor).plan(
            question, options=options, emit=overrides.get("emit")
        )

    async def resume(self, run: Run | str, overrides: ResumeOptions) -> Run:
        """Resume an interrupted or waiting run; `Conflict` if another process executes it."""
        _check_names(overrides.keys(), ResumeOptions.__annotations__)
        takeover = overrides.get("takeover", False)
        claimed = await self._claim(run, takeover=takeover)
        self.resuming.add(claimed.id)
        try:
            async with journal_events(
                self.store,
                self.heartbeat,
                overrides.get("emit"),
                claimed=claimed,
                leave_running_on_cancel=takeover,
            ) as sink:
                conductor = self._conductor_to_resume(claimed)
                nested = self.conductor_for(claimed.tier)
                return await self._runner(conductor, nested, sink).resume(
                    claimed,
                    results=overrides.get("results", ()),
                    request=overrides.get("request"),
                    budget=overrides.get("budget"),
                    shared_budget=overrides.get("shared_budget"),
                    emit=sink.emit,
                    stream=overrides.get("stream", False),
                )
        finally:
            self.resuming.discard(claimed.id)

    def conductor_for(self, tier: Tier) -> Conductor:
        """Return the conductor that leads runs of the tier."""
        return conductor_for_tier(tier, self.assembly.conductor, self.assembly.load_router)

    @property
    def excludable_names(self) -> frozenset[str]:
        """Names that a run may exclude: workers, providers and MCP servers."""
        planner = self.assembly.conductor.worker
        planning = () if planner is None else (planner.profile,)
        return excludable_names((*self.assembly.pool, *planning), mcp_servers(self.toolbox))

    async def _execute(
        self,
        question: str,
        conductor: Conductor,
        nested: Conductor,
        options: Options,
        overrides: RunOptions,
    ) -> Run:
        async with journal_events(self.store, self.heartbeat, overrides.get("emit")) as sink:
            return await self._runner(conductor, nested, sink).run(
                question,
                options=options,
                emit=sink.emit,
                stream=overrides.get("stream", False),
            )

    def _runner(
        self, conductor: Conductor, nested: Conductor, sink: RunSink | None = None
    ) -> Runner:
        return Runner(
            conductor,
            self.assembly.workers,
            pool=self.assembly.pool,
            call_policy=self.call_policy,
            nested_conductor=nested,
            toolbox=self.toolbox,
            guardrails=self.assembly.guardrails,
            guardrail_states=self.guardrail_states,
            persist=sink.persist if sink is not None else None,
        )

    def _resolve_options(self, overrides: RunOptions) -> Options:
        _check_names(overrides.keys(), RunOptions.__annotations__)
        if isinstance(overrides.get("exclude"), str):
            raise ConfigError(f"exclude is the text {overrides['exclude']!r}; give a set of names")
        options = {name: value for name, value in overrides.items() if name in _OPTION_NAMES}
        if excluded := frozenset(overrides.get("exclude", ())):
            excluded = check_excluded(excluded, self.excludable_names)
        options["exclude"] = self.options.exclude | excluded
        return replace(self.options, **options)  # type: ignore[arg-type]

    def _check_quality_bias(self, options: Options) -> None:
        if options.quality_bias is None:
            return
        check_quality_bias(options.tier, self.assembly.load_router)
        conductor = self.conductor_for(options.tier)
        if isinstance(conductor, AdaptiveConductor) and conductor.always_plans:
            raise UsageError(
                "a quality bias is for a router, and in the tier podium this pool's trained "
                "conductor plans every question; drop it, or ask the tier mini"
            )

    async def _claim(self, run: Run | str, *, takeover: bool) -> Run:
        """Claim the run in the store for this process; a run that is not stored is returned."""
        try:
            run_id = run if isinstance(run, str) else run.id
            return await self.store.claim(run_id, this_process(), takeover=takeover)
        except NotFound:
            if isinstance(run, str):
                raise
        if run.id in self.resuming or (run.status == "running" and is_alive(run.process)):
            raise Conflict(
                f"{run.id} is still running in process {run.process}; wait for it or stop it"
            )
        return run

    def _conductor_to_resume(self, run: Run) -> Conductor:
        """Return the run's own workflow if it came with one, else its tier's conductor."""
        if run.conductor != FIXED:
            return self.conductor_for(run.tier)
        workflow = next((one.workflow for one in run.rounds if one.workflow is not None), None)
        if workflow is not None:
            return FixedConductor(workflow)
        if self.assembly.conductor.name != FIXED:
            raise UsageError(
                f"{run.id} ended before the workflow that it was given was on record; ask again"
            )
        return self.conductor_for(run.tier)


class AsyncPodium:
    """Answer questions with a pool of workers and a conductor that plans for them.

    Without arguments, everything comes from `podium.toml`, else from the API keys in the
    environment, else from the default pool.

    Args:
        workers: Your own workers, or the path of a configuration file. With your own workers no
            settings are read, and runs are stored only if you give a `store`.
        conductor: A conductor, or its name: `"model"`, `"rules"`, `"router"`, the name of the
            worker that plans, or `"evolved:DIRECTORY"`. By default the best of your own workers
            plans, or the conductor of the settings.
        pool: The path of a pool file, as `--pool` takes it; with your own workers, a `Pool` of
            their profiles.
        options: Defaults of every run.
        retry: When a failed call is made again.
        breaker: When a failing worker is not called for a while.
        store: A file, a database URL, or a store of your own, which stays yours to close.
        settings: Settings, or the path of a configuration file.
        toolbox: Tools that workers may call, instead of those of the settings' MCP servers.
        guardrails: Checks that follow those of the settings; a bare function checks every stage.
        router: The learned router of the mini tier, instead of that of the settings.

    Raises:
        UsageError: The arguments contradict each other, or name an unknown conductor.

    """

    def __init__(
        self,
        workers: Sequence[Worker] | Path | str | None = None,
        conductor: Conductor | str | None = None,
        *,
        pool: Pool | Path | str | None = None,
        options: Options | None = None,
        retry: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        store: RunStore | Path | str | None = None,
        settings: Settings | Path | str | None = None,
        toolbox: Toolbox | None = None,
        guardrails: Sequence[Guardrail | Hook] = (),
        router: TierRouter | None = None,
    ) -> None:
        if isinstance(workers, str | Path):
            if settings is not None:
                raise UsageError("two configuration files are given; drop one")
            workers, settings = None, workers
        _check_arguments(workers, conductor, pool, settings)
        self._assembly: Assembly | None = None
        if workers is not None:
            assert not isinstance(pool, str | Path), "the arguments were checked"
            self._assembly = assemble_workers(workers, conductor, pool)
        self._conductor = conductor
        self._pool_file = Path(pool) if isinstance(pool, str | Path) else None
        self._options = options
        self._retry = retry
        self._breaker = breaker
        self._store = store
        self._settings = settings
        self._toolbox = toolbox
        self._guardrails = tuple(map(as_guardrail, guardrails))
        self._router = router
        self._http = Http()
        self._opening = asyncio.Lock()
        self._runtime: Runtime | None = None
        self._to_close = AsyncExitStack()
        self._to_close.push_async_callback(self._http.close)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def ask(self, question: str, **options: Unpack[RunOptions]) -> Run:
        """Answer the question.

        Args:
            question: The question, in plain language.
            **options: See `RunOptions`.

        Returns:
            The run; `status`, `answer` and `error` say how it ended.

        Raises:
            ConfigError: The settings or the options cannot be used.
            UsageError: This Podium is closed, or an option does not apply.

        """
        return await self._until_closed(lambda runtime: runtime.ask(question, options))

    async def run(self, workflow: Workflow, question: str, **options: Unpack[RunOptions]) -> Run:
        """Execute a workflow that you wrote.

        Args:
            workflow: The steps to execute.
            question: The question that the workflow answers.
            **options: See `RunOptions`.

        Returns:
            The run; `status`, `answer` and `error` say how it ended.

        Raises:
            PlanError: The workflow does not fit the pool.
            ConfigError: The settings or the options cannot be used.
            UsageError: This Podium is closed, or an option does not apply.

        """
        return await self._until_closed(lambda runtime: runtime.run(workflow, question, options))

    async def plan(self, question: str, **options: Unpack[RunOptions]) -> Round:
        """Plan without executing anything.

        Args:
            question: The question, in plain language.
            **options: See `RunOptions`.

        Returns:
            The first round, with its `workflow`.

        Raises:
            ConfigError: The settings or the options cannot be used.
            UsageError: This Podium is closed, or an option does not apply.

        """
        return await self._until_closed(lambda runtime: runtime.plan(question, options))

    async def resume(self, run: Run | str, **options: Unpack[ResumeOptions]) -> Run:
        """Resume a run that was interrupted, or that waits for the results of tools.

        Args:
            run: The run, or its id in the store.
            **options: See `ResumeOptions`.

        Returns:
            The same run, finished; finished steps are not repeated.

        Raises:
            Conflict: Another process executes the run.
            NotFound: The store has no run of that id.
            UsageError: This Podium is closed, or results of tools are missing.

        """
        return await self._until_closed(lambda runtime: runtime.resume(run, options))

    async def stream(self, question: str, **options: Unpack[RunOptions]) -> AsyncGenerator[Event]:
        """Answer the question and yield every event; leaving the loop early stops the run.

        Args:
            question: The question, in plain language.
            **options: See `RunOptions`.

        Yields:
            Events as they happen; the last one holds the finished run.

        Raises:
            ConfigError: The settings or the options cannot be used.
            UsageError: This Podium is closed, or an option does not apply.

        """
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        options["emit"] = fan_out(restore_events(events.put_nowait), options.get("emit"))
        options["stream"] = True
        task = asyncio.create_task(self.ask(question, **options))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def open(self) -> Runtime:
        """Read the settings, connect the workers and open the store, on the first call.

        Returns:
            What all runs share: workers, pool, conductor, store, policies.

        Raises:
            ConfigError: The settings cannot be used.
            UsageError: This Podium is closed.

        """
        async with self._opening:
            if self._closed:
                raise UsageError(CLOSED)
            if self._runtime is None:
                self._runtime = await self._open()
            return self._runtime

    async def close(self) -> None:
        """Stop the runs, which stay resumable, and close connections, local models and store."""
        self._closed = True
        stopped = self._tasks - {asyncio.current_task()}
        for task in stopped:
            task.cancel()
        if stopped:
            await asyncio.wait(stopped)
        async with self._opening:
            await self._to_close.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _until_closed(self, work: Callable[[Runtime], Coroutine[Any, Any, Result]]) -> Result:
        """Run the work in a task of its own, so that `close` stops it and not its caller."""

        async def begin() -> Result:
            return await work(await self.open())

        caller = asyncio.current_task()
        assert caller is not None, "only a task can await this"
        cancelled_before = caller.cancelling()
        task = asyncio.create_task(begin())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if self._closed and caller.cancelling() == cancelled_before:
                raise UsageError(INTERRUPTED) from None
            raise

    async def _open(self) -> Runtime:
        # The store comes last: settings that cannot be used must not leave it open.
        settings = None
        assembly, options = self._assembly, self._options
        retry, breaker = self._retry, self._breaker
        if assembly is None:
            settings = await self._read_settings()
            assembly = assemble(settings, os.environ, self._http)
            if self._conductor is not None and not isinstance(self._conductor, str):
                assembly = replace(assembly, conductor=self._conductor)
            if options is None:
                options = default_options(settings)
                if self._conductor is not None:  # it is meant to plan
                    options = replace(options, tier="ultra")
            retry, breaker = retry or settings.retry, breaker or settings.breaker
        if self._guardrails:
            guardrails = (*assembly.guardrails, *self._guardrails)
            assembly = replace(assembly, guardrails=guardrails)
        if self._router is not None:
            router = self._router.fit_to(assembly.pool)
            assembly = replace(assembly, load_router=lambda: router)
        lease = settings.store.lease_seconds if settings is not None else LEASE_SECONDS
        store = await self._open_store(settings, lease)
        self._to_close.push_async_callback(assembly.close)
        toolbox = self._toolbox
        if toolbox is None and settings is not None and settings.mcp:
            toolbox = opened = McpServers(settings.mcp, os.environ)
            self._to_close.push_async_callback(opened.close)
            await opened.open()
        heartbeat = Heartbeat(store, seconds=lease / HEARTBEATS_PER_LEASE)
        self._to_close.push_async_callback(heartbeat.close)
        call_policy = CallPolicy(retry, breaker or BreakerPolicy())
        return Runtime(assembly, store, options or Options(), call_policy, toolbox, heartbeat)

    async def _read_settings(self) -> Settings:
        settings = self._settings
        if settings is None or isinstance(settings, str | Path):
            config = None if settings is None else Path(settings)
            settings = await discover_settings(os.environ, config=config, pool=self._pool_file)
        if isinstance(self._conductor, str):
            settings = choose_conductor(settings, self._conductor)
        return settings

    async def _open_store(self, settings: Settings | None, lease_seconds: float) -> RunStore:
        where = self._store
        if where is None:
            if settings is None:
                return RunStore()
            where = settings.store.url or settings.store.path
        elif not isinstance(where, str | Path):
            return where  # the caller closes it
        store = await open_store(where, lease_seconds=lease_seconds)
        self._to_close.push_async_callback(store.close)
        return store


def _check_names(names: Iterable[str], known: Iterable[str]) -> None:
    for name in sorted(set(names) - set(known)):
        raise ConfigError(f"unexpected option {name!r}; expected one of {', '.join(known)}")


def _check_arguments(workers: object, conductor: object, pool: object, settings: object) -> None:
    """Refuse arguments of a wrong type, and those that would have no effect."""
    if settings is not None and not isinstance(settings, Settings | str | Path):
        raise UsageError(
            f"settings is a {type(settings).__name__}; give Settings or the path of a file"
        )
    if conductor is not None and not isinstance(conductor, str | Conductor):
        raise UsageError(
            f"conductor is a {type(conductor).__name__}; inherit from Conductor, or give a name"
        )
    if pool is not None and not isinstance(pool, Pool | str | Path):
        raise UsageError(f"pool is a {type(pool).__name__}; give a Pool or the path of a pool file")
    if workers is None:
        if isinstance(pool, Pool):
            raise UsageError("a Pool only describes workers; give workers as well, or a pool file")
        if pool is not None and isinstance(settings, Settings):
            raise UsageError("pool and settings both name workers; drop one of them")
        return
    if settings is not None:
        raise UsageError("workers and settings exclude each other; drop one of them")
    if isinstance(pool, str | Path):
        raise UsageError("workers and a pool file exclude each other; drop one of them")
    if not isinstance(workers, Sequence):
        raise UsageError(f"workers is a {type(workers).__name__}; give a list of workers")
    for worker in workers:
        if isinstance(worker, type):
            raise UsageError(f"workers holds the class {worker.__name__}; give {worker.__name__}()")
        if not isinstance(getattr(worker, "profile", None), WorkerProfile):
            raise UsageError(
                f"workers holds a {type(worker).__name__}; give a list of workers, each with a "
                f"WorkerProfile as profile and a method reply"
            )
    given = {worker.profile.name for worker in workers}
    if isinstance(pool, Pool) and (missing := set(pool.names) - given):
        raise UsageError(f"the pool names {', '.join(sorted(missing))}; give that worker as well")
