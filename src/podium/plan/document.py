"""The JSON form of a plan, as models with structured output write it and workflow files hold it.

    {"steps": [
        {"worker": "gpt-5", "subtask": "Plan the proof", "access": []},
        {"worker": "claude-sonnet-4", "subtask": "Write it out", "access": "all"}
    ]}

`worker` is a name, or an id where there is a pool; `access` is `"all"` or a list of earlier steps.
A string `reasoning` may stand before the steps, and in a file the `question` and what a router
decided, as `routed`, which changes nothing. The JSON Schema is `podium.plan.json_schema`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from podium.errors import MalformedPlan
from podium.plan.search import PLAN, STEPS
from podium.plan.steps import Entry, Tolerate, access_of, subtask_text, worker_name
from podium.pool import Pool
from podium.workflow import Step, Workflow

STEP_KEYS: Final = ("worker", "subtask", "access")
DOCUMENT_KEYS: Final = ("question", "routed", "reasoning", STEPS)


def read_workflow(document: object, pool: Pool | None = None) -> Workflow:
    """The workflow of a JSON document that was written by hand, or by `workflow_document`.

    Nobody hears warnings about a file, so what `parse` would warn of is an error here: unknown
    keys, and access that is not in ascending order. Raises `MalformedPlan`. How long the
    workflow may be is for the caller to check.
    """
    if not isinstance(document, Mapping):
        raise MalformedPlan(PLAN, 'a workflow is an object {"steps": [...]}; write one')
    for key in document:
        if key not in DOCUMENT_KEYS:
            raise MalformedPlan(
                PLAN, f"there is no key {key!r} in a workflow; it has {', '.join(DOCUMENT_KEYS)}"
            )
    steps = document.get(STEPS)
    if not isinstance(steps, list | tuple):
        raise MalformedPlan(STEPS, 'the list of steps is missing; write "steps": [...]')
    if not steps:
        raise MalformedPlan(STEPS, "the list is empty; write at least one step")
    return Workflow(read_steps(steps, pool, _refuse))


def workflow_document(workflow: Workflow, pool: Pool | None = None) -> dict[str, Any]:
    """The workflow as plain JSON values; `read_workflow` reads it back.

    Workers appear by name, or by id where a pool is given that hides its names.
    """
    by_id = pool if pool is not None and pool.mask_names else None
    return {
        STEPS: [
            {
                "worker": step.worker if by_id is None else by_id.index(step.worker),
                "subtask": step.subtask,
                "access": step.access if step.access == "all" else list(step.access),
            }
            for step in workflow.steps
        ]
    }


def read_steps(steps: Sequence[object], pool: Pool | None, tolerate: Tolerate) -> tuple[Step, ...]:
    """The steps of the JSON form's list."""
    return tuple(_read_step(index, step, pool, tolerate) for index, step in enumerate(steps))


def _read_step(index: int, step: object, pool: Pool | None, tolerate: Tolerate) -> Step:
    if not isinstance(step, Mapping):
        expected = f"a step is an object with {', '.join(STEP_KEYS)}"
        raise Entry(STEPS, f"step {index}", step).wrong(expected)
    for key in STEP_KEYS:
        if key not in step:
            raise MalformedPlan(
                STEPS, f"step {index} has no {key!r}; a step needs {', '.join(STEP_KEYS)}"
            )
    for key in step:
        if key not in STEP_KEYS:
            name = Entry(STEPS, "", key).shown
            fact = f"step {index} has a key {name}, and a step has only {', '.join(STEP_KEYS)}"
            tolerate(STEPS, fact, "it was ignored")
    worker, subtask, access = (
        Entry(STEPS, f"the {key} of step {index}", step[key]) for key in STEP_KEYS
    )
    return Step(
        worker_name(worker, pool), subtask_text(subtask), access_of(access, index, tolerate)
    )


def _refuse(where: str, fact: str, _reading: str) -> None:
    raise MalformedPlan(where, fact)
