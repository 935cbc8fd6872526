"""The runner: answer questions with one conductor and one set of workers.

It decides what a run starts with (pool, budget, options) and rejects invalid input. `run_loop`
performs the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, get_args

from podium._util.process import this_process
from podium.core.budget import (
    DEFAULT_BUDGET,
    NOTHING_SPENT,
    Budget,
    Ledger,
    SharedBudget,
    Spent,
    recorded_spending,
)
from podium.core.conductor import Conductor, PlanningContext, RequestWorkflowConductor
from podium.core.errors import (
    BudgetExhausted,
    ConfigError,
    RequestRefused,
    UnknownWorker,
    UsageError,
)
from podium.core.events import Emit, RoundPlanned, RunStarted
from podium.core.json_schema import check_schema
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile, check_demands
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    Image,
    Message,
    Reply,
    Request,
    ResponseOptions,
    ToolResult,
    message_images,
)
from podium.core.run import NO_REQUEST, ClientRequest, Round, Run, Tier, new_run_id, timestamp
from podium.core.worker import Toolbox, Worker, exclude_servers
from podium.core.workflow import DEFAULT_MAX_STEPS
from podium.engine.calls import BudgetedCaller, CallPolicy
from podium.engine.execution import RunContext
from podium.engine.guardrails.admission import admit_question, admit_results, restore_run
from podium.engine.guardrails.base import Guardrail, Hook
from podium.engine.guardrails.chain import GuardrailChain, GuardrailStates
from podium.engine.requests import prompt_hash
from podium.engine.run_loop import RunLoop, plan_round, pool_at_depth
from podium.engine.tool_calls import apply_results, tool_call_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings that may differ from run to run.

    Args:
        history: The conversation before the question.
        images: Images that belong to the question.
        trailing_messages: The messages after the question: tool calls with their results, or the
            answer's start.
        max_steps: The most steps of one plan.
        rounds: How often the conductor may plan. With more than 1 it sees the answer, and accepts
            it or plans again.
        budget: The caps of the run.
        tier: How much conducting the question gets.
        exclude: Workers, providers and MCP servers that the run, and runs nested in it, must not
            use.
        response_options: What the answer must satisfy.
        owner: The owner of the run.
        shared_budget: A budget shared with other runs.
        run_id: The run's id; made up if empty.
        request: The API request that the run answers, kept on the run.
        quality_bias: Quality over cost where a learned router chooses, from 0 (cheapest) to 1
            (best); None for the router's default.
    """

    history: tuple[Message, ...] = ()
    images: tuple[Image, ...] = ()
    trailing_messages: tuple[Message, ...] = ()
    max_steps: int = DEFAULT_MAX_STEPS
    rounds: int = 1
    budget: Budget = DEFAULT_BUDGET
    tier: Tier = "ultra"
    exclude: frozenset[str] = frozenset()
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
    owner: str = ""
    shared_budget: SharedBudget | None = None
    run_id: str = ""
    request: ClientRequest = NO_REQUEST
    quality_bias: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "rounds"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number, at least 1")
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

    def narrow(
        self,
        *,
        max_steps: int | None = None,
        rounds: int | None = None,
        caps: Mapping[str, float | None] = {},
    ) -> Options:
        """Return these options with lower limits where given; limits can only be lowered."""
        if max_steps is rounds is None and not caps:
            return self
        return replace(
            self,
            max_steps=min(self.max_steps, max_steps or self.max_steps),
            rounds=min(self.rounds, rounds or self.rounds),
            budget=self.budget.narrow(caps),
        )


VERIFIER_DIVISOR: Final = 2
"""A verifier's call may cost at most 1 / VERIFIER_DIVISOR of the rest of the budget."""


class ConductorWorker(Worker):
    """The conductor as a worker of its own pool: a step given to it is a nested run.

    Args:
        profile: Its name and description; by default `conductor`.

    """

    def __init__(self, profile: WorkerProfile | None = None) -> None:
        usual = "splits a hard subtask further and leads other workers through it"
        profile = profile or WorkerProfile(name="conductor", description=usual)
        self.profile = replace(profile, provider=CONDUCTOR_PROVIDER)

    async def reply(self, request: Request) -> Reply:
        """Raise `RequestRefused`: the engine nests a run instead of calling this."""
        raise RequestRefused(f"{self.profile.name} answers only as a step of a workflow")


class Runner:
    """Answer questions with a conductor and workers.

    `pool` is by default the workers' profiles. `nested_conductor` plans nested runs.
    `guardrail_states` keeps the state of guardrails while runs wait. `persist` waits until events
    are persisted.
    """

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
        guardrail_states: GuardrailStates | None = None,
        persist: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.conductor = conductor
        self.nested_conductor = nested_conductor or conductor
        profiles = tuple(worker.profile for worker in workers)
        self.pool = Pool(profiles) if pool is None else pool
        self.workers = {worker.profile.name: worker for worker in workers}
        self.call_policy = call_policy or CallPolicy()
        self.toolbox = toolbox
        self.guardrails = tuple(guardrails)
        self.guardrail_states = GuardrailStates() if guardrail_states is None else guardrail_states
        self.persist = persist
        self._check_workers(self.pool)

    async def run(
        self,
        question: str,
        *,
        options: Options = Options(),
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Answer the question; `stream` emits the final step's reply piece by piece."""
        run = self._new_run(question, options)
        context = self._context(run, emit, options.shared_budget)
        conductor, blocked = self.conductor, None
        if self.guardrails:
            chain = context.guardrails = self._chain(context, run)
            given = conductor.workflow if isinstance(conductor, RequestWorkflowConductor) else None
            run, workflow, blocked = await admit_question(run, chain, given)
            if workflow is not None:
                conductor = RequestWorkflowConductor(workflow)
        loop = RunLoop(context, run, conductor, stream=stream, blocked=blocked)
        return self._restored(await loop.run(), context.guardrails)

    async def resume(
        self,
        run: Run,
        *,
        results: Sequence[ToolResult] = (),
        request: ClientRequest | None = None,
        budget: Budget | None = None,
        shared_budget: SharedBudget | None = None,
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Continue a run that was interrupted or waits for tool results.

        Finished steps are not repeated.
        """
        self._check_resumable(run)
        was_waiting = run.status == "waiting"
        self._check_workers(run.pool)
        self._check_demands(run.pool, run.response_options, run.images)
        run = replace(run, budget=budget or run.budget)
        self._check_budget(run.budget, run.pool)
        context = self._context(run, emit, shared_budget, recorded_spending(run))
        chain, blocked = None, None
        apply_results(run, results)  # reject what does not fit before guardrails see it
        if self.guardrails:
            chain = context.guardrails = self._chain(
                context, run, self.guardrail_states.pop(run.id, {})
            )
            run, results, blocked = await admit_results(run, results, chain)
        earlier = run.earlier_responses
        if was_waiting:
            earlier += (replace(run.current_response, results=tuple(results)),)
        resumed = replace(
            run if blocked is not None else apply_results(run, results),
            earlier_responses=earlier,
            request=request or run.request,
            status="running",
            answer=None,
            error=None,
            context_exceeded=False,
            error_status=None,
            retry_after=None,
            conductor=self.conductor.name,
            prompt_hash=self._prompt_hash,
            process=this_process(),
            guardrails=chain.names if chain is not None else (),
        )
        loop = RunLoop(
            context,
            resumed,
            self.conductor,
            stream=stream,
            was_waiting=was_waiting,
            blocked=blocked,
        )
        return self._restored(await loop.run(), chain)

    async def execute(
        self, question: str, rounds: tuple[Round, ...], *, pool: Pool, max_steps: int
    ) -> Run:
        """Execute the last of `rounds`, which is planned already; the others are done."""
        run = Run(
            id=new_run_id(),
            question=question,
            status="running",
            pool=pool,
            conductor=self.conductor.name,
            created_at=timestamp(),
            rounds=rounds,
            max_steps=max_steps,
            max_rounds=len(rounds),
            process=this_process(),
        )
        self._check_workers(pool)
        context = self._context(run, None, spent=recorded_spending(run))
        return await RunLoop(context, run, self.conductor, stream=False).run()

    async def plan(
        self,
        question: str,
        *,
        options: Options = Options(),
        emit: Emit | None = None,
    ) -> Round:
        """Plan the first round of a run and execute nothing.

        `emit` gets the start and the round even if planning fails, because its calls were paid.
        """
        run = self._new_run(question, options)
        shared = self._context(run, emit, options.shared_budget)
        caller = BudgetedCaller(self.call_policy, shared.ledger, shared.started, options.exclude)
        deadline = asyncio.timeout(caller.seconds_left)
        round_ = None
        try:
            async with deadline:
                if self.guardrails:
                    chain = GuardrailChain(self.guardrails, self.workers, lambda: caller)
                    run, _, blocked = await admit_question(run, chain)
                    if blocked is not None:
                        raise blocked
                context = PlanningContext(
                    question=run.question,
                    pool=run.pool,
                    history=run.conversation,
                    images=run.images,
                    response_options=run.response_options,
                    max_steps=options.max_steps,
                    rounds_left=options.rounds,
                    quality_bias=options.quality_bias,
                )
                round_ = await plan_round(self.conductor, context, caller)
                return round_
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise BudgetExhausted("seconds", options.budget.seconds or 0.0) from error
        finally:
            if emit is not None:
                emit(RunStarted(run))
                emit(
                    RoundPlanned(
                        run.id, round_ or Round(0, None, planning_attempts=tuple(caller.attempts))
                    )
                )

    def _new_run(self, question: str, options: Options) -> Run:
        if not isinstance(question, str):
            raise UsageError(f"the question is a {type(question).__name__}; give a text")
        if not question.strip():
            raise UsageError("the question is empty; ask something")
        if not all(
            isinstance(turn, Message) and not isinstance(turn.parts, str)
            for turn in options.history
        ):
            raise UsageError("history holds no messages; give podium.user(…), podium.assistant(…)")
        pool = self.pool.without(options.exclude) if options.exclude else self.pool
        self._check_budget(options.budget, pool)
        if options.budget.depth == 0:
            pool = pool_at_depth(pool, 0, options.budget)
        earlier = (*options.history, *options.trailing_messages)
        asked = (*options.images, *message_images(earlier)) if earlier else options.images
        demands = options.response_options
        if demands is not DEFAULT_RESPONSE_OPTIONS and demands == DEFAULT_RESPONSE_OPTIONS:
            demands = DEFAULT_RESPONSE_OPTIONS  # the fast path of plain questions
        self._check_demands(pool, demands, asked)
        return Run(
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
            history=options.history,
            trailing_messages=options.trailing_messages,
            request=options.request,
            exclude=tuple(sorted(options.exclude)),
            prompt_hash=self._prompt_hash,
            process=this_process(),
            response_options=demands,
            images=options.images,
            owner=options.owner,
            quality_bias=options.quality_bias,
        )

    def _context(
        self,
        run: Run,
        emit: Emit | None,
        shared_budget: SharedBudget | None = None,
        spent: Spent = NOTHING_SPENT,
    ) -> RunContext:
        self.call_policy.bind()
        toolbox = self.toolbox
        return RunContext(
            nested_conductor=self.nested_conductor,
            workers=self.workers,
            call_policy=self.call_policy,
            ledger=Ledger(run.budget, spent, shared_budget=shared_budget),
            started=self.call_policy.clock() - spent.seconds,
            emit=emit,
            toolbox=exclude_servers(toolbox, run.exclude) if toolbox is not None else None,
            call_ids=tool_call_ids(run)
            if run.rounds or run.history or run.trailing_messages
            else set(),
            persist=self.persist,
        )

    def _chain(
        self, context: RunContext, run: Run, remembered: Mapping[str, Hook] = {}
    ) -> GuardrailChain:
        def verifier_caller() -> BudgetedCaller:
            caller = BudgetedCaller(
                context.call_policy, context.ledger, context.started, run.exclude
            )
            caller.budget_divisor = VERIFIER_DIVISOR
            return caller

        return GuardrailChain(self.guardrails, self.workers, verifier_caller, remembered)

    def _restored(self, ended: Run, chain: GuardrailChain | None) -> Run:
        """Return the run as its asker sees it, and keep the guardrails' state while it waits."""
        if chain is None:
            return ended
        if ended.status == "waiting":
            self.guardrail_states.keep(ended.id, chain.hooks)
        return restore_run(ended, chain)

    def _check_resumable(self, run: Run) -> None:
        """Raise `ConfigError` for a run that is answered, or would escape a guardrail."""
        if run.status == "answered":
            raise ConfigError(f"{run.id} is answered already; there is nothing to resume")
        if run.blocked_by:
            raise ConfigError(
                f"{run.id} was blocked by the guardrail {run.blocked_by!r}, and stays so; ask again"
            )
        known = {guardrail.name for guardrail in self.guardrails}
        for name in run.guardrails:
            if name not in known:
                raise ConfigError(
                    f"{run.id} began under the guardrail {name!r}, which is not in force now; "
                    f"configure it again, or ask again"
                )

    def _check_demands(
        self, pool: Pool, options: ResponseOptions, images: tuple[Image, ...]
    ) -> None:
        """Reject options that contradict themselves, and what no worker of the pool can do."""
        if not images and options is DEFAULT_RESPONSE_OPTIONS:
            return
        check_demands(pool, options, images)
        if options.schema is not None:
            check_schema(options.schema)
        own = {tool.name for tool in self.toolbox.tools} if self.toolbox is not None else set()
        for name in own.intersection(tool.name for tool in options.tools):
            raise UsageError(f"the tool {name!r} is already a tool of the toolbox; rename it")

    def _check_budget(self, budget: Budget, pool: Pool) -> None:
        """Reject a cap on money without the price of every worker, the planner included."""
        if budget.usd is not None:
            planner = self.conductor.worker
            budget.check((*pool.workers, *(() if planner is None else (planner.profile,))))

    def _check_workers(self, pool: Pool) -> None:
        for worker in pool.workers:
            if worker.name not in self.workers:
                raise UnknownWorker(worker.name, tuple(self.workers))

    @property
    def _prompt_hash(self) -> str:
        """A fingerprint of every prompt text that shapes the run."""
        return f"{self.conductor.prompt_hash}:{prompt_hash()}".strip(":")
