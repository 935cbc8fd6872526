"""The worked examples that prompts show: a question, and the plan that answers it well.

Those of the full prompt are in `prompts/examples.toml`, over pools of their own; those of the
compact one are asked of the pool at hand.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from podium.conductor.base import Situation
from podium.conductor.prompt_files import prompt_text
from podium.pool import Pool, WorkerProfile
from podium.workflow import Shape, Step, Workflow


@dataclass(frozen=True, slots=True)
class Example:
    """A question and the plan that answers it well, over a pool of its own."""

    shape: Shape
    question: str
    reasoning: str
    pool: Pool
    workflow: Workflow


@cache
def examples() -> tuple[Example, ...]:
    """The worked examples of the full prompt."""
    document = tomllib.loads(prompt_text("examples.toml"))
    return tuple(_example(entry) for entry in document["example"])


def _example(entry: dict[str, Any]) -> Example:
    return Example(
        shape=Shape(entry["shape"]),
        question=entry["question"],
        reasoning=entry["reasoning"],
        pool=Pool(tuple(WorkerProfile(**worker) for worker in entry["workers"])),
        workflow=Workflow(
            tuple(
                Step(
                    step["worker"],
                    step["subtask"],
                    "all" if step["access"] == "all" else tuple(step["access"]),
                )
                for step in entry["steps"]
            )
        ),
    )


def compact_examples(situation: Situation) -> Iterator[tuple[str, Workflow]]:
    """An answer that is checked, and one that stands alone; the last of them weighs most."""
    checked, alone = prompt_text("compact_examples.txt").splitlines()
    first, last = situation.pool.names[0], situation.pool.names[-1]
    if situation.max_steps > 1 and first != last:
        yield checked, Workflow((Step(first, checked), Step(last, checked, (0,))))
    yield alone, Workflow((Step(first, alone),))


def all_or_nothing(workflow: Workflow) -> Workflow:
    """The workflow with binary access: whoever reads something reads everything before it."""
    return Workflow(
        tuple(replace(step, access="all" if step.access else ()) for step in workflow.steps)
    )
