"""Rounds that have been carried out, for tests of what comes after them."""

from __future__ import annotations

from podium.core.run import Round, StepRecord
from podium.core.workflow import Workflow


def answered(workflow: Workflow, reply: str = "an answer") -> Round:
    """A round in which every step gave that reply."""
    return Round(
        0,
        workflow,
        tuple(
            StepRecord(0, i, step.worker, step.subtask, step.access, "done", reply, None, 0.0, 1.0)
            for i, step in enumerate(workflow.steps)
        ),
    )
