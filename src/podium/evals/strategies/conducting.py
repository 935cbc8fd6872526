"""Strategies that execute a plan: a conductor's, the ideal one, or a random one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from podium._util.lab import lab_extra
from podium.conductors import Conductor, FixedConductor
from podium.core.budget import Ledger
from podium.core.errors import BudgetExhausted, PodiumError
from podium.core.request import Reply, Request
from podium.core.run import Round, Run, StepRecord, new_run_id, recorded_spending, timestamp
from podium.core.workflow import Step, Workflow
from podium.engine import Calls
from podium.engine.runner import Options, Runner
from podium.evals.context import EvalContext, Strategy
from podium.evals.sample import Case


class Transcript:
    """Records the calls that a strategy makes itself, as a run."""

    def __init__(self, strategy: str, case: Case, context: EvalContext) -> None:
        self._strategy = strategy
        self._case = case
        self._context = context
        self._created_at = timestamp()
        self._ledger = Ledger(context.options.budget)
        context.call_policy.bind()
        self._started = context.call_policy.clock()
        self._steps: list[Step] = []
        self._records: dict[int, StepRecord] = {}

    async def ask(
        self, worker: str, request: Request, subtask: str, reads: tuple[int, ...] = ()
    ) -> str | None:
        """Call a worker; return its reply, or None if it fails or the budget is spent.

        `subtask` describes the call, `reads` the earlier calls whose replies the request
        contains; both are only recorded.
        """
        index = len(self._steps)
        self._steps.append(Step(worker, subtask, reads))
        calls = Calls(self._context.call_policy, self._ledger, self._started)
        began = self._elapsed_ms
        try:
            async with asyncio.timeout(self._ledger.seconds_left):
                reply = await calls(self._context.workers[worker], request)
        except TimeoutError:
            spent = BudgetExhausted("seconds", self._ledger.budget.seconds or 0.0)
            self._record(index, calls, request, began, spent)
            return None
        except PodiumError as error:
            self._record(index, calls, request, began, error)
            return None
        self._record(index, calls, request, began, reply)
        return reply.text

    def run(self, answer: str | None) -> Run:
        """Return the run with that answer."""
        records = tuple(record for _, record in sorted(self._records.items()))
        failed = [record.error for record in records if record.error is not None]
        return Run(
            id=new_run_id(),
            question=self._case.task.question,
            history=self._case.task.history,
            status="failed" if answer is None else "answered",
            pool=self._case.pool,
            conductor=self._strategy,
            created_at=self._created_at,
            budget=self._context.options.budget,
            rounds=(Round(0, Workflow(tuple(self._steps)), records),),
            answer=answer,
            error=failed[0] if failed else None,
            spent=self._ledger.spent,
        )

    @property
    def _elapsed_ms(self) -> float:
        return (self._context.call_policy.clock() - self._started) * 1000

    def _record(
        self, index: int, calls: Calls, request: Request, began: float, end: Reply | PodiumError
    ) -> None:
        step = self._steps[index]
        done = isinstance(end, Reply)
        self._records[index] = StepRecord(
            round=0,
            index=index,
            worker=step.worker,
            subtask=step.subtask,
            access=step.access,
            status="done" if done else "failed",
            reply=end.text if isinstance(end, Reply) else "",
            error=None if done else str(end),
            started_ms=began,
            finished_ms=self._elapsed_ms,
            attempts=tuple(calls.attempts),
            prompt=request.text,
            answered_by=step.worker if done else "",
        )


IDEAL_SUBTASKS_SHARE: Final = 0.5
"""The share of random plans that use the ideal plan's subtasks."""


def conductor_strategy(conductor: Conductor, *, rounds: int) -> Strategy:
    """Answer by a conductor's plan; with several rounds it accepts the answer or plans again.

    If a task grades plans, nothing is executed. Departures from the paper: steps start as soon
    as what they read is there; a malformed plan is replaced by the fallback at once, while the
    paper asked prompted models again, with twice the tokens; the last step's prompt says that its
    reply is the answer; a step of a second round that reads all also reads the first round.
    """

    async def answer(case: Case, context: EvalContext) -> Run:
        runner = Runner(
            conductor,
            tuple(context.workers.values()),
            pool=case.pool,
            call_policy=context.call_policy,
        )
        options = replace(context.options, rounds=rounds)
        if case.task.plan_grader is not None:
            return await _plan_only(runner, case, options)
        return await runner.run(case.task.question, history=case.task.history, options=options)

    return answer


async def _plan_only(runner: Runner, case: Case, options: Options) -> Run:
    """Return a run that is planned and not executed."""
    run = Run(
        id=new_run_id(),
        question=case.task.question,
        status="interrupted",
        pool=case.pool,
        conductor=runner.conductor.name,
        created_at=timestamp(),
        max_steps=options.max_steps,
        budget=options.budget,
    )
    try:
        round_ = await runner.plan(case.task.question, history=case.task.history, options=options)
        planned = replace(run, rounds=(round_,))
    except PodiumError as error:
        return replace(run, status="failed", error=str(error))
    return replace(planned, spent=recorded_spending(planned))


async def ideal_plan(case: Case, context: EvalContext) -> Run:
    """Answer by the ideal plan, the upper bound of every conductor. Only études have one."""
    assert case.ideal is not None, "check_strategy rejects tasks without an ideal plan"
    return await execute_plan("ideal", case.ideal, case, context)


async def random_plan(case: Case, context: EvalContext) -> Run:
    """Answer by a valid plan with random workers and random access.

    Half of the plans use the ideal plan's subtasks if there is one; in all others one worker
    gets the whole question.
    """
    rng = context.random(case, "plan")
    subtasks = [case.task.question]
    if case.ideal is not None and rng.random() < IDEAL_SUBTASKS_SHARE:
        subtasks = [step.subtask for step in case.ideal.steps]
    with lab_extra():
        from podium_lab.etudes.plan_examples import random_access
    access = random_access(rng, len(subtasks))
    steps = tuple(
        Step(rng.choice(case.pool.names), subtask, reads)
        for subtask, reads in zip(subtasks, access, strict=True)
    )
    return await execute_plan("random", Workflow(steps), case, context)


async def execute_plan(name: str, workflow: Workflow, case: Case, context: EvalContext) -> Run:
    """Execute that plan, however many steps it has."""
    longest = max(context.options.max_steps, len(workflow))
    widened = replace(context, options=replace(context.options, max_steps=longest))
    return await conductor_strategy(FixedConductor(workflow, name=name), rounds=1)(case, widened)
