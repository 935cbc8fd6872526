"""The pool file and the workflows that killed processes run.

The upstream identifies a step by its worker, so no worker is used twice in a run: steps use
`step-0` to `step-4`, nested runs `inner-0` and `inner-1`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import StepName
from benchmarks.chaos.upstream import MARK
from podium.core.budget import Budget
from podium.core.errors import ConfigError
from podium.core.run import Run
from podium.core.usage import Price
from podium.core.workflow import Access, Step, Workflow

CONFIGURATION: Final = "podium.toml"
STORE: Final = "runs.db"
DEEPER: Final = "deeper"
STEPS: Final = tuple(f"step-{index}" for index in range(5))
INNER: Final = ("inner-0", "inner-1")
PRICE: Final = Price(input=1.0, output=4.0)
SPARE_CALLS: Final = 2
"""Calls that a run may make beyond those it needs."""

_WORKER: Final = """
[[worker]]
name = "{name}"
provider = "openai-compatible"
model = "{name}"
base_url = "http://127.0.0.1:{port}/v1"
description = "counts what it is asked"
price = {{ input = {price.input}, output = {price.output} }}
"""

_CONFIGURATION: Final = """
[conductor]
kind = "fixed"
workflow = "{workflow}"

[[worker]]
name = "{deeper}"
provider = "podium"
description = "a run of its own"
"""


def write_configuration(directory: Path, port: int, more: str = "") -> Path:
    """Write the file of a pool whose workers are the upstream on that port, plus `more`."""
    inner = {
        "steps": [
            {"worker": INNER[0], "subtask": "begin", "access": []},
            {"worker": INNER[1], "subtask": "end", "access": [0]},
        ]
    }
    (directory / "inner.json").write_text(json.dumps(inner), "utf-8")
    workers = [_WORKER.format(name=name, port=port, price=PRICE) for name in (*STEPS, *INNER)]
    settings = _CONFIGURATION.format(workflow="inner.json", deeper=DEEPER)
    configuration = directory / CONFIGURATION
    configuration.write_text(settings + "".join(workers) + more, "utf-8")
    return configuration


def question_of(index: int) -> str:
    """Return the question with that number, which contains its mark."""
    return f"chaos-{index:06d}: what holds when things break?"


def mark_of(question: str) -> str:
    """Return the mark of a question."""
    found = MARK.search(question)
    if found is None:
        raise ConfigError(f"expected a question with a mark such as chaos-000001, got {question!r}")
    return found[0]


def workflow_of(index: int, seed: int) -> Workflow:
    """Return the workflow of the question with that number, always the same."""
    chance = random.Random(f"{seed}:{index}")  # noqa: S311 -- repeatable, not unguessable
    count = chance.randint(2, len(STEPS))
    shape = chance.choice(("chain", "join", "all"))
    nests = chance.randrange(count - 1) if chance.random() < 0.3 else None
    subtask = f"{question_of(index)} part"
    return Workflow(
        tuple(
            Step(
                DEEPER if step == nests else STEPS[step],
                f"{subtask} {step}",
                _access(step, count, shape),
            )
            for step in range(count)
        )
    )


def _access(step: int, count: int, shape: str) -> Access:
    if shape == "chain":
        return (step - 1,) if step else ()
    if shape == "join":
        return tuple(range(step)) if step == count - 1 else ()
    return "all"


def calls_needed(workflow: Workflow) -> int:
    """Return how many calls the workflow takes without faults."""
    return sum(len(INNER) if step.worker == DEEPER else 1 for step in workflow.steps)


def budget_of(workflow: Workflow) -> Budget:
    """Return the budget of a run of that workflow."""
    return Budget(calls=calls_needed(workflow) + SPARE_CALLS, depth=1)


def steps_done(run: Run, mark: str) -> list[StepName]:
    """Return the steps recorded as done, nested runs included."""
    done = []
    for step in run.steps:
        if step.status == "done" and step.worker != DEEPER:
            done.append(StepName(mark, step.worker))
        for nested in step.nested:
            done += steps_done(nested, mark)
    return done
