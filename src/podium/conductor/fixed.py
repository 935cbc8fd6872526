"""The fixed conductor: a workflow that was written beforehand, by a person or another program.

Whether the workflow fits the pool is checked by the runner, as for every other plan.
"""

from __future__ import annotations

from podium.conductor.base import Plan, Situation
from podium.conductor.names import FIXED
from podium.worker import Caller
from podium.workflow import Workflow


class FixedConductor:
    """Plans the given workflow, whatever the question, and accepts what comes of it."""

    def __init__(self, workflow: Workflow, *, name: str = FIXED) -> None:
        self.workflow = workflow
        self.name = name

    async def plan(self, situation: Situation, call: Caller) -> Plan:
        """The given workflow; once there is an answer, acceptance."""
        return Plan(self.workflow if situation.answer is None else None)


class GivenConductor(FixedConductor):
    """Plans the workflow that came with this very question."""

    def with_workflow(self, workflow: Workflow) -> GivenConductor:
        """The conductor with what guardrails left of its workflow."""
        return GivenConductor(workflow, name=self.name)
