"""One round being planned: the conductor is asked, and what it wrote is checked.

Whatever a conductor does wrong is a `PlanError` here; who asks again, and what for, is
`podium.performance`.
"""

from __future__ import annotations

from dataclasses import replace

from podium.budget import Budget
from podium.conductor.base import Conductor, Plan, Situation
from podium.demands import fitted
from podium.engine import Calls
from podium.errors import PlanError, PodiumError
from podium.pool import CONDUCTOR_PROVIDER, Pool
from podium.request import NO_TERMS
from podium.run import ANSWERING, Round
from podium.workflow import Workflow


async def planned(conductor: Conductor, situation: Situation, calls: Calls) -> Round:
    """The next round as the conductor plans it, checked; `PlanError` where it cannot be used."""
    try:
        plan = await conductor.plan(situation, calls)
    except PodiumError:
        raise
    except Exception as error:
        raise PlanError(f"{conductor.name} raised {type(error).__name__}: {error}") from error
    if not isinstance(plan, Plan):
        raise PlanError(f"{conductor.name} returned {type(plan).__name__}, not a Plan")
    if plan.workflow is not None:
        plan.workflow.check(situation.pool.names, situation.max_steps)
        if plan.role in ANSWERING and (situation.images or situation.terms is not NO_TERMS):
            plan = _fitted(plan, plan.workflow, situation)
    elif situation.answer is None:
        raise PlanError(f"{conductor.name} accepted the answer, but there is none yet")
    return Round(
        len(situation.rounds),
        plan.workflow,
        planning=tuple(calls.attempts),
        plan_text=plan.text,
        warnings=plan.warnings,
        accepted=plan.workflow is None,
        role=plan.role,
        routed=plan.routed,
    )


def _fitted(plan: Plan, workflow: Workflow, situation: Situation) -> Plan:
    """The plan, with its final step given to a worker that can do what the question demands."""
    workflow, warnings = fitted(workflow, situation.pool, situation.terms, situation.images)
    return replace(plan, workflow=workflow, warnings=plan.warnings + warnings) if warnings else plan


def pool_at_depth(pool: Pool, depth: int, budget: Budget) -> Pool:
    """The pool without conductors where a run may not nest any deeper."""
    names = [worker.name for worker in pool if worker.provider == CONDUCTOR_PROVIDER]
    return pool.without(names) if names and depth >= budget.depth else pool
