"""A workflow as the text that conductors write: the three lists, one on each line.

Two orders are in use. A model that reads an instruction follows the paper and names the workers
first; a small one that was trained to plan chooses better once it has written the subtasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from podium.plan.search import ACCESS_LIST, LISTS, MODEL_ID, SUBTASKS
from podium.pool import Pool
from podium.workflow import Workflow

Order = Literal["ids-first", "subtasks-first"]
"""Which list comes first; `access_list` always comes last. `parse` reads both orders."""

LABELS: Final[Mapping[Order, tuple[str, str, str]]] = MappingProxyType(
    {"ids-first": LISTS, "subtasks-first": (SUBTASKS, MODEL_ID, ACCESS_LIST)}
)
"""The labels of the lists in each order."""


def write(workflow: Workflow, pool: Pool, *, order: Order = "ids-first") -> str:
    """The plan as text; `parse` reads it back. Raises `UnknownWorker` for one outside the pool."""
    return _text(
        {
            MODEL_ID: [pool.index(step.worker) for step in workflow.steps],
            SUBTASKS: [step.subtask for step in workflow.steps],
            ACCESS_LIST: [
                ["all"] if step.access == "all" else list(step.access) for step in workflow.steps
            ],
        },
        order,
    )


def write_acceptance(order: Order = "ids-first") -> str:
    """The text that accepts the answer of the round before: three empty lists."""
    return _text(dict.fromkeys(LISTS, ()), order)


def _text(lists: Mapping[str, Any], order: Order) -> str:
    return "\n".join(
        f"{label} = {json.dumps(lists[label], ensure_ascii=False)}" for label in LABELS[order]
    )
