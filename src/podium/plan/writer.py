"""A workflow as the text that conductors write: the three lists, one on each line."""

from __future__ import annotations

import json

from podium.plan.search import ACCESS_LIST, MODEL_ID, SUBTASKS
from podium.pool import Pool
from podium.workflow import Workflow


def write(workflow: Workflow, pool: Pool) -> str:
    """The plan as text; `parse` reads it back. Raises `UnknownWorker` for one outside the pool."""
    ids = [pool.index(step.worker) for step in workflow.steps]
    subtasks = [step.subtask for step in workflow.steps]
    access = [["all"] if step.access == "all" else list(step.access) for step in workflow.steps]
    return "\n".join(
        f"{label} = {json.dumps(entries, ensure_ascii=False)}"
        for label, entries in ((MODEL_ID, ids), (SUBTASKS, subtasks), (ACCESS_LIST, access))
    )
