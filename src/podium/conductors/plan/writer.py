"""A workflow as the text that conductors write.

Two orders are in use. A model that reads an instruction follows the paper: three lists, one on each
line. A small one that was trained to plan goes step by step, in JSON: it names a worker right after
it has worded the subtask, where the third id of a list would have to be counted out.
"""

from __future__ import annotations

import json
from typing import Final, Literal

from podium.conductors.plan.parser import ACCESS_LIST, LISTS, MODEL_ID, STEPS, SUBTASKS
from podium.core.pool import Pool
from podium.core.workflow import Workflow

Order = Literal["lists", "step-by-step"]
"""What stands together: the ids, the subtasks, the access of all steps; or all of one step."""

ACCEPTANCE: Final = {
    "lists": "\n".join(f"{label} = []" for label in LISTS),
    "step-by-step": f'{{"{STEPS}": []}}',
}


def write(workflow: Workflow, pool: Pool, *, order: Order = "lists") -> str:
    """The plan as text; `parse` reads it back. Raises `UnknownWorker` for one outside the pool."""
    ids = [pool.index(step.worker) for step in workflow.steps]
    subtasks = [step.subtask for step in workflow.steps]
    accesses = [["all"] if step.access == "all" else list(step.access) for step in workflow.steps]
    if order == "step-by-step":
        steps = [
            {"subtask": subtask, "worker": number, "access": access}
            for subtask, number, access in zip(subtasks, ids, accesses, strict=True)
        ]
        return json.dumps({STEPS: steps}, ensure_ascii=False)
    lists = {MODEL_ID: ids, SUBTASKS: subtasks, ACCESS_LIST: accesses}
    return "\n".join(
        f"{label} = {json.dumps(entries, ensure_ascii=False)}" for label, entries in lists.items()
    )


def write_acceptance(order: Order = "lists") -> str:
    """The text that accepts the answer of the round before: a plan without steps."""
    return ACCEPTANCE[order]
