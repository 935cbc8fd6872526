"""A Podium that is open: what all its runs share, and how each begins.

`podium.api` opens and closes it; here what was wished for becomes the options of a run, the run is
performed and kept, and one that was cut off is taken up by one process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from podium._util.process import is_alive, this_process
from podium.client.assembly import Assembly, check_quality_bias
from podium.conductors import AdaptiveConductor, Conductor, FixedConductor, RequestWorkflowConductor
from podium.conductors.names import FIXED
from podium.core.budget import Account, Budget
from podium.core.errors import ConfigError, Conflict, NotFound, UsageError
from podium.core.events import Emit
from podium.core.exclusion import check_excluded, excludable
from podium.core.request import Image, Message, ResponseOptions, ToolResult
from podium.core.run import Round, Run, Tier
from podium.core.workflow import Workflow
from podium.engine import CallPolicy, Toolbox, servers_of
from podium.engine.guardrails.chain import HookMemory
from podium.engine.runner import Options, Runner
from podium.engine.sinks import RunSink, journaling
from podium.store import Heartbeat, RunStore


class RunOptions(TypedDict, total=False):
    """What may be asked for one run; what is left out is as the settings say.

    `history` is the conversation before the question, `images` are part of the question.
    `response_options` are demanded of the answer; `owner` is whose run it is, and `account` what
    its calls draw on besides the budget. `run_id` is the run's id, where that must be known before.
    `exclude` names workers, providers and servers of tools that this run must not use, besides
    those that the options exclude. `quality_bias` says how much quality counts over cost where a
    learned
    router chooses, from 0, the cheapest, to 1, the best. `emit` gets every event as it happens, and
    with `stream` the answer piece by piece; it is called on the event loop's thread and must return
    at once.
    """

    history: tuple[Message, ...]
    images: tuple[Image, ...]
    response_options: ResponseOptions
    owner: str
    run_id: str
    tier: Tier
    max_steps: int
    rounds: int
    budget: Budget
    account: Account | None
    exclude: frozenset[str]
    quality_bias: float | None
    emit: Emit | None
    stream: bool


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that runs share. `taken_up` are those that are being resumed here; `memory` is
    what guardrails remember of those that wait."""

    assembly: Assembly
    store: RunStore
    options: Options
    call_policy: CallPolicy
    toolbox: Toolbox | None
    pulse: Heartbeat
    taken_up: set[str] = field(default_factory=set)
    memory: HookMemory = field(default_factory=HookMemory)

    async def ask(self, question: str, wishes: RunOptions) -> Run:
        """Answer the question."""
        options = self._options_for(wishes)
        self._check_quality_bias(options)
        return await self._answer(
            question, self.assembly.conductor_for(options.tier), options, wishes
        )

    async def run(self, workflow: Workflow, question: str, wishes: RunOptions) -> Run:
        """Carry out a workflow that was written by hand."""
        options = self._options_for(wishes)
        if options.quality_bias is not None:
            raise UsageError(
                "a quality bias is for a router, and this workflow is given; drop one of them"
            )
        workflow.check(self.assembly.pool.without(options.exclude).names, options.max_steps)
        return await self._answer(question, RequestWorkflowConductor(workflow), options, wishes)

    async def plan(self, question: str, wishes: RunOptions) -> Round:
        """Only plan."""
        options = self._options_for(wishes)
        self._check_quality_bias(options)
        conductor = self.assembly.conductor_for(options.tier)
        return await self._runner(conductor, options.tier).plan(
            question,
            history=wishes.get("history", ()),
            images=wishes.get("images", ()),
            options=options,
            emit=wishes.get("emit"),
        )

    async def resume(
        self,
        run: Run | str,
        results: Sequence[ToolResult],
        response_options: ResponseOptions | None,
        budget: Budget | None,
        account: Account | None,
        emit: Emit | None,
        stream: bool,
        takeover: bool,
    ) -> Run:
        """Go on with a run that was cut off, or that waits; raises `Conflict` where somebody else
        is at work on it."""
        claimed = await self._claimed(run, takeover=takeover)
        self.taken_up.add(claimed.id)
        watching = journaling(self.store, self.pulse, emit, claimed=claimed, hands_back=takeover)
        try:
            async with watching as told:
                conductor = _conductor_of(claimed, self.assembly)
                return await self._runner(conductor, claimed.tier, told).resume(
                    claimed,
                    results=results,
                    response_options=response_options,
                    budget=budget,
                    account=account,
                    emit=told.emit,
                    stream=stream,
                )
        finally:
            self.taken_up.discard(claimed.id)

    async def _claimed(self, run: Run | str, *, takeover: bool) -> Run:
        """The run as the store has it, for this process alone to go on with; one that no store
        has, as it was given."""
        try:
            run_id = run if isinstance(run, str) else run.id
            return await self.store.claim(run_id, this_process(), takeover=takeover)
        except NotFound:
            if isinstance(run, str):
                raise
        if run.id in self.taken_up or (run.status == "running" and is_alive(run.process)):
            raise Conflict(
                f"{run.id} is still going on in process {run.process}; wait for it or stop it"
            )
        return run

    async def _answer(
        self, question: str, conductor: Conductor, options: Options, wishes: RunOptions
    ) -> Run:
        """Answer with that conductor, and keep the run."""
        async with journaling(self.store, self.pulse, wishes.get("emit")) as told:
            return await self._runner(conductor, options.tier, told).run(
                question,
                history=wishes.get("history", ()),
                images=wishes.get("images", ()),
                options=options,
                emit=told.emit,
                stream=wishes.get("stream", False),
            )

    def _runner(self, conductor: Conductor, tier: Tier, told: RunSink | None = None) -> Runner:
        """A run loop over the shared workers. Whoever leads the run, the runs nested in it are
        led by the tier's conductor: a workflow by hand would only call itself again."""
        return Runner(
            conductor,
            self.assembly.workers,
            pool=self.assembly.pool,
            call_policy=self.call_policy,
            nested_conductor=self.assembly.conductor_for(tier),
            toolbox=self.toolbox,
            guardrails=self.assembly.guardrails,
            memory=self.memory,
            on_record=told.on_record if told is not None else None,
        )

    def _options_for(self, wishes: RunOptions) -> Options:
        """The options with what was wished for in place of what is usual."""
        for name in sorted(wishes.keys() - RunOptions.__annotations__.keys()):
            known = ", ".join(RunOptions.__annotations__)
            raise ConfigError(f"there is no wish {name!r}; a run may have {known}")
        usual, excluded = self.options, frozenset(wishes.get("exclude", ()))
        return Options(
            max_steps=wishes.get("max_steps", usual.max_steps),
            rounds=wishes.get("rounds", usual.rounds),
            budget=wishes.get("budget", usual.budget),
            account=wishes.get("account", usual.account),
            tier=wishes.get("tier", usual.tier),
            exclude=usual.exclude | (excluded and check_excluded(excluded, self.excludable)),
            response_options=wishes.get("response_options", usual.response_options),
            owner=wishes.get("owner", usual.owner),
            run_id=wishes.get("run_id", ""),
            quality_bias=wishes.get("quality_bias", usual.quality_bias),
        )

    def _check_quality_bias(self, options: Options) -> None:
        """A quality bias that nobody would heed is refused rather than ignored."""
        if options.quality_bias is None:
            return
        check_quality_bias(options.tier, self.assembly.mini, self.assembly.lacking)
        leading = self.assembly.conductor_for(options.tier)
        if isinstance(leading, AdaptiveConductor) and leading.always_conducts:
            raise UsageError(
                "a quality bias is for a router, and in the tier podium this pool's trained "
                "conductor "
                "plans every question; drop it, or ask the tier mini"
            )

    @property
    def excludable(self) -> frozenset[str]:
        """The names that a run may exclude."""
        planner = getattr(self.assembly.conductor, "worker", None)
        planning = () if planner is None else (planner.profile,)
        return excludable((*self.assembly.pool, *planning), servers_of(self.toolbox))


def _conductor_of(run: Run, assembly: Assembly) -> Conductor:
    """Who goes on with a run: its own workflow if it was given one, else its tier's conductor."""
    if run.conductor != FIXED:
        return assembly.conductor_for(run.tier)
    given = next((one.workflow for one in run.rounds if one.workflow is not None), None)
    if given is not None:
        return FixedConductor(given)
    if assembly.conductor.name != FIXED:
        raise UsageError(
            f"{run.id} ended before the workflow that it was given was on record; ask again"
        )
    return assembly.conductor_for(run.tier)
