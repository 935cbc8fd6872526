from __future__ import annotations

from podium.conductors import Conductor, FixedConductor, PlanningContext
from podium.core.pool import Pool, WorkerProfile
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow
from support.rounds import answered

POOL = Pool((WorkerProfile(name="a"), WorkerProfile(name="b")))
WORKFLOW = Workflow((Step("a", "draft"), Step("b", "polish", access=(0,))))


async def test_the_given_workflow_is_the_plan_whatever_the_question(nobody: Caller) -> None:
    conductor = FixedConductor(WORKFLOW)
    for question in ("What is 1 + 1?", "Implement a compiler"):
        plan = await conductor.plan(PlanningContext(question=question, pool=POOL), nobody)
        assert plan.workflow == WORKFLOW


async def test_later_rounds_accept_the_answer(nobody: Caller) -> None:
    context = PlanningContext(question="q", pool=POOL, rounds=(answered(WORKFLOW),))
    plan = await FixedConductor(WORKFLOW).plan(context, nobody)
    assert plan.workflow is None


def test_it_is_a_conductor_with_a_name() -> None:
    assert isinstance(FixedConductor(WORKFLOW), Conductor)
    assert FixedConductor(WORKFLOW).name == "fixed"
    assert FixedConductor(WORKFLOW, name="mine").name == "mine"
