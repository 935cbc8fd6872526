"""The worked examples that prompts show: a question, and the plan that answers it well.

Those of the full prompt are in `prompts/examples.toml`, over pools of their own; those of the
compact one are asked of the pool at hand.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from string import Template
from typing import Any, Final

from podium.core.conductor import PlanningContext
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.workflow import Shape, Step, Workflow


def filled(name: str, **values: str) -> str:
    """The named prompt file with its placeholders filled in, in one pass."""
    return Template(prompt_text(name)).substitute(values)


@cache
def prompt_text(name: str) -> str:
    """What the named prompt file says."""
    return resources.files(__package__).joinpath("prompts", name).read_text("utf-8").strip()


PLANNING_CAPABILITIES: Final = ("vision", "tools", "long_context", "reasoning")
"""What a conductor should know of a worker; the other capabilities concern the wire alone."""


def model_list(pool: Pool) -> str:
    """The pool for a model that reads instructions: who a worker is, and what it can do."""
    return "\n".join(_line(index, worker, pool.mask_names) for index, worker in enumerate(pool))


def short_model_list(pool: Pool) -> str:
    """The pool for a model that was trained to plan: the descriptions alone, or after the names
    where these are not masked. The id comes last: when a small model reads it, it has read whose
    id it is, and finds it again by that."""
    return "\n".join(_short_line(i, worker, pool.mask_names) for i, worker in enumerate(pool))


def _short_line(index: int, worker: WorkerProfile, masked: bool) -> str:
    description = on_one_line(worker.description)
    said = [description] if masked else [worker.name, description]
    return f"{' — '.join(filter(None, said))} = {index}".removeprefix(" = ")


def _line(index: int, worker: WorkerProfile, masked: bool) -> str:
    description = on_one_line(worker.description)
    if masked:
        return f"Model id {index}: {description}" if description else f"Model id {index}"
    named = f"{index}: {worker.name} — {description}" if description else f"{index}: {worker.name}"
    traits = _traits(worker)
    return f"{named} [{', '.join(traits)}]" if traits else named


def _traits(worker: WorkerProfile) -> list[str]:
    traits = [c.replace("_", " ") for c in PLANNING_CAPABILITIES if c in worker.capabilities]
    if worker.provider == CONDUCTOR_PROVIDER:
        traits.append("leads a team of its own")
    if worker.price is not None:
        traits.append(_price_band(worker.price.output))
    return traits


def _price_band(dollars: float) -> str:
    """Roughly what a worker costs, from its price for a million tokens of output."""
    if dollars == 0:
        return "free"
    return "cheap" if dollars < 2 else "medium price" if dollars < 12 else "expensive"


def on_one_line(text: str) -> str:
    """The text with a single space for whatever white space it has."""
    return " ".join(text.split())


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


def compact_examples(context: PlanningContext) -> Iterator[tuple[str, Workflow]]:
    """An answer that is checked, and one that stands alone; the last of them weighs most."""
    checked, alone = prompt_text("compact_examples.txt").splitlines()
    first, last = context.pool.names[0], context.pool.names[-1]
    if context.max_steps > 1 and first != last:
        yield checked, Workflow((Step(first, checked), Step(last, checked, (0,))))
    yield alone, Workflow((Step(first, alone),))


def all_or_nothing(workflow: Workflow) -> Workflow:
    """The workflow with binary access: whoever reads something reads everything before it."""
    return Workflow(
        tuple(replace(step, access="all" if step.access else ()) for step in workflow.steps)
    )
