"""Strategies that carry out a plan: a conductor's, the ideal one, or one drawn at random."""

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
    """One task being answered by calls of a strategy's own."""

    def __init__(self, strategy: str, case: Case, stage: EvalContext) -> None:
        self._strategy = strategy
        self._case = case
        self._stage = stage
        self._created_at = timestamp()
        self._ledger = Ledger(stage.options.budget)
        stage.call_policy.bind()
        self._started = stage.call_policy.clock()
        self._planned: list[Step] = []
        self._records: dict[int, StepRecord] = {}

    async def ask(
        self, worker: str, request: Request, subtask: str, reads: tuple[int, ...] = ()
    ) -> str | None:
        """What the worker replies, or None where it fails or the budget is spent.

        `subtask` says in a line what the call is for, `reads` which earlier calls' replies are
        part of the request: for whoever reads the run.
        """
        index = len(self._planned)
        self._planned.append(Step(worker, subtask, reads))
        calls = Calls(self._stage.call_policy, self._ledger, self._started)
        began = self._elapsed_ms
        try:
            async with asyncio.timeout(self._ledger.seconds_left):
                reply = await calls(self._stage.workers[worker], request)
        except TimeoutError:
            spent = BudgetExhausted("seconds", self._ledger.budget.seconds or 0.0)
            self._note(index, calls, request, began, spent)
            return None
        except PodiumError as error:
            self._note(index, calls, request, began, error)
            return None
        self._note(index, calls, request, began, reply)
        return reply.text

    def run(self, answer: str | None) -> Run:
        """Everything that was done, and the answer that came of it."""
        records = tuple(record for _, record in sorted(self._records.items()))
        failed = [record.error for record in records if record.error is not None]
        return Run(
            id=new_run_id(),
            question=self._case.task.question,
            status="failed" if answer is None else "answered",
            pool=self._case.pool,
            conductor=self._strategy,
            created_at=self._created_at,
            budget=self._stage.options.budget,
            rounds=(Round(0, Workflow(tuple(self._planned)), records),),
            answer=answer,
            error=failed[0] if failed else None,
            spent=self._ledger.spent,
        )

    @property
    def _elapsed_ms(self) -> float:
        return (self._stage.call_policy.clock() - self._started) * 1000

    def _note(
        self, index: int, calls: Calls, request: Request, began: float, end: Reply | PodiumError
    ) -> None:
        planned = self._planned[index]
        done = isinstance(end, Reply)
        self._records[index] = StepRecord(
            round=0,
            index=index,
            worker=planned.worker,
            subtask=planned.subtask,
            access=planned.access,
            status="done" if done else "failed",
            reply=end.text if isinstance(end, Reply) else "",
            error=None if done else str(end),
            started_ms=began,
            finished_ms=self._elapsed_ms,
            attempts=tuple(calls.attempts),
            prompt=request.text,
            answered_by=planned.worker if done else "",
        )


TRUE_CLAUSES: Final = 0.5
"""How many of the random plans begin from the ideal plan's subtasks."""


def conducted(conductor: Conductor, *, rounds: int) -> Strategy:
    """The conductor plans, and with more rounds than one it looks at the answer and accepts it
    or plans again. Where a task grades plans, nothing is carried out. Everything else is as
    configured. A trained conductor, one that is only prompted and the rules are all run so.

    Where this departs from the paper: steps begin as soon as what they read is there, and not one
    after another; a malformed plan gives way to the fallback at once, where models that the paper
    only prompted were asked until their plan could be read, with twice the tokens; the last step
    is told that its reply is the answer; and a step of a second round that reads all reads the
    first round too, whatever the others read.
    """

    async def answer(case: Case, stage: EvalContext) -> Run:
        runner = Runner(
            conductor, tuple(stage.workers.values()), pool=case.pool, call_policy=stage.call_policy
        )
        options = replace(stage.options, rounds=rounds)
        if case.task.plan_grader is not None:
            return await _only_planned(runner, case, options)
        return await runner.run(case.task.question, options=options)

    return answer


async def _only_planned(runner: Runner, case: Case, options: Options) -> Run:
    """A run that was cut off just when it had been planned."""
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
        planned = replace(run, rounds=(await runner.plan(case.task.question, options=options),))
    except PodiumError as error:
        return replace(run, status="failed", error=str(error))
    return replace(planned, spent=recorded_spending(planned))


async def ideal(case: Case, stage: EvalContext) -> Run:
    """The plan that a perfect conductor would write, by the same workers: the ceiling of every
    conductor. Only études come with one."""
    assert case.ideal is not None, "an evaluation refuses tasks without an ideal plan"
    return await carried_out("ideal", case.ideal, case, stage)


async def random_plans(case: Case, stage: EvalContext) -> Run:
    """A well-formed plan of random workers and random access.

    In half of the tasks whose ideal plan is known its subtasks are used, which is generous:
    nobody has to find them. In all others one worker gets the whole question.
    """
    rng = stage.draw(case, "plan")
    subtasks = [case.task.question]
    if case.ideal is not None and rng.random() < TRUE_CLAUSES:
        subtasks = [step.subtask for step in case.ideal.steps]
    with lab_extra():
        from podium_lab.etudes.plan_examples import random_access
    access = random_access(rng, len(subtasks))
    steps = tuple(
        Step(rng.choice(case.pool.names), subtask, reads)
        for subtask, reads in zip(subtasks, access, strict=True)
    )
    return await carried_out("random", Workflow(steps), case, stage)


async def carried_out(name: str, workflow: Workflow, case: Case, stage: EvalContext) -> Run:
    """That plan, carried out as it is, however many steps it has."""
    longest = max(stage.options.max_steps, len(workflow))
    widened = replace(stage, options=replace(stage.options, max_steps=longest))
    return await conducted(FixedConductor(workflow, name=name), rounds=1)(case, widened)
