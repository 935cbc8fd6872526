"""One run: plan, execute, and plan again until the answer stands.

Planning and execution meet here: a conductor never executes, and an execution never plans.
Whatever a conductor does wrong ends the run as `failed`, with the reason in `error`. Of a workflow,
every step starts as soon as the steps it waits for are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

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
    Emit,
    Event,
    GuardrailActed,
    RoundDone,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDone,
    StepProgress,
)
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, fit_workflow
from podium.core.request import (
    DEFAULT_RESPONSE_OPTIONS,
    Image,
    Message,
    ResponseOptions,
    images_in,
    message_images,
)
from podium.core.run import (
    ANSWER_ROLES,
    NO_REQUEST,
    Round,
    Run,
    RunStatus,
    StepRecord,
    answer_steps,
    new_run_id,
    streamed_answer_step,
    timestamp,
)
from podium.engine.calls import BudgetedCaller
from podium.engine.early import EarlyExecution
from podium.engine.execution import Execution, RunContext, wait_for_end
from podium.engine.guardrails.admission import ReplyChecker, restorer

PLANNING_DIVISOR: Final = 2
"""A planning call may cost at most 1 / PLANNING_DIVISOR of the rest of the budget."""


async def plan_round(
    conductor: Conductor, context: PlanningContext, caller: BudgetedCaller
) -> Round:
    """Have the conductor plan the next round; raise `PlanError` for an unusable plan."""
    try:
        plan = await conductor.plan(context, caller)
    except PodiumError:
        raise
    except Exception as error:
        raise PlanError(f"{conductor.name} raised {type(error).__name__}: {error}") from error
    if not isinstance(plan, Plan):
        raise PlanError(f"{conductor.name} returned {type(plan).__name__}, not a Plan")
    workflow, warnings = plan.workflow, plan.warnings
    options = context.response_options
    if workflow is not None:
        names = [worker.name for worker in context.pool.workers]
        workflow.check(names, context.max_steps)
        images, shown = context.images, tuple[Image, ...]()
        if context.history:
            images, shown = (
                (*images, *message_images(context.history)),
                images_in(context.history),
            )
        has_demands = images or shown or options is not DEFAULT_RESPONSE_OPTIONS
        if plan.role in ANSWER_ROLES and has_demands:
            workflow, more = fit_workflow(workflow, context.pool, options, images, shown)
            warnings += more
    elif context.answer is None:
        raise PlanError(f"{conductor.name} accepted the answer, but there is none yet")
    return Round(
        len(context.rounds),
        workflow,
        planning_attempts=tuple(caller.attempts),
        plan_text=plan.text,
        warnings=warnings,
        accepts_answer=workflow is None,
        role=plan.role,
        routing=plan.routing,
    )


def pool_at_depth(pool: Pool, depth: int, budget: Budget) -> Pool:
    """Return the pool, without conductors where runs may not nest deeper."""
    names = [worker.name for worker in pool.workers if worker.provider == CONDUCTOR_PROVIDER]
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
        self._is_waiting = False
        self._rounds = list(run.rounds)
        self._interrupted: Round | None = None
        """The round whose planning was cut off, if one was: its calls stay on record."""
        if (
            self._rounds
            and self._rounds[-1].workflow is None
            and not self._rounds[-1].accepts_answer
        ):
            self._interrupted = self._rounds.pop()
        self._failures: Sequence[WorkerError] = ()
        """The workers' errors in the last round; the one that counts comes first."""
        self.stopped_by: PodiumError | None = blocked
        self._objection: ReplanRequested | None = None
        self._checks = list(run.guardrail_checks)
        self._checked_answer: str | None = None
        self._execution: Execution | None = None
        self._on_change: Callable[[Run], None] | None = None

    async def run(
        self,
        parent: tuple[str, int] | None = None,
        on_change: Callable[[Run], None] | None = None,
    ) -> Run:
        """Perform the run. `on_change` gets it after every change and however it ends."""
        self._on_change = on_change
        guardrails, run = self._context.guardrails, self._run
        restore = restorer(guardrails, run.response_options) if guardrails is not None else None
        self._emit(RunStarted(run, parent, restore))
        try:
            await self._persist()
            await self._run_rounds()
            if self._checks_answers:
                await self._check_other_answer()
            run = self._end_run()
        except BaseException:
            run = self._end_run("interrupted")
            raise
        finally:
            if on_change is not None:
                on_change(run)
            self._emit(RunDone(run))
        return run

    @property
    def blocked(self) -> GuardrailBlocked | None:
        """The guardrail's error that ends the run, if one does."""
        return blocking_error(self._rounds, self.stopped_by, self._objection)

    async def _run_rounds(self) -> None:
        run = self._run
        is_timed = run.depth == 0 and run.budget.seconds is not None
        deadline = asyncio.timeout(self._context.ledger.seconds_left if is_timed else None)
        try:
            async with deadline:
                if self.stopped_by is None and self._rounds and self._rounds[-1].is_unfinished:
                    await self._execute()
                while self._can_plan() and await self._plan():
                    await self._execute()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.stopped_by = BudgetExhausted("seconds", run.budget.seconds or 0.0)
        except PodiumError as error:
            self.stopped_by = error
            self._failures = (error,) if isinstance(error, WorkerError) else ()

    def _can_plan(self) -> bool:
        return (
            self.stopped_by is None
            and not self._is_waiting
            and len(self._rounds) < self._run.max_rounds
            and not (self._rounds and self._rounds[-1].accepts_answer)
        )

    async def _plan(self) -> bool:
        """Plan the next round; False if the conductor accepted the last answer instead."""
        context, run = self._context, self._run
        caller = BudgetedCaller(context.call_policy, context.ledger, context.started, run.exclude)
        caller.budget_divisor = PLANNING_DIVISOR
        cancelled: tuple[StepRecord, ...] = ()
        if self._interrupted is not None:
            caller.attempts.extend(self._interrupted.planning_attempts)
            cancelled, self._interrupted = self._interrupted.cancelled_steps, None
        early = EarlyExecution(context, run, len(self._rounds), self._conductor.worker, self._open)
        planning = PlanningContext(
            question=run.question,
            pool=run.pool,
            history=run.conversation if run.trailing_messages else run.history,
            rounds=tuple(self._rounds),
            max_steps=run.max_steps,
            images=run.images,
            response_options=run.response_options,
            replan_reason=self._objection.reason if self._objection is not None else "",
            rounds_left=run.max_rounds - len(self._rounds),
            quality_bias=run.quality_bias,
            early=early,
        )
        try:
            round_ = await plan_round(self._conductor, planning, caller)
            if early.has_begun:
                round_, self._execution = await early.resolve_plan(round_)
        except BaseException as error:
            try:
                await early.stop("there is no plan")
            finally:
                cancelled += early.cancelled_steps
                attempts = tuple(caller.attempts)
                self._rounds.append(
                    Round(
                        len(self._rounds),
                        None,
                        planning_attempts=attempts,
                        cancelled_steps=cancelled,
                    )
                )
            if isinstance(error, UnknownWorker) and self._is_too_deep(error.name):
                raise BudgetExhausted("depth", run.budget.depth) from error
            raise
        if cancelled:
            round_ = replace(round_, cancelled_steps=cancelled + round_.cancelled_steps)
        self._rounds.append(round_)
        try:
            self._emit(RoundPlanned(run.id, round_))
            if self._execution is not None:
                early.events.release(self._emit)
            await self._persist()
        except BaseException:
            if self._execution is not None:
                self._execution.cancel()
                try:
                    await wait_for_end(self._execution.tasks)
                finally:
                    self._rounds[-1] = self._so_far().rounds[-1]
                    self._execution = None
            raise
        return not round_.accepts_answer

    async def _persist(self) -> None:
        if self._context.persist is not None and self._run.depth == 0:
            await self._context.persist()

    def _is_too_deep(self, name: str) -> bool:
        """True if the worker is a conductor, missing in the pool only because of its depth."""
        worker = self._context.workers.get(name)
        return worker is not None and worker.profile.provider == CONDUCTOR_PROVIDER

    async def _execute(self) -> None:
        """Execute the last round's workflow; finished steps are kept even if it is cut off."""
        run, round_ = self._run, self._rounds[-1]
        execution = self._execution
        if execution is None:
            execution = self._execution = self._open(round_, self._emit)
        try:
            await execution.execute()
        finally:
            self._rounds[-1] = replace(round_, steps=execution.steps_so_far())
            self._execution = None
        self.stopped_by = execution.exhausted
        if self._objection is not None and self._rounds[-1].answer_step is not None:
            self._objection = None
        if isinstance(execution.blocked, ReplanRequested):
            self._objection = execution.blocked
        elif execution.blocked is not None:
            self.stopped_by = execution.blocked
        failures = execution.failures
        if failures:
            order = sorted(failures, key=lambda index: (index != execution.last, index))
            self._failures = [failures[index] for index in order]
        else:
            self._failures = ()
        self._was_waiting = False
        self._is_waiting = execution.is_waiting and self.stopped_by is None
        if not execution.is_waiting:
            self._emit(RoundDone(run.id, self._rounds[-1]))

    def _open(self, round_: Round, emit: Emit) -> Execution:
        """Return the execution of a round that is planned, or whose plan is being written."""
        context = self._context
        direct = emit if self._on_change is not None or emit != self._emit else context.emit
        return Execution(
            context,
            self._run,
            round_,
            emit=None if context.emit is None else direct,
            run_nested=self._run_nested,
            previous=self._readable_rounds(round_),
            reply_checker=self._reply_checker(round_, emit),
            keeps_failures=self._was_waiting,
            stream=self._stream,
        )

    def _readable_rounds(self, round_: Round) -> tuple[Round, ...]:
        """Return the rounds that steps of that round may read: one before, or all with a role."""
        first = 0 if round_.role is not None else max(0, round_.index - 1)
        return tuple(self._rounds[first : round_.index])

    async def _run_nested(
        self,
        question: str,
        history: tuple[Message, ...],
        trailing_messages: tuple[Message, ...],
        options: ResponseOptions,
        *,
        step: int,
        resumed: Run | None,
        stream: bool,
        on_change: Callable[[Run], None],
    ) -> None:
        """Answer a subtask as a nested run on the same ledger."""
        above = self._run
        depth = above.depth + 1
        if depth > above.budget.depth:
            raise BudgetExhausted("depth", above.budget.depth)
        run = resumed or replace(
            above,
            id=new_run_id(),
            conductor=self._context.nested_conductor.name,
            question=question,
            history=history,
            trailing_messages=trailing_messages,
            request=NO_REQUEST,
            earlier_responses=(),
            pool=pool_at_depth(above.pool, depth, above.budget),
            created_at=timestamp(),
            rounds=(),
            guardrail_checks=(),
            depth=depth,
        )
        run = replace(run, status="running", answer=None, error=None, response_options=options)
        nested = RunLoop(
            self._context,
            run,
            self._context.nested_conductor,
            stream=stream,
            was_waiting=resumed is not None and resumed.status == "waiting",
        )
        ended = await nested.run((above.id, step), on_change)
        if nested.blocked is not None:
            raise nested.blocked
        if ended.answer is None and isinstance(nested.stopped_by, BudgetExhausted):
            raise nested.stopped_by

    @property
    def _checks_answers(self) -> bool:
        guardrails = self._context.guardrails
        return guardrails is not None and self._run.depth == 0 and guardrails.has_stage("answer")

    def _reply_checker(self, round_: Round, emit: Emit) -> ReplyChecker | None:
        guardrails = self._context.guardrails
        if guardrails is None or not (guardrails.has_stage("reply") or self._checks_answers):
            return None
        return ReplyChecker(
            guardrails,
            self._run,
            round_.index,
            self._readable_rounds(round_),
            checks_answers=self._run.depth == 0,
            emit=lambda check: emit(GuardrailActed(self._run.id, check)),
        )

    async def _check_other_answer(self) -> None:
        """Apply guardrails on answers to one that no answer step gave."""
        if self._is_waiting or self.blocked is not None or answer_steps(self._rounds):
            return
        best = partial_answer_step(self._rounds, self._run.response_options)
        if best is None:
            return
        reply_checker = self._reply_checker(self._rounds[best.round], self._emit)
        assert reply_checker is not None, "there are guardrails on answers"
        others = [step for step in self._rounds[best.round].steps if step is not best]
        try:
            worker = best.answered_by or best.worker
            self._checked_answer = await reply_checker.check(
                "answer", best.reply, None, worker, self._checks.append, others
            )
        except GuardrailBlocked as error:
            self.stopped_by = error

    def _end_run(self, status: RunStatus | None = None) -> Run:
        """Return the run at its end, or while it waits; without a status, decide it."""
        run, rounds, checks = self._run, tuple(self._rounds), tuple(self._checks)
        spent = self._context.ledger.spent
        if status is None and self._is_waiting:
            answer = waiting_answer(rounds)
            return replace(
                run,
                status="waiting",
                answer=answer,
                guardrail_checks=checks,
                rounds=rounds,
                spent=spent,
            )
        answers, blocked = answer_steps(rounds), self.blocked
        best = answers[-1] if answers else partial_answer_step(rounds, run.response_options)
        stopped_by, failures = self.stopped_by, self._failures
        if status is None:
            if blocked is not None:
                status, best = "failed", None
            else:
                status = "answered" if answers else end_status(best, stopped_by)
        answer = best.reply if best is not None else None
        if best is not None and self._checks_answers and not answers:
            answer = self._checked_answer
        failure = failures[0] if failures and status in ("failed", "partial") else None
        return replace(
            run,
            status=status,
            answer=answer,
            error=str(blocked) if blocked is not None else first_error(rounds, stopped_by),
            context_exceeded=status == "failed"
            and any(isinstance(one, PromptTooLong) for one in failures),
            request_refused=any(
                isinstance(one, AuthenticationFailed | RequestRefused) for one in failures
            ),
            error_status=failure.status if failure is not None else None,
            retry_after=failure.retry_after if failure is not None else None,
            exhausted_cap=stopped_by.cap if isinstance(stopped_by, BudgetExhausted) else "",
            blocked_by=blocked.guardrail if blocked is not None and status == "failed" else "",
            guardrail_checks=checks,
            rounds=rounds,
            spent=spent,
        )

    def _emit(self, event: Event) -> None:
        if self._context.emit is None:
            return
        self._context.emit(event)
        if self._on_change is not None and isinstance(
            event, RoundPlanned | StepProgress | StepDone
        ):
            self._on_change(self._so_far())

    def _so_far(self) -> Run:
        """Return the run as a resume would continue it."""
        rounds = list(self._rounds)
        if self._execution is not None:
            rounds[-1] = replace(rounds[-1], steps=self._execution.steps_so_far())
        return replace(self._run, rounds=tuple(rounds), guardrail_checks=tuple(self._checks))


def partial_answer_step(rounds: Sequence[Round], options: ResponseOptions) -> StepRecord | None:
    """Return the step whose reply is the answer where no answer step is; with a schema, none is."""
    return streamed_answer_step(rounds) if options.schema is None else None


def waiting_answer(rounds: Sequence[Round]) -> str | None:
    """Return the text that came with the final step's tool calls while a run waits."""
    round_, last = rounds[-1], rounds[-1].steps[-1]
    is_final = round_.workflow is not None and last.index >= round_.workflow.earliest_answer_step
    return (last.reply or None) if is_final and round_.has_answer_role else None


def end_status(best: StepRecord | None, stopped_by: PodiumError | None) -> RunStatus:
    """Return the status of a run without an answer step."""
    if best is not None:
        return "partial"
    return "exhausted" if isinstance(stopped_by, BudgetExhausted) else "failed"


def blocking_error(
    rounds: Sequence[Round], stopped_by: PodiumError | None, unmet: ReplanRequested | None
) -> GuardrailBlocked | None:
    if isinstance(stopped_by, GuardrailBlocked):
        return stopped_by
    if unmet is None or answer_steps(rounds):
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
    unfinished = [step for step in unfinished if not step.is_unneeded]
    if unfinished:
        last = unfinished[-1]
        is_final = executed[-1].workflow is not None and last.index + 1 == len(
            executed[-1].workflow
        )
        step = last if is_final and last.status == "failed" else unfinished[0]
        return f"step {step.index} ({step.worker}) {step.status}: {step.error}"
    answer = executed[-1].answer_step
    if answer is None:
        return None
    if answer.nested and answer.nested[-1].error is not None:
        return answer.nested[-1].error
    if answer.finish == "length":
        return f"{answer.answered_by} reached its output limit, so the answer is cut off"
    return None
