"""One run being performed: plan, carry out, and plan again until the answer stands.

This is where planning and execution meet. A conductor never executes and the engine never
plans; a performance hands each what the other made. Whatever a conductor does wrong ends the run as
`failed`, with the reason on it. How one round is planned is `podium.planning`, and what a run comes
to at its end `podium.ending`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from podium.core.budget import Budget, Ledger
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import (
    AuthenticationFailed,
    BudgetExhausted,
    GuardrailBlocked,
    PlanError,
    PodiumError,
    PromptTooLong,
    ReplanDemanded,
    RequestRefused,
    UnknownWorker,
)
from podium.core.events import (
    Emit,
    Event,
    GuardrailActed,
    Planned,
    RoundDone,
    RunDone,
    RunStarted,
    StepDone,
    StepNoted,
)
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.request import DEFAULT_RESPONSE_OPTIONS
from podium.core.requirements import fitted
from podium.core.run import ANSWERING, Round, Run, RunStatus, StepRecord, new_run_id, timestamp
from podium.core.run_records import Attempt
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.engine import (
    Assignment,
    CallPolicy,
    Calls,
    Delegation,
    Execution,
    Scope,
    Toolbox,
)
from podium.engine.guardrails import Guard
from podium.engine.guardrails.admission import Inspector, restorer
from podium.engine.outcome import (
    answer_while_waiting,
    answering_step,
    is_final,
    status_at_the_end,
    what_blocked,
    what_went_wrong,
)


async def planned(conductor: Conductor, context: PlanningContext, calls: Calls) -> Round:
    """The next round as the conductor plans it, checked; `PlanError` where it cannot be used."""
    try:
        plan = await conductor.plan(context, calls)
    except PodiumError:
        raise
    except Exception as error:
        raise PlanError(f"{conductor.name} raised {type(error).__name__}: {error}") from error
    if not isinstance(plan, Plan):
        raise PlanError(f"{conductor.name} returned {type(plan).__name__}, not a Plan")
    if plan.workflow is not None:
        plan.workflow.check(context.pool.names, context.max_steps)
        if plan.role in ANSWERING and (
            context.images or context.response_options is not DEFAULT_RESPONSE_OPTIONS
        ):
            plan = _fitted(plan, plan.workflow, context)
    elif context.answer is None:
        raise PlanError(f"{conductor.name} accepted the answer, but there is none yet")
    return Round(
        len(context.rounds),
        plan.workflow,
        planning=tuple(calls.attempts),
        plan_text=plan.text,
        warnings=plan.warnings,
        accepted=plan.workflow is None,
        role=plan.role,
        routed=plan.routed,
    )


def _fitted(plan: Plan, workflow: Workflow, context: PlanningContext) -> Plan:
    """The plan, with its final step given to a worker that can do what the question demands."""
    workflow, warnings = fitted(workflow, context.pool, context.response_options, context.images)
    return replace(plan, workflow=workflow, warnings=plan.warnings + warnings) if warnings else plan


def pool_at_depth(pool: Pool, depth: int, budget: Budget) -> Pool:
    """The pool without conductors where a run may not nest any deeper."""
    names = [worker.name for worker in pool if worker.provider == CONDUCTOR_PROVIDER]
    return pool.without(names) if names and depth >= budget.depth else pool


SHARE_LEFT_BY_PLANNING = 2
"""A plan may cost one part in so many of what is left: without the rest it is worth nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run shares with the runs nested in it. `conductor` leads the nested ones. `call_ids`
    are those of all tool calls so far. `guard` is None where there are no guardrails. `on_record`
    waits until what has happened is, where nothing may be done before: when a run has begun, and
    when a round of it is planned."""

    conductor: Conductor
    workers: Mapping[str, Worker]
    call_policy: CallPolicy
    ledger: Ledger
    emit: Emit | None
    toolbox: Toolbox | None = None
    call_ids: set[str] = field(default_factory=set)
    guard: Guard | None = None
    on_record: Callable[[], Awaitable[None]] | None = None


class RunLoop:
    """A run, from its first plan to its end, or until it waits. A run that `was_waiting` goes on
    with the steps that did, and leaves those that failed as they are. One that is `blocked` before
    it begins ends at once."""

    def __init__(
        self,
        cast: RunContext,
        run: Run,
        conductor: Conductor,
        *,
        stream: bool,
        was_waiting: bool = False,
        blocked: GuardrailBlocked | None = None,
    ) -> None:
        self._cast = cast
        self._run = run
        self._conductor = conductor
        self._stream = stream
        self._was_waiting = was_waiting
        self._waits = False
        self._started = cast.call_policy.clock() - cast.ledger.spent.seconds
        self._rounds = list(run.rounds)
        self._planning_cut_off: tuple[Attempt, ...] = ()
        if self._rounds and self._rounds[-1].workflow is None and not self._rounds[-1].accepted:
            self._planning_cut_off = self._rounds.pop().planning
        self._too_long = False
        self._refused = False
        self.stopped_by: PodiumError | None = blocked
        self._objection: ReplanDemanded | None = None
        self._checks = list(run.checks)
        self._checked_answer: str | None = None
        self._execution: Execution | None = None
        self._keep: Callable[[Run], None] | None = None

    async def perform(
        self,
        parent: tuple[str, int] | None = None,
        keep: Callable[[Run], None] | None = None,
    ) -> Run:
        """Carry the run through to its end; `keep` gets it whenever it has got further, and as
        it ends, even when it is cancelled."""
        self._keep = keep
        guard = self._cast.guard
        restore = restorer(guard, self._run.response_options) if guard is not None else None
        self._tell(RunStarted(self._run, parent, restore))
        run = self._run
        try:
            await self._be_on_record()
            await self._all_rounds()
            if self._inspects_answers:
                await self._check_what_else_answers()
            run = self._ended()
        except BaseException:
            run = self._ended("interrupted")
            raise
        finally:
            if keep is not None:
                keep(run)
            self._tell(RunDone(run))
        return run

    @property
    def blocked(self) -> GuardrailBlocked | None:
        """What a guardrail did not let through, where that ends the run: a plan that it demanded
        and did not get, too."""
        return what_blocked(self._rounds, self.stopped_by, self._objection)

    @property
    def _inspects_answers(self) -> bool:
        guard = self._cast.guard
        return guard is not None and self._run.depth == 0 and guard.looks_at("answer")

    async def _check_what_else_answers(self) -> None:
        """Have guardrails look at an answer that no final step gave, and that they have not seen
        as one."""
        best = answering_step(self._rounds, self._run.response_options)
        if best is None or is_final(best, self._rounds) or self._waits or self.blocked is not None:
            return
        inspector = self._inspector(best.round)
        assert inspector is not None, "somebody inspects answers"
        others = [step for step in self._rounds[best.round].steps if step is not best]
        try:
            self._checked_answer = await inspector.answer(
                best.reply, None, best.answered_by or best.worker, others, self._checks.append
            )
        except GuardrailBlocked as error:
            self.stopped_by = error

    def _inspector(self, round_: int) -> Inspector | None:
        """Who looks at the replies of that round, if anybody does."""
        guard = self._cast.guard
        if guard is None or not (guard.looks_at("reply") or self._inspects_answers):
            return None
        return Inspector(
            guard,
            self._run.id,
            self._run.question,
            round_,
            self._readable(round_),
            answers=self._run.depth == 0,
            tell=lambda check: self._tell(GuardrailActed(self._run.id, check)),
        )

    async def _all_rounds(self) -> None:
        seconds_left = self._cast.ledger.seconds_left if self._run.depth == 0 else None
        deadline = asyncio.timeout(seconds_left)
        try:
            async with deadline:
                if self.stopped_by is None and self._rounds and self._rounds[-1].unfinished:
                    await self._carry_out()
                while self._may_plan() and await self._plan():
                    await self._carry_out()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.stopped_by = BudgetExhausted("seconds", self._run.budget.seconds or 0.0)
        except PodiumError as error:
            self.stopped_by = error
            self._too_long = isinstance(error, PromptTooLong)
            self._refused = isinstance(error, AuthenticationFailed | RequestRefused)

    def _may_plan(self) -> bool:
        return (
            self.stopped_by is None
            and not self._waits
            and len(self._rounds) < self._run.max_rounds
            and not (self._rounds and self._rounds[-1].accepted)
        )

    async def _plan(self) -> bool:
        """Have the next round planned; False when the last answer was accepted instead."""
        calls = Calls(self._cast.call_policy, self._cast.ledger, self._started, self._run.exclude)
        calls.share = SHARE_LEFT_BY_PLANNING
        calls.attempts.extend(self._planning_cut_off)
        self._planning_cut_off = ()
        context = PlanningContext(
            question=self._run.question,
            pool=self._run.pool,
            history=self._run.history,
            rounds=tuple(self._rounds),
            max_steps=self._run.max_steps,
            images=self._run.images,
            response_options=self._run.response_options,
            objection=self._objection.reason if self._objection is not None else "",
            rounds_left=self._run.max_rounds - len(self._rounds),
            quality_bias=self._run.quality_bias,
        )
        self._rounds.append(Round(len(self._rounds), None))
        try:
            round_ = await planned(self._conductor, context, calls)
        except BaseException as error:
            self._rounds[-1] = replace(self._rounds[-1], planning=tuple(calls.attempts))
            if isinstance(error, UnknownWorker) and self._is_too_deep(error.name):
                raise BudgetExhausted("depth", self._run.budget.depth) from error
            raise
        self._rounds[-1] = round_
        self._tell(Planned(self._run.id, round_))
        await self._be_on_record()
        return not round_.accepted

    async def _be_on_record(self) -> None:
        if self._cast.on_record is not None and self._run.depth == 0:
            await self._cast.on_record()

    def _is_too_deep(self, name: str) -> bool:
        """Whether that worker is not in the pool only because it would nest too deep."""
        worker = self._cast.workers.get(name)
        return worker is not None and worker.profile.provider == CONDUCTOR_PROVIDER

    async def _carry_out(self) -> None:
        """Carry out the last round's workflow; what was done is kept even if it is cut off."""
        round_ = self._rounds[-1]
        assert round_.workflow is not None, "only a planned round is carried out"
        self._execution = execution = Execution(
            Assignment(
                workflow=round_.workflow,
                question=self._run.question,
                pool=self._run.pool,
                history=self._run.history,
                round=round_.index,
                previous=self._readable(round_.index),
                answers=round_.answers,
                finished={step.index: step for step in round_.steps},
                keeps_failures=self._was_waiting,
                images=self._run.images,
                response_options=self._run.response_options,
            ),
            self._cast.workers,
            self._cast.call_policy,
            Scope(
                run_id=self._run.id,
                ledger=self._cast.ledger,
                emit=None if self._cast.emit is None else self._tell,
                started=self._started,
                nest=self._nest,
                toolbox=self._cast.toolbox,
                call_ids=self._cast.call_ids,
                inspection=self._inspector(round_.index),
            ),
            stream=self._stream,
        )
        try:
            await execution.carry_out()
        finally:
            self._rounds[-1] = replace(round_, steps=execution.steps_so_far())
            self._execution = None
        self.stopped_by = execution.exhausted
        if self._rounds[-1].final is not None:
            self._objection = None
        if isinstance(execution.blocked, ReplanDemanded):
            self._objection = execution.blocked
        elif execution.blocked is not None:
            self.stopped_by = execution.blocked
        self._too_long = execution.too_long
        self._refused = execution.refused
        self._was_waiting = False
        self._waits = execution.waits and self.stopped_by is None
        if not execution.waits:
            self._tell(RoundDone(self._run.id, self._rounds[-1]))

    def _readable(self, index: int) -> tuple[Round, ...]:
        """What steps of that round may read of earlier ones: those of the round before, and in a
        round with a role those of every round."""
        first = 0 if self._rounds[index].role is not None else max(0, index - 1)
        return tuple(self._rounds[first:index])

    async def _nest(self, delegation: Delegation, keep: Callable[[Run], None]) -> None:
        """Answer a subtask as a run of its own, on the same ledger."""
        above = self._run
        depth = above.depth + 1
        if depth > above.budget.depth:
            raise BudgetExhausted("depth", above.budget.depth)
        begun = delegation.begun
        run = begun or replace(
            above,
            id=new_run_id(),
            conductor=self._cast.conductor.name,
            question=delegation.question,
            history=delegation.history,
            pool=pool_at_depth(above.pool, depth, above.budget),
            created_at=timestamp(),
            rounds=(),
            checks=(),
            depth=depth,
        )
        run = replace(
            run,
            status="running",
            answer=None,
            error=None,
            response_options=delegation.response_options,
        )
        nested = RunLoop(
            self._cast,
            run,
            self._cast.conductor,
            stream=delegation.stream,
            was_waiting=begun is not None and begun.status == "waiting",
        )
        ended = await nested.perform((above.id, delegation.step), keep)
        if nested.blocked is not None:
            raise nested.blocked
        if ended.answer is None and isinstance(nested.stopped_by, BudgetExhausted):
            raise nested.stopped_by

    def _ended(self, status: RunStatus | None = None) -> Run:
        """The run as it stands at its end, or while it waits. Without a status, what was achieved
        decides."""
        rounds, checks, spent = tuple(self._rounds), tuple(self._checks), self._cast.ledger.spent
        best, blocked = answering_step(rounds, self._run.response_options), self.blocked
        if status is None:
            if self._waits:
                said = answer_while_waiting(rounds)
                return replace(
                    self._run,
                    status="waiting",
                    answer=said,
                    checks=checks,
                    rounds=rounds,
                    spent=spent,
                )
            if blocked is not None:
                status, best = "failed", None
            else:
                status = status_at_the_end(rounds, best, self.stopped_by)
        wrong = what_went_wrong(rounds, self.stopped_by)
        return replace(
            self._run,
            status=status,
            answer=self._answer(best) if best is not None else None,
            error=str(blocked) if blocked is not None else wrong,
            too_long=self._too_long and status == "failed",
            refused=self._refused,
            spent_cap=self.stopped_by.cap if isinstance(self.stopped_by, BudgetExhausted) else "",
            blocked_by=blocked.guardrail if blocked is not None and status == "failed" else "",
            checks=checks,
            rounds=rounds,
            spent=spent,
        )

    def _answer(self, best: StepRecord) -> str | None:
        """What is told of that step as the answer: as guardrails left it, where they look at
        answers."""
        if self._inspects_answers and not is_final(best, self._rounds):
            return self._checked_answer
        return best.reply

    def _tell(self, event: Event) -> None:
        if self._cast.emit is None:
            return
        self._cast.emit(event)
        if self._keep is not None and isinstance(event, Planned | StepNoted | StepDone):
            self._keep(self._so_far())

    def _so_far(self) -> Run:
        """The run as a resume would take it up, should the process end now."""
        rounds = list(self._rounds)
        if self._execution is not None:
            rounds[-1] = replace(rounds[-1], steps=self._execution.steps_so_far())
        return replace(self._run, rounds=tuple(rounds), checks=tuple(self._checks))
