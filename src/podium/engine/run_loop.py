"""One run: plan, execute, and plan again until the answer stands.

Planning and execution meet here: a conductor never executes, and an execution never plans.
Whatever a conductor does wrong ends the run as `failed`, with the reason in `error`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from podium.core.budget import Budget
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import (
    AuthenticationFailed,
    BudgetExhausted,
    GuardrailBlocked,
    PlanError,
    PodiumError,
    PromptTooLong,
    ReplanRequested,
    RequestRefused,
    UnknownWorker,
    WorkerError,
)
from podium.core.events import (
    Event,
    GuardrailActed,
    RoundDone,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDone,
    StepProgress,
)
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Message, ResponseOptions
from podium.core.requirements import fit_workflow
from podium.core.run import (
    ANSWERING,
    Attempt,
    Round,
    Run,
    RunStatus,
    StepRecord,
    new_run_id,
    timestamp,
    visible_answer_step,
)
from podium.engine.calls import Calls
from podium.engine.execution import Execution, RunContext
from podium.engine.guardrails.admission import Inspector, restorer

PLANNING_SHARE = 2
"""A plan may cost one part in so many of what is left: the rest is for its execution."""


async def plan_round(conductor: Conductor, context: PlanningContext, calls: Calls) -> Round:
    """Have the conductor plan the next round; raise `PlanError` for an unusable plan."""
    try:
        plan = await conductor.plan(context, calls)
    except PodiumError:
        raise
    except Exception as error:
        raise PlanError(f"{conductor.name} raised {type(error).__name__}: {error}") from error
    if not isinstance(plan, Plan):
        raise PlanError(f"{conductor.name} returned {type(plan).__name__}, not a Plan")
    workflow, warnings = plan.workflow, plan.warnings
    options = context.response_options
    if workflow is not None:
        workflow.check(context.pool.names, context.max_steps)
        has_demands = context.images or options is not DEFAULT_RESPONSE_OPTIONS
        if plan.role in ANSWERING and has_demands:
            workflow, more = fit_workflow(workflow, context.pool, options, context.images)
            warnings += more
    elif context.answer is None:
        raise PlanError(f"{conductor.name} accepted the answer, but there is none yet")
    return Round(
        len(context.rounds),
        workflow,
        planning=tuple(calls.attempts),
        plan_text=plan.text,
        warnings=warnings,
        accepted=workflow is None,
        role=plan.role,
        routed=plan.routed,
    )


def pool_at_depth(pool: Pool, depth: int, budget: Budget) -> Pool:
    """Return the pool, without conductors where runs may not nest deeper."""
    names = [worker.name for worker in pool if worker.provider == CONDUCTOR_PROVIDER]
    return pool.without(names) if names and depth >= budget.depth else pool


class RunLoop:
    """A run, from its first plan to its end, or until it waits.

    A run that `was_waiting` continues its waiting steps and keeps the failed ones. A run `blocked`
    before it begins ends at once.
    """

    def __init__(
        self,
        context: RunContext,
        run: Run,
        conductor: Conductor,
        *,
        stream: bool,
        was_waiting: bool = False,
        blocked: GuardrailBlocked | None = None,
    ) -> None:
        self._context = context
        self._run = run
        self._conductor = conductor
        self._stream = stream
        self._was_waiting = was_waiting
        self._waits = False
        self._started = context.call_policy.clock() - context.ledger.spent.seconds
        self._rounds = list(run.rounds)
        self._interrupted_planning: tuple[Attempt, ...] = ()
        if self._rounds and self._rounds[-1].workflow is None and not self._rounds[-1].accepted:
            self._interrupted_planning = self._rounds.pop().planning
        self._too_long = False
        self._refused = False
        self._failure: WorkerError | None = None
        self.stopped_by: PodiumError | None = blocked
        self._objection: ReplanRequested | None = None
        self._checks = list(run.checks)
        self._checked_answer: str | None = None
        self._execution: Execution | None = None
        self._keep: Callable[[Run], None] | None = None

    async def run(
        self,
        parent: tuple[str, int] | None = None,
        keep: Callable[[Run], None] | None = None,
    ) -> Run:
        """Perform the run. `keep` gets it after every change and at its end, even if cancelled."""
        self._keep = keep
        guardrails, run = self._context.guardrails, self._run
        restore = restorer(guardrails, run.response_options) if guardrails is not None else None
        self._emit(RunStarted(run, parent, restore))
        try:
            await self._persist()
            await self._run_rounds()
            if self._checks_answers:
                await self._check_other_answer()
            run = self._ended()
        except BaseException:
            run = self._ended("interrupted")
            raise
        finally:
            if keep is not None:
                keep(run)
            self._emit(RunDone(run))
        return run

    @property
    def blocked(self) -> GuardrailBlocked | None:
        """The guardrail's error that ends the run, if one does."""
        return blocking_error(self._rounds, self.stopped_by, self._objection)

    async def _run_rounds(self) -> None:
        seconds_left = self._context.ledger.seconds_left if self._run.depth == 0 else None
        deadline = asyncio.timeout(seconds_left)
        try:
            async with deadline:
                if self.stopped_by is None and self._rounds and self._rounds[-1].unfinished:
                    await self._execute()
                while self._may_plan() and await self._plan():
                    await self._execute()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.stopped_by = BudgetExhausted("seconds", self._run.budget.seconds or 0.0)
        except PodiumError as error:
            self.stopped_by = error
            self._failure = error if isinstance(error, WorkerError) else None
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
        """Plan the next round; False if the conductor accepted the last answer instead."""
        context, run = self._context, self._run
        calls = Calls(context.call_policy, context.ledger, self._started, run.exclude)
        calls.share = PLANNING_SHARE
        calls.attempts.extend(self._interrupted_planning)
        self._interrupted_planning = ()
        planning = PlanningContext(
            question=run.question,
            pool=run.pool,
            history=run.conversation,
            rounds=tuple(self._rounds),
            max_steps=run.max_steps,
            images=run.images,
            response_options=run.response_options,
            objection=self._objection.reason if self._objection is not None else "",
            rounds_left=run.max_rounds - len(self._rounds),
            quality_bias=run.quality_bias,
        )
        self._rounds.append(Round(len(self._rounds), None))
        try:
            round_ = await plan_round(self._conductor, planning, calls)
        except BaseException as error:
            self._rounds[-1] = replace(self._rounds[-1], planning=tuple(calls.attempts))
            if isinstance(error, UnknownWorker) and self._is_too_deep(error.name):
                raise BudgetExhausted("depth", run.budget.depth) from error
            raise
        self._rounds[-1] = round_
        self._emit(RoundPlanned(run.id, round_))
        await self._persist()
        return not round_.accepted

    async def _persist(self) -> None:
        if self._context.persist is not None and self._run.depth == 0:
            await self._context.persist()

    def _is_too_deep(self, name: str) -> bool:
        """True if the worker is a conductor, missing in the pool only because of its depth."""
        worker = self._context.workers.get(name)
        return worker is not None and worker.profile.provider == CONDUCTOR_PROVIDER

    async def _execute(self) -> None:
        """Execute the last round's workflow; finished steps are kept even if it is cut off."""
        context, run, round_ = self._context, self._run, self._rounds[-1]
        emit = context.emit if self._keep is None or context.emit is None else self._emit
        self._execution = execution = Execution(
            context,
            run,
            round_,
            started=self._started,
            emit=emit,
            nest=self._nest,
            previous=self._readable_rounds(round_.index),
            inspector=self._inspector(round_.index),
            keeps_failures=self._was_waiting,
            stream=self._stream,
        )
        try:
            await execution.execute()
        finally:
            self._rounds[-1] = replace(round_, steps=execution.steps_so_far())
            self._execution = None
        self.stopped_by = execution.exhausted
        if self._rounds[-1].final is not None:
            self._objection = None
        if isinstance(execution.blocked, ReplanRequested):
            self._objection = execution.blocked
        elif execution.blocked is not None:
            self.stopped_by = execution.blocked
        self._too_long = execution.too_long
        self._refused = execution.refused
        failures = execution.failures
        self._failure = failures.get(execution.last) or (
            failures[min(failures)] if failures else None
        )
        self._was_waiting = False
        self._waits = execution.waits and self.stopped_by is None
        if not execution.waits:
            self._emit(RoundDone(run.id, self._rounds[-1]))

    def _readable_rounds(self, index: int) -> tuple[Round, ...]:
        """Return the rounds that steps of that round may read: one before, or all with a role."""
        first = 0 if self._rounds[index].role is not None else max(0, index - 1)
        return tuple(self._rounds[first:index])

    async def _nest(
        self,
        question: str,
        history: tuple[Message, ...],
        trailing: tuple[Message, ...],
        options: ResponseOptions,
        *,
        step: int,
        begun: Run | None,
        stream: bool,
        keep: Callable[[Run], None],
    ) -> None:
        """Answer a subtask as a nested run on the same ledger."""
        above = self._run
        depth = above.depth + 1
        if depth > above.budget.depth:
            raise BudgetExhausted("depth", above.budget.depth)
        run = begun or replace(
            above,
            id=new_run_id(),
            conductor=self._context.conductor.name,
            question=question,
            history=history,
            trailing=trailing,
            fingerprint="",
            exchanges=(),
            pool=pool_at_depth(above.pool, depth, above.budget),
            created_at=timestamp(),
            rounds=(),
            checks=(),
            depth=depth,
        )
        run = replace(run, status="running", answer=None, error=None, response_options=options)
        nested = RunLoop(
            self._context,
            run,
            self._context.conductor,
            stream=stream,
            was_waiting=begun is not None and begun.status == "waiting",
        )
        ended = await nested.run((above.id, step), keep)
        if nested.blocked is not None:
            raise nested.blocked
        if ended.answer is None and isinstance(nested.stopped_by, BudgetExhausted):
            raise nested.stopped_by

    @property
    def _checks_answers(self) -> bool:
        guardrails = self._context.guardrails
        return guardrails is not None and self._run.depth == 0 and guardrails.has_stage("answer")

    def _inspector(self, round_: int) -> Inspector | None:
        guardrails = self._context.guardrails
        if guardrails is None or not (guardrails.has_stage("reply") or self._checks_answers):
            return None
        return Inspector(
            guardrails,
            self._run.id,
            self._run.question,
            round_,
            self._readable_rounds(round_),
            answers=self._run.depth == 0,
            emit=lambda check: self._emit(GuardrailActed(self._run.id, check)),
        )

    async def _check_other_answer(self) -> None:
        """Apply guardrails on answers to one that is not a final step's reply."""
        best = answer_step(self._rounds, self._run.response_options)
        if best is None or is_final(best, self._rounds) or self._waits or self.blocked is not None:
            return
        inspector = self._inspector(best.round)
        assert inspector is not None, "there are guardrails on answers"
        others = [step for step in self._rounds[best.round].steps if step is not best]
        try:
            worker = best.answered_by or best.worker
            self._checked_answer = await inspector.check(
                "answer", best.reply, None, worker, self._checks.append, others
            )
        except GuardrailBlocked as error:
            self.stopped_by = error

    def _ended(self, status: RunStatus | None = None) -> Run:
        """Return the run at its end, or while it waits; without a status, decide it."""
        rounds, checks, spent = tuple(self._rounds), tuple(self._checks), self._context.ledger.spent
        best, blocked = answer_step(rounds, self._run.response_options), self.blocked
        if status is None:
            if self._waits:
                return replace(
                    self._run,
                    status="waiting",
                    answer=waiting_answer(rounds),
                    checks=checks,
                    rounds=rounds,
                    spent=spent,
                )
            if blocked is not None:
                status, best = "failed", None
            else:
                status = end_status(rounds, best, self.stopped_by)
        answer = best.reply if best is not None else None
        if best is not None and self._checks_answers and not is_final(best, rounds):
            answer = self._checked_answer
        stopped_by, failure = self.stopped_by, self._failure
        if status not in ("failed", "partial"):
            failure = None
        return replace(
            self._run,
            status=status,
            answer=answer,
            error=str(blocked) if blocked is not None else first_error(rounds, stopped_by),
            too_long=self._too_long and status == "failed",
            refused=self._refused,
            error_status=failure.status if failure is not None else None,
            retry_after=failure.retry_after if failure is not None else None,
            spent_cap=stopped_by.cap if isinstance(stopped_by, BudgetExhausted) else "",
            blocked_by=blocked.guardrail if blocked is not None and status == "failed" else "",
            checks=checks,
            rounds=rounds,
            spent=spent,
        )

    def _emit(self, event: Event) -> None:
        if self._context.emit is None:
            return
        self._context.emit(event)
        if self._keep is not None and isinstance(event, RoundPlanned | StepProgress | StepDone):
            self._keep(self._so_far())

    def _so_far(self) -> Run:
        """Return the run as a resume would continue it."""
        rounds = list(self._rounds)
        if self._execution is not None:
            rounds[-1] = replace(rounds[-1], steps=self._execution.steps_so_far())
        return replace(self._run, rounds=tuple(rounds), checks=tuple(self._checks))


# The outcome of a run, read from its rounds


def is_answered(rounds: Sequence[Round]) -> bool:
    """True if the final step of some round is done."""
    return any(round_.final is not None for round_ in rounds)


def is_final(step: StepRecord, rounds: Sequence[Round]) -> bool:
    """True if the step is the final one of its round, and done."""
    return any(step is round_.final for round_ in rounds)


def answer_step(rounds: Sequence[Round], options: ResponseOptions) -> StepRecord | None:
    """Return the step whose reply is the answer; with a schema, only a final step can be."""
    best = visible_answer_step(rounds)
    if best is None or options.schema is None or is_final(best, rounds):
        return best
    return None


def waiting_answer(rounds: Sequence[Round]) -> str | None:
    """Return the text that came with the final step's tool calls while a run waits."""
    round_, last = rounds[-1], rounds[-1].steps[-1]
    is_last = round_.workflow is not None and last.index == len(round_.workflow) - 1
    return (last.reply or None) if is_last and round_.answers else None


def end_status(
    rounds: Sequence[Round], best: StepRecord | None, stopped_by: PodiumError | None
) -> RunStatus:
    """Return the status of an ended run that no guardrail blocked."""
    if is_answered(rounds):
        return "answered"
    if best is not None:
        return "partial"
    return "exhausted" if isinstance(stopped_by, BudgetExhausted) else "failed"


def blocking_error(
    rounds: Sequence[Round], stopped_by: PodiumError | None, unmet: ReplanRequested | None
) -> GuardrailBlocked | None:
    """Return the guardrail's error that ends the run: a block, or a replan it did not get."""
    if isinstance(stopped_by, GuardrailBlocked):
        return stopped_by
    if unmet is None or is_answered(rounds):
        return None
    why = str(stopped_by) if stopped_by is not None else "no round is left to plan"
    return GuardrailBlocked(unmet.guardrail, unmet.stage, f"{unmet.reason}; {why}")


def first_error(rounds: Sequence[Round], stopped_by: PodiumError | None) -> str | None:
    """Return what went wrong in the last executed round: in its final step, else first."""
    if stopped_by is not None:
        return str(stopped_by)
    executed = [round_ for round_ in rounds if round_.workflow is not None]
    if not executed:
        return None
    unfinished = [step for step in executed[-1].steps if step.status != "done"]
    if unfinished:
        last = unfinished[-1]
        is_final = executed[-1].workflow is not None and last.index + 1 == len(
            executed[-1].workflow
        )
        step = last if is_final and last.status == "failed" else unfinished[0]
        return f"step {step.index} ({step.worker}) {step.status}: {step.error}"
    final = executed[-1].final
    if final is None:
        return None
    if final.nested and final.nested[-1].error is not None:
        return final.nested[-1].error
    if final.finish == "length":
        return f"{final.answered_by} reached its output limit, so the answer is cut off"
    return None
