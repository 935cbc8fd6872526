"""What the tests of evaluation share: small ensembles, and a conductor that knows the plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podium.conductors.builtin import RulesConductor
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.pool import Pool
from podium.core.request import Request, user
from podium.core.task import Task
from podium.core.worker import Caller, Worker
from podium.core.workflow import Step, Workflow
from podium.engine import CallPolicy, RetryPolicy
from podium.engine.runner import Options
from podium.evals.sample import Case, EvalContext
from podium.evals.setup import EvalSetup
from podium.workers.scripted import ScriptedWorker
from podium_lab.etudes.values import UNSURE
from podium_lab.etudes.workers import oracle_workers
from podium_lab.evals.tables import make_etude_cases


def pool_of(workers: Sequence[Worker]) -> Pool:
    return Pool(tuple(worker.profile for worker in workers))


def oracle_cases(n: int = 12, seed: int = 7, **variant: Any) -> tuple[Case, ...]:
    """Études over perfect workers."""
    return make_etude_cases(n, seed, pool_of(oracle_workers()), **variant)


def setup_of(workers: Sequence[Worker], conductor: Conductor | None = None) -> EvalSetup:
    return EvalSetup(
        workers={worker.profile.name: worker for worker in workers},
        pool=pool_of(workers),
        conductor=conductor or RulesConductor(),
        retry=RetryPolicy(attempts=1),
    )


def context_of(workers: Sequence[Worker], seed: int = 0) -> EvalContext:
    return EvalContext(
        workers={worker.profile.name: worker for worker in workers},
        call_policy=CallPolicy(RetryPolicy(attempts=1)),
        options=Options(),
        seed=seed,
    )


def case_of(question: str, right: str, workers: Sequence[Worker]) -> Case:
    """A task whose one right answer is given, over these workers."""

    async def grader(answer: str) -> bool:
        return answer == right

    return Case(Task(id=question, question=question, grader=grader), pool_of(workers))


class IdealConductor(Conductor):
    """Plans as one should, after one planning call. An answer that was declined is asked for
    again, by the same worker with the whole round before its eyes; any other is accepted."""

    name = "knowing"

    def __init__(self, cases: Sequence[Case]) -> None:
        self.planner = ScriptedWorker("planner", "two words")
        self._ideal = {case.task.question: case.ideal for case in cases}

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        await call(self.planner, Request((user(context.question),)))
        workflow = self._ideal[context.question]
        assert workflow is not None
        if context.answer == UNSURE:
            last = workflow.steps[-1]
            again = Step(last.worker, last.subtask, "all")
            return Plan(Workflow((*workflow.steps[:-1], again)))
        return Plan(workflow if context.answer is None else None)
