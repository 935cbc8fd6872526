"""The JSON Schema of a plan's JSON form, for models with structured output and for editors.

`python -m podium.plan` prints the general one, which is published as
`docs/workflow.schema.json`.
"""

from __future__ import annotations

from typing import Any

from podium.plan.search import STEPS
from podium.pool import Pool
from podium.workflow import DEFAULT_MAX_STEPS


def schema(pool: Pool | None = None, max_steps: int = DEFAULT_MAX_STEPS) -> dict[str, Any]:
    """The schema of the JSON form.

    Without a pool it describes workflow files: any worker's name, and reasoning only for who
    wants it. With a pool it is for structured output: workers are that pool's names (its ids
    where names are masked), reasoning comes first so that the model thinks before it plans,
    and everything is required. It then keeps to what the vendors' compilers accept, who refuse
    bounds on lengths and numbers; `parse` checks those.
    """
    if pool is None:
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Podium workflow",
            **_document(
                beside={
                    "question": {"type": "string", "description": "What the workflow answers."},
                    "routed": {
                        "type": "object",
                        "description": "What a learned router decided; nobody executes it.",
                    },
                },
                worker={
                    "description": "The worker's name, or its id: its place in the pool.",
                    "anyOf": [
                        {"type": "string", "minLength": 1},
                        {"type": "integer", "minimum": 0},
                    ],
                },
                subtask={"minLength": 1},
                earlier={"minimum": 0},
                steps={"minItems": 1, "maxItems": max_steps},
                required=[STEPS],
            ),
        }
    ids = list(range(len(pool)))
    return _document(
        worker=(
            {"description": "The worker's id.", "type": "integer", "enum": ids}
            if pool.mask_names
            else {"description": "The worker's name.", "type": "string", "enum": [*pool.names]}
        ),
        subtask={},
        earlier={},
        steps={"description": f"At most {max_steps}, in order; the last reply is the answer."},
        required=["reasoning", STEPS],
    )


def _document(
    *,
    beside: dict[str, Any] | None = None,
    worker: dict[str, Any],
    subtask: dict[str, Any],
    earlier: dict[str, Any],
    steps: dict[str, Any],
    required: list[str],
) -> dict[str, Any]:
    """The schema, with what is added to each of its places."""
    access = {
        "description": "The earlier steps whose subtask and reply this one may read, by index.",
        "anyOf": [
            {"type": "string", "enum": ["all"]},
            {"type": "array", "items": {"type": "integer", **earlier}},
        ],
    }
    step = {
        "type": "object",
        "properties": {
            "worker": worker,
            "subtask": {
                "type": "string",
                "description": "What the worker must do, in plain language.",
                **subtask,
            },
            "access": access,
        },
        "required": ["worker", "subtask", "access"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            **(beside or {}),
            "reasoning": {"type": "string", "description": "Why this plan; nobody executes it."},
            STEPS: {
                "type": "array",
                "description": "In order; the last reply is the answer.",
                "items": step,
                **steps,
            },
        },
        "required": required,
        "additionalProperties": False,
    }
