"""The runner: answers questions with one conductor and one set of workers.

It decides what a run begins with (its pool, its budget, its options) and refuses what cannot
be; how a run goes on from there is `podium.performance`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, get_args

from podium._util.process import this_process
from podium.core.budget import Account, Budget, Ledger
from podium.core.conductor import Conductor, Given, PlanningContext
from podium.core.errors import (
    BudgetExhausted,
    ConfigError,
    GuardrailBlocked,
    RequestRefused,
    UnknownWorker,
    UsageError,
)
from podium.core.events import Emit, Planned
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    Image,
    Message,
    Reply,
    Request,
    ResponseOptions,
    ToolResult,
)
from podium.core.requirements import check_pool, check_response_options
from podium.core.run import Round, Run, Tier, new_run_id, spent_by, timestamp
from podium.core.run_records import Check
from podium.core.structured_output import require_sound
from podium.core.worker import Worker
from podium.core.workflow import DEFAULT_MAX_STEPS
from podium.engine import CallPolicy, Calls, Toolbox, context, toolbox_excluding
from podium.engine.guardrails import Guard, Guardrail, Hook
from podium.engine.guardrails.admission import let_in, let_in_results, restored
from podium.engine.guardrails.chain import HookMemory
from podium.engine.resume import known_calls, refuse_to_go_on, with_results
from podium.engine.run_loop import RunContext, RunLoop, planned, pool_at_depth


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may differ from run to run.

    `rounds` is how often the conductor may plan: 1 carries out the first plan and ends, more
    lets it look at the answer and either accept it or plan again. `exclude` names workers,
    providers and servers of tools that this run must not use, in any round or nested run.
    `response_options`
    are demanded of the answer; `owner` is whose run it is, and `account` what its calls draw on
    besides the budget. `run_id` is the run's id, where that must be known before it begins.
    `quality_bias` is how much quality counts over cost where a learned router chooses: 0 the
    cheapest, 1 the best; None is what is usual for it.
    """

    max_steps: int = DEFAULT_MAX_STEPS
    rounds: int = 1
    budget: Budget = field(default_factory=Budget)
    tier: Tier = "ultra"
    exclude: frozenset[str] = frozenset()
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
    owner: str = ""
    account: Account | None = None
    run_id: str = ""
    quality_bias: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "rounds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.tier not in get_args(Tier):
            raise ConfigError(f"tier is {self.tier!r}; it is one of {', '.join(get_args(Tier))}")
        if not isinstance(self.budget, Budget):
            raise ConfigError(f"budget is {self.budget!r}; give a Budget, such as Budget(calls=9)")
        if self.quality_bias is not None and not 0 <= self.quality_bias <= 1:
            raise ConfigError(
                f"quality_bias is {self.quality_bias}; it is a number from 0 (cheapest) to 1 (best)"
            )
        if isinstance(self.exclude, str):
            raise ConfigError(f"exclude is the text {self.exclude!r}; give a set of names")

    def narrowed(
        self,
        *,
        max_steps: int | None = None,
        rounds: int | None = None,
        caps: Mapping[str, float | None] = {},
    ) -> Options:
        """These options with what somebody wishes for who may only ask for less: of each limit and
        each cap of the budget, the lower. None is no wish."""
        return replace(
            self,
            max_steps=min(self.max_steps, max_steps or self.max_steps),
            rounds=min(self.rounds, rounds or self.rounds),
            budget=self.budget.narrowed(caps),
        )


SHARE_LEFT_BY_VERIFIERS: Final = 2
"""A guardrail's verifier may cost one part in so many of what is left of the budget."""

NESTED: Final = WorkerProfile(
    name="conductor",
    description="splits a hard subtask further and leads other workers through it",
)


class ConductorWorker(Worker):
    """The conductor as a worker of its own pool: a step given to it is a nested run."""

    def __init__(self, profile: WorkerProfile = NESTED) -> None:
        self.profile = replace(profile, provider=CONDUCTOR_PROVIDER)

    async def reply(self, request: Request) -> Reply:
        """Never called by the engine, which nests a run instead."""
        raise RequestRefused(f"{self.profile.name} answers only as a step of a workflow")


class Runner:
    """Answers questions. `nested_conductor` leads the runs that conductors in the pool begin,
    where it is another one than leads the run itself. `toolbox` holds tools that are carried out
    inside steps. `guardrails` look at questions, replies and answers, in this order. `on_record`
    waits until what has happened is, where nothing may be done before."""

    def __init__(
        self,
        conductor: Conductor,
        workers: Sequence[Worker],
        *,
        pool: Pool | None = None,
        call_policy: CallPolicy | None = None,
        nested_conductor: Conductor | None = None,
        toolbox: Toolbox | None = None,
        guardrails: Sequence[Guardrail] = (),
        memory: HookMemory | None = None,
        on_record: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.conductor = conductor
        self.nested_conductor = nested_conductor or conductor
        self.pool = pool or Pool(tuple(worker.profile for worker in workers))
        self.workers = {worker.profile.name: worker for worker in workers}
        self.call_policy = call_policy or CallPolicy()
        self.toolbox = toolbox
        self.guardrails = tuple(guardrails)
        self.memory = memory or HookMemory()
        self.on_record = on_record
        self._check_workers(self.pool)

    async def run(
        self,
        question: str,
        *,
        history: tuple[Message, ...] = (),
        images: tuple[Image, ...] = (),
        options: Options = Options(),
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Answer the question, with the images that belong to it. `emit` gets the events as they
        happen; with `stream` the final step's reply is among them, piece by piece."""
        if not question.strip():
            raise UsageError("the question is empty; ask something")
        pool = self._pool_for(options)
        self._check_demands(pool, options.response_options, images)
        run = Run(
            id=options.run_id or new_run_id(),
            question=question,
            status="running",
            pool=pool,
            conductor=self.conductor.name,
            created_at=timestamp(),
            tier=options.tier,
            max_steps=options.max_steps,
            max_rounds=options.rounds,
            budget=options.budget,
            history=history,
            exclude=tuple(sorted(options.exclude)),
            prompt_hash=_prompt_hash(self.conductor),
            process=this_process(),
            response_options=options.response_options,
            images=images,
            owner=options.owner,
            quality_bias=options.quality_bias,
        )
        ledger = Ledger(options.budget, account=options.account)
        if not self.guardrails:
            return await self._perform(run, ledger, emit, stream=stream)
        guard = self._guard(ledger, options.exclude)
        conductor = self.conductor
        given = conductor.workflow if isinstance(conductor, Given) else None
        run, workflow, blocked = await let_in(run, guard, given)
        if isinstance(conductor, Given) and workflow is not None:
            conductor = conductor.with_workflow(workflow)
        return await self._perform(
            run, ledger, emit, stream=stream, conductor=conductor, guard=guard, blocked=blocked
        )

    async def resume(
        self,
        run: Run,
        *,
        results: Sequence[ToolResult] = (),
        response_options: ResponseOptions | None = None,
        budget: Budget | None = None,
        account: Account | None = None,
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Go on with a run that was cut off, or that waits for the results of tools; steps that
        are done are not asked again. `response_options` replace those of the run."""
        refuse_to_go_on(run, [guardrail.name for guardrail in self.guardrails])
        was_waiting = run.status == "waiting"
        response_options = run.response_options if response_options is None else response_options
        self._check_workers(run.pool)
        self._check_demands(run.pool, response_options, run.images)
        budget = budget or run.budget
        self._check_budget(budget, run.pool)
        ledger = Ledger(budget, spent_by(run), account=account)
        guard, blocked = None, None
        with_results(run, results)  # what cannot be taken is refused before anybody looks at it
        if self.guardrails:
            guard = self._guard(ledger, run.exclude, self.memory.take(run.id))
            run, results, blocked = await let_in_results(run, results, guard)
        again = replace(
            run if blocked is not None else with_results(run, results),
            status="running",
            answer=None,
            error=None,
            too_long=False,
            refused=False,
            spent_cap="",
            budget=budget,
            response_options=response_options,
            conductor=self.conductor.name,
            prompt_hash=_prompt_hash(self.conductor),
            process=this_process(),
            guardrails=guard.names if guard is not None else (),
        )
        return await self._perform(
            again,
            ledger,
            emit,
            stream=stream,
            was_waiting=was_waiting,
            guard=guard,
            blocked=blocked,
        )

    async def plan(
        self,
        question: str,
        *,
        history: tuple[Message, ...] = (),
        images: tuple[Image, ...] = (),
        options: Options = Options(),
        emit: Emit | None = None,
    ) -> Round:
        """Only plan: the round that a run would begin with, nothing of it carried out. `emit` is
        told of the round however planning ends, for what it took was paid for."""
        pool = self._pool_for(options)
        self._check_demands(pool, options.response_options, images)
        self.call_policy.bind()
        ledger = Ledger(options.budget, account=options.account)
        calls = Calls(self.call_policy, ledger, self.call_policy.clock(), options.exclude)
        deadline = asyncio.timeout(ledger.seconds_left)
        round_ = None
        try:
            async with deadline:
                if self.guardrails:
                    guard = Guard(self.guardrails, self.workers, lambda: calls)
                    question, history = await guard.question("", question, history, _forget)
                context = PlanningContext(
                    question=question,
                    pool=pool,
                    history=history,
                    images=images,
                    response_options=options.response_options,
                    max_steps=options.max_steps,
                    rounds_left=options.rounds,
                    quality_bias=options.quality_bias,
                )
                round_ = await planned(self.conductor, context, calls)
                return round_
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise BudgetExhausted("seconds", options.budget.seconds or 0.0) from error
        finally:
            if emit is not None:
                emit(Planned("", round_ or Round(0, None, planning=tuple(calls.attempts))))

    async def _perform(
        self,
        run: Run,
        ledger: Ledger,
        emit: Emit | None,
        *,
        stream: bool,
        was_waiting: bool = False,
        conductor: Conductor | None = None,
        guard: Guard | None = None,
        blocked: GuardrailBlocked | None = None,
    ) -> Run:
        self.call_policy.bind()
        cast = RunContext(
            conductor=self.nested_conductor,
            workers=self.workers,
            call_policy=self.call_policy,
            ledger=ledger,
            emit=emit,
            toolbox=toolbox_excluding(self.toolbox, run.exclude),
            call_ids=known_calls(run) if run.rounds or run.history else set(),
            guard=guard,
            on_record=self.on_record,
        )
        performance = RunLoop(
            cast,
            run,
            conductor or self.conductor,
            stream=stream,
            was_waiting=was_waiting,
            blocked=blocked,
        )
        ended = await performance.perform()
        if guard is None:
            return ended
        if ended.status == "waiting":
            self.memory.keep(ended.id, guard.hooks)
        return restored(ended, guard)

    def _guard(
        self, ledger: Ledger, excluded: Collection[str], remembered: Mapping[str, Hook] = {}
    ) -> Guard:
        """The guardrails of one run, whose verifiers draw on its budget and keep to its rules."""
        self.call_policy.bind()
        started = self.call_policy.clock() - ledger.spent.seconds

        def metered() -> Calls:
            calls = Calls(self.call_policy, ledger, started, excluded)
            calls.share = SHARE_LEFT_BY_VERIFIERS
            return calls

        return Guard(self.guardrails, self.workers, metered, remembered)

    def _pool_for(self, options: Options) -> Pool:
        pool = self.pool.without(options.exclude) if options.exclude else self.pool
        self._check_budget(options.budget, pool)
        return pool_at_depth(pool, 0, options.budget)

    def _check_demands(
        self, pool: Pool, response_options: ResponseOptions, images: tuple[Image, ...]
    ) -> None:
        """Refuse what contradicts itself, and what no worker of the pool can do."""
        if response_options is not DEFAULT_RESPONSE_OPTIONS:
            check_response_options(response_options)
            if response_options.schema is not None:
                require_sound(response_options.schema)
            own = {tool.name for tool in self.toolbox.tools} if self.toolbox is not None else set()
            for tool in response_options.tools:
                if tool.name in own:
                    raise UsageError(
                        f"the tool {tool.name!r} is one that Podium has itself; rename it"
                    )
        if images or response_options is not DEFAULT_RESPONSE_OPTIONS:
            check_pool(pool, response_options, images)

    def _check_budget(self, budget: Budget, pool: Pool) -> None:
        """A cap on money needs the price of everyone who may be asked, the planner included."""
        planner: Worker | None = getattr(self.conductor, "worker", None)
        budget.check(pool if planner is None else (*pool, planner.profile))

    def _check_workers(self, pool: Pool) -> None:
        for name in pool.names:
            if name not in self.workers:
                raise UnknownWorker(name, tuple(self.workers))


def _forget(check: Check) -> None:
    """A plan alone is no run that could keep what guardrails did."""


def _prompt_hash(conductor: Conductor) -> str:
    """A fingerprint of every prompt text that shapes the run."""
    return f"{getattr(conductor, 'prompt_hash', '')}:{context.prompt_hash()}".strip(":")
