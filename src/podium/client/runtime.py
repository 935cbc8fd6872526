"""An open Podium: the workers, store and policies that its runs share, and how each run starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from podium._util.process import is_alive, this_process
from podium.client.assembly import Assembly, check_quality_bias
from podium.conductors import (
    AdaptiveConductor,
    Conductor,
    FixedConductor,
    RequestWorkflowConductor,
)
from podium.conductors.builtin import FIXED
from podium.core.budget import Account, Budget
from podium.core.errors import ConfigError, Conflict, NotFound, UsageError
from podium.core.events import Emit
from podium.core.pool import check_excluded, excludable_names
from podium.core.request import Image, Message, ResponseOptions, ToolResult
from podium.core.run import Round, Run, Tier
from podium.core.worker import mcp_servers
from podium.core.workflow import Workflow
from podium.engine import CallPolicy, Toolbox
from podium.engine.guardrails.chain import HookMemory
from podium.engine.runner import Options, Runner
from podium.store import Heartbeat, RunStore
from podium.store.journal import RunSink, journal_events


class RunOptions(TypedDict, total=False):
    """Options of one run; an option left out has the value of the settings.

    Attributes:
        history: The conversation before the question.
        trailing: The messages after the question: tool calls and their results, or the start of
            the answer.
        images: Images that belong to the question.
        response_options: Demands on the answer: schema, tools, max_tokens and others.
        owner: Whose run it is.
        run_id: The run's id, where it must be known before the run starts.
        fingerprint: That of the request that the run answers, kept on the run.
        tier: `"mini"`, `"podium"` or `"ultra"`.
        max_steps: The most steps that a plan may have.
        rounds: The most rounds.
        budget: Caps on calls, tokens, money, time and depth.
        account: A shared budget that the run's calls also draw on.
        exclude: Workers, providers and MCP servers that this run must not use, besides those
            that the settings exclude.
        quality_bias: How much quality counts over cost where a learned router chooses, from 0
            (cheapest) to 1 (best).
        emit: Receives every event, on the event loop's thread; it must return at once.
        stream: Emit the answer piece by piece.

    """

    history: tuple[Message, ...]
    trailing: tuple[Message, ...]
    images: tuple[Image, ...]
    response_options: ResponseOptions
    owner: str
    run_id: str
    fingerprint: str
    tier: Tier
    max_steps: int
    rounds: int
    budget: Budget
    account: Account | None
    exclude: frozenset[str]
    quality_bias: float | None
    emit: Emit | None
    stream: bool


class ResumeOptions(TypedDict, total=False):
    """Options of resuming a run.

    Attributes:
        results: The result of every tool call that a waiting run waits for.
        fingerprint: That of the request that brought the results, kept on the run.
        budget: Replaces the run's own.
        account: A shared budget that the run's calls also draw on.
        emit: Receives every event, on the event loop's thread; it must return at once.
        stream: Emit the answer piece by piece.
        takeover: Resume a run whose process died; counted on the run.

    """

    results: Sequence[ToolResult]
    fingerprint: str
    budget: Budget | None
    account: Account | None
    emit: Emit | None
    stream: bool
    takeover: bool


@dataclass(frozen=True, slots=True)
class Runtime:
    """What all runs of an open Podium share.

    Attributes:
        options: What a run has where its own options say nothing.
        call_policy: Limits, timeouts and retries of every call, also of calls outside runs.
        resuming: Ids of the runs that are being resumed here.
        memory: What guardrails remember of waiting runs.

    """

    assembly: Assembly
    store: RunStore
    options: Options
    call_policy: CallPolicy
    toolbox: Toolbox | None
    heartbeat: Heartbeat
    resuming: set[str] = field(default_factory=set)
    memory: HookMemory = field(default_factory=HookMemory)

    async def ask(self, question: str, wanted: RunOptions) -> Run:
        """Plan and execute, and store the run."""
        options = self._resolve_options(wanted)
        self._check_quality_bias(options)
        conductor = self.assembly.conductor_for(options.tier)
        return await self._execute(question, conductor, options, wanted)

    async def run(self, workflow: Workflow, question: str, wanted: RunOptions) -> Run:
        """Execute a workflow of the caller's, and store the run."""
        options = self._resolve_options(wanted)
        if options.quality_bias is not None:
            raise UsageError(
                "a quality bias is for a router, and this workflow is given; drop one of them"
            )
        workflow.check(self.assembly.pool.without(options.exclude).names, options.max_steps)
        return await self._execute(question, RequestWorkflowConductor(workflow), options, wanted)

    async def plan(self, question: str, wanted: RunOptions) -> Round:
        """Plan the first round without executing it."""
        options = self._resolve_options(wanted)
        self._check_quality_bias(options)
        conductor = self.assembly.conductor_for(options.tier)
        return await self._runner(conductor, options.tier).plan(
            question,
            history=wanted.get("history", ()),
            images=wanted.get("images", ()),
            trailing=wanted.get("trailing", ()),
            options=options,
            emit=wanted.get("emit"),
        )

    async def resume(self, run: Run | str, wanted: ResumeOptions) -> Run:
        """Resume an interrupted or waiting run; `Conflict` if another process executes it."""
        _check_names(wanted.keys(), ResumeOptions.__annotations__)
        takeover = wanted.get("takeover", False)
        claimed = await self._claim(run, takeover=takeover)
        self.resuming.add(claimed.id)
        try:
            async with journal_events(
                self.store,
                self.heartbeat,
                wanted.get("emit"),
                claimed=claimed,
                hands_back=takeover,
            ) as sink:
                conductor = self._conductor_to_resume(claimed)
                return await self._runner(conductor, claimed.tier, sink).resume(
                    claimed,
                    results=wanted.get("results", ()),
                    fingerprint=wanted.get("fingerprint", ""),
                    budget=wanted.get("budget"),
                    account=wanted.get("account"),
                    emit=sink.emit,
                    stream=wanted.get("stream", False),
                )
        finally:
            self.resuming.discard(claimed.id)

    @property
    def excludable_names(self) -> frozenset[str]:
        """Names that a run may exclude: workers, providers and MCP servers."""
        planner = self.assembly.conductor.worker
        planning = () if planner is None else (planner.profile,)
        return excludable_names((*self.assembly.pool, *planning), mcp_servers(self.toolbox))

    async def _execute(
        self, question: str, conductor: Conductor, options: Options, wanted: RunOptions
    ) -> Run:
        async with journal_events(self.store, self.heartbeat, wanted.get("emit")) as sink:
            return await self._runner(conductor, options.tier, sink).run(
                question,
                history=wanted.get("history", ()),
                images=wanted.get("images", ()),
                trailing=wanted.get("trailing", ()),
                options=options,
                emit=sink.emit,
                stream=wanted.get("stream", False),
            )

    def _runner(self, conductor: Conductor, tier: Tier, sink: RunSink | None = None) -> Runner:
        # Nested runs get the tier's conductor: a fixed workflow would only call itself again.
        return Runner(
            conductor,
            self.assembly.workers,
            pool=self.assembly.pool,
            call_policy=self.call_policy,
            nested_conductor=self.assembly.conductor_for(tier),
            toolbox=self.toolbox,
            guardrails=self.assembly.guardrails,
            memory=self.memory,
            persist=sink.persist if sink is not None else None,
        )

    def _resolve_options(self, wanted: RunOptions) -> Options:
        _check_names(wanted.keys(), RunOptions.__annotations__)
        usual, excluded = self.options, frozenset(wanted.get("exclude", ()))
        return Options(
            max_steps=wanted.get("max_steps", usual.max_steps),
            rounds=wanted.get("rounds", usual.rounds),
            budget=wanted.get("budget", usual.budget),
            account=wanted.get("account", usual.account),
            tier=wanted.get("tier", usual.tier),
            exclude=usual.exclude | (excluded and check_excluded(excluded, self.excludable_names)),
            response_options=wanted.get("response_options", usual.response_options),
            owner=wanted.get("owner", usual.owner),
            run_id=wanted.get("run_id", ""),
            fingerprint=wanted.get("fingerprint", ""),
            quality_bias=wanted.get("quality_bias", usual.quality_bias),
        )

    def _check_quality_bias(self, options: Options) -> None:
        if options.quality_bias is None:
            return
        check_quality_bias(options.tier, self.assembly.router, self.assembly.router_problem)
        conductor = self.assembly.conductor_for(options.tier)
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
            return self.assembly.conductor_for(run.tier)
        workflow = next((one.workflow for one in run.rounds if one.workflow is not None), None)
        if workflow is not None:
            return FixedConductor(workflow)
        if self.assembly.conductor.name != FIXED:
            raise UsageError(
                f"{run.id} ended before the workflow that it was given was on record; ask again"
            )
        return self.assembly.conductor_for(run.tier)


def _check_names(names: Iterable[str], known: Iterable[str]) -> None:
    for name in sorted(set(names) - set(known)):
        raise ConfigError(f"unexpected option {name!r}; expected one of {', '.join(known)}")
