"""One run: plan, execute, and plan again until the answer stands.

Planning and execution meet here: a conductor never executes, and an execution never plans.
Whatever a conductor does wrong ends the run as `failed`, with the reason in `error`. Of a workflow,
every step starts as soon as the steps it waits for are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from podium.core.budget import Budget, Ledger
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import (
    BudgetExhausted,
    GuardrailBlocked,
    PlanError,
    PodiumError,
    ReplanRequested,
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
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Message, ResponseOptions
from podium.core.requirements import fit_workflow
from podium.core.run import (
    ANSWERING,
    NO_REQUEST,
    Attempt,
    Round,
    Run,
    RunStatus,
    StepRecord,
    new_run_id,
    step_label,
    timestamp,
)
from podium.core.worker import Toolbox, Worker
from podium.engine.calls import CallPolicy, Calls
from podium.engine.guardrails.admission import Inspector, restorer
from podium.engine.guardrails.chain import GuardrailChain
from podium.engine.outcome import (
    answer_step,
    blocking_error,
    is_final,
    is_met,
    outcome_of,
    waiting_answer,
)
from podium.engine.requests import PriorResult
from podium.engine.step import StepRunner

PLANNING_DIVISOR: Final = 2
"""A plan may cost one part in so many of what is left: the rest is for its execution."""

Nest = Callable[..., Awaitable[None]]
"""`RunLoop._nest`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run shares with its nested runs.

    `conductor` plans the nested ones. `started` is the run's start on the call policy's clock.
    `call_ids` are the ids of all tool calls so far: ids must be
    unique. `guardrails` is None without guardrails. `persist`, where set, waits until events are
    persisted: at the start and after each plan.
    """

    conductor: Conductor
    workers: Mapping[str, Worker]
    call_policy: CallPolicy
    ledger: Ledger
    started: float
    emit: Emit | None
    toolbox: Toolbox | None = None
    call_ids: set[str] = field(default_factory=set)
    guardrails: GuardrailChain | None = None
    persist: Callable[[], Awaitable[None]] | None = None


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
        names = [worker.name for worker in context.pool.workers]
        workflow.check(names, context.max_steps)
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
        self._waits = False
        self._rounds = list(run.rounds)
        self._interrupted_planning: tuple[Attempt, ...] = ()
        if self._rounds and self._rounds[-1].workflow is None and not self._rounds[-1].accepted:
            self._interrupted_planning = self._rounds.pop().planning
        self._failures: Sequence[WorkerError] = ()
        """The workers' errors in the last round; the one that counts comes first."""
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
        run = self._run
        is_timed = run.depth == 0 and run.budget.seconds is not None
        deadline = asyncio.timeout(self._context.ledger.seconds_left if is_timed else None)
        try:
            async with deadline:
                if self.stopped_by is None and self._rounds and self._rounds[-1].unfinished:
                    await self._execute()
                while self._may_plan() and await self._plan():
                    await self._execute()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.stopped_by = BudgetExhausted("seconds", run.budget.seconds or 0.0)
        except PodiumError as error:
            self.stopped_by = error
            self._failures = (error,) if isinstance(error, WorkerError) else ()

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
        calls = Calls(context.call_policy, context.ledger, context.started, run.exclude)
        calls.divisor = PLANNING_DIVISOR
        calls.attempts.extend(self._interrupted_planning)
        self._interrupted_planning = ()
        planning = PlanningContext(
            question=run.question,
            pool=run.pool,
            history=run.conversation if run.trailing else run.history,
            rounds=tuple(self._rounds),
            max_steps=run.max_steps,
            images=run.images,
            response_options=run.response_options,
            objection=self._objection.reason if self._objection is not None else "",
            rounds_left=run.max_rounds - len(self._rounds),
            quality_bias=run.quality_bias,
        )
        try:
            round_ = await plan_round(self._conductor, planning, calls)
        except BaseException as error:
            self._rounds.append(Round(len(self._rounds), None, planning=tuple(calls.attempts)))
            if isinstance(error, UnknownWorker) and self._is_too_deep(error.name):
                raise BudgetExhausted("depth", run.budget.depth) from error
            raise
        self._rounds.append(round_)
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
        if self._objection is not None and self._rounds[-1].final is not None:
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
        resumed: Run | None,
        stream: bool,
        keep: Callable[[Run], None],
    ) -> None:
        """Answer a subtask as a nested run on the same ledger."""
        above = self._run
        depth = above.depth + 1
        if depth > above.budget.depth:
            raise BudgetExhausted("depth", above.budget.depth)
        run = resumed or replace(
            above,
            id=new_run_id(),
            conductor=self._context.conductor.name,
            question=question,
            history=history,
            trailing=trailing,
            request=NO_REQUEST,
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
            was_waiting=resumed is not None and resumed.status == "waiting",
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
            self._run,
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
        run, rounds, checks = self._run, tuple(self._rounds), tuple(self._checks)
        spent = self._context.ledger.spent
        if status is None and self._waits:
            answer = waiting_answer(rounds)
            return replace(
                run, status="waiting", answer=answer, checks=checks, rounds=rounds, spent=spent
            )
        outcome = outcome_of(
            rounds,
            run.response_options,
            status=status,
            stopped_by=self.stopped_by,
            objection=self._objection,
            failures=self._failures,
            checks_answers=self._checks_answers,
            checked_answer=self._checked_answer,
        )
        return replace(run, **outcome._asdict(), checks=checks, rounds=rounds, spent=spent)

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


class Execution:
    """Execute the workflow of one round.

    The task that finishes a step continues with the first step this made ready, and starts new
    tasks only for the others: a chain runs in one task, a join costs one task a branch. A failing
    step ends as a record, never as an exception; only cancellation passes through.

    `emit` is None without listeners, `inspector` without guardrails on replies. `nest` runs a step
    whose worker is a conductor, as `RunLoop` does. `previous` are earlier rounds, readable with
    access to `all`. Steps of the round from before an interruption are kept; failed ones are
    retried unless `keeps_failures`. Steps missing in `records` at the end wait for tool results.
    """

    def __init__(
        self,
        context: RunContext,
        run: Run,
        round_: Round,
        *,
        emit: Emit | None,
        nest: Nest,
        previous: tuple[Round, ...] = (),
        inspector: Inspector | None = None,
        keeps_failures: bool = False,
        stream: bool = False,
    ) -> None:
        assert round_.workflow is not None, "only a planned round is executed"
        self.records: dict[int, StepRecord] = {}
        self.exhausted: BudgetExhausted | None = None
        self.blocked: GuardrailBlocked | None = None
        """Set by a guardrail; steps that have not started are skipped then."""
        self.failures: dict[int, WorkerError] = {}
        """The errors of workers, by the index of the step that failed of it."""
        self.waits = False
        """True if a step waits for results of the client's tools."""
        self.context = context
        self.run = run
        self.round = round_.index
        self.workflow = workflow = round_.workflow
        self.started = context.started
        self.emit = emit
        self.nest = nest
        self.inspector = inspector
        self.hedges = context.call_policy.hedges.policies
        self.stream = stream
        self.last = len(workflow.steps) - 1
        main = self.last if workflow.steps[-1].condition is None else workflow.main
        self.first_answering = main if round_.role in ANSWERING else self.last + 1
        """From here on, a step's reply may be the answer; this one holds the client's tools."""
        options = run.response_options
        self.is_plain = (
            (options is DEFAULT_RESPONSE_OPTIONS or options == DEFAULT_RESPONSE_OPTIONS)
            and context.toolbox is None
            and not run.history
            and not run.trailing
            and not run.images
        )
        """True if a request holds the prompt alone."""
        self.interrupted: dict[int, StepRecord] = {}
        for record in round_.steps:
            is_kept = record.status == "done" or record.is_unneeded or bool(record.waiting_for)
            is_kept = is_kept or (keeps_failures and record.status in ("failed", "skipped"))
            (self.records if is_kept else self.interrupted)[record.index] = record
            self.waits = self.waits or bool(record.waiting_for)
        self._previous = previous
        self._progress: dict[int, StepRecord] = {}
        self._reads = [workflow.reads(index) for index in range(self.last + 1)]
        self._followers: list[list[int]] = [[] for _ in self._reads]
        self._missing = [0 for _ in self._reads]
        for index, step in enumerate(workflow.steps):
            if index in self.records:
                continue
            awaited = self._reads[index] if step.condition is None else workflow.waits_for(index)
            for before in awaited:
                if before not in self.records or self.records[before].status == "waiting":
                    self._followers[before].append(index)
                    self._missing[index] += 1

    async def execute(self) -> None:
        """Run every step that is not finished and does not wait."""
        ready = [
            index
            for index, missing in enumerate(self._missing)
            if not missing and index not in self.records
        ]
        if ready:
            async with asyncio.TaskGroup() as group:
                await self._run_from(ready, group)

    async def _run_from(self, ready: list[int], group: asyncio.TaskGroup) -> None:
        """Run the first ready step here and the others in tasks, then what became ready."""
        while ready:
            for other in ready[1:]:
                group.create_task(self._run_from([other], group))
            index = ready[0]
            await self._run_step(index)
            ready = []
            if self.waits and self.records[index].status == "waiting":
                return
            for follower in self._followers[index]:
                self._missing[follower] -= 1
                if not self._missing[follower]:
                    ready.append(follower)

    async def _run_step(self, index: int) -> None:
        """Run the step and keep its record, however it ends."""
        step = StepRunner(self, index)
        try:
            condition = self.workflow.steps[index].condition
            if condition is not None and not is_met(condition, self.records):
                record = step.record("skipped")
            elif (obstacle := self._obstacle(index)) is None:
                record = await step.run(self._prior_results(index))
            else:
                record = step.record("skipped", error=obstacle)
        except BudgetExhausted as error:
            self.exhausted = self.exhausted or error
            record = step.interrupted_record("skipped", str(error))
        except GuardrailBlocked as error:
            self.blocked = self.blocked or error
            record = step.record("failed", error=str(error))
        except PodiumError as error:
            if isinstance(error, WorkerError):
                self.failures[index] = error
            record = step.interrupted_record("failed", str(error))
        except asyncio.CancelledError:
            self._keep(step.interrupted_record("cancelled", "stopped before it was done"))
            raise
        self._keep(record)

    def _keep(self, record: StepRecord) -> None:
        self.records[record.index] = record
        if record.status == "waiting":
            self.waits = True
        if self.emit is not None:
            self.emit(StepDone(self.run.id, record))

    def save_progress(self, record: StepRecord) -> None:
        """Save the progress of a step that is still running."""
        self._progress[record.index] = record
        if self.emit is not None:
            self.emit(StepProgress(self.run.id, record))

    def steps_so_far(self) -> tuple[StepRecord, ...]:
        """Return what a resumed run would continue from."""
        known = {**self.interrupted, **self._progress, **self.records}
        return tuple(step for _, step in sorted(known.items()))

    def _obstacle(self, index: int) -> str | None:
        """Return why the step cannot run, if it cannot."""
        reads = self._reads[index]
        for read in reads:  # not `any`: a generator costs more than the look at one record
            if self.records[read].status == "done":
                break
        else:
            if reads:
                return "every step that this one may read has failed"
        return None if self.blocked is None else "a guardrail ended the round"

    def _prior_results(self, index: int) -> list[PriorResult]:
        """Return what the step may read: steps of this round and, with `all`, of earlier ones."""
        prior = []
        if self._previous and self.workflow.steps[index].access == "all":
            prior = [
                PriorResult(step_label(step, round_), step.subtask, step.reply)
                for round_ in self._previous
                for step in round_.steps
                if step.status == "done"
            ]
        for read in self._reads[index]:
            record = self.records[read]
            if record.status == "done":
                prior.append(PriorResult(str(read), record.subtask, record.reply))
        return prior
