"""The questions of the chaos parts, the pool file, and the workflows that killed processes run.

A question begins with its mark, such as `chaos-000001`. The upstream identifies a step by its
worker, so no worker is used twice in a run: steps use `step-0` to `step-4`, nested runs `inner-0`
and `inner-1`.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import StepName
from benchmarks.chaos.upstream import MARK, tokens_of
from benchmarks.processes import WORKER
from podium.core.budget import Budget
from podium.core.errors import ConfigError
from podium.core.request import Price
from podium.core.run import Run
from podium.core.workflow import Access, Step, Workflow
from podium.store import RunStore, RunSummary

PAGE: Final = 500
CONFIGURATION: Final = "podium.toml"
STORE: Final = "runs.db"
DEEPER: Final = "deeper"
STEPS: Final = tuple(f"step-{index}" for index in range(5))
INNER: Final = ("inner-0", "inner-1")
PRICE: Final = Price(input=1.0, output=4.0)
SPARE_CALLS: Final = 2
"""Calls that a run may make beyond those it needs."""

_CONFIGURATION: Final = f"""
[conductor]
kind = "fixed"
workflow = "inner.json"

[[worker]]
name = "{DEEPER}"
provider = "podium"
description = "a run of its own"
"""


async def in_turns(count: int, in_flight: int, perform: Callable[[int], Awaitable[None]]) -> None:
    """Run `perform` for `count` numbers, `in_flight` at a time."""
    numbers = iter(range(count))

    async def go_on() -> None:
        for number in numbers:
            await perform(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(in_flight, count)):
            group.create_task(go_on())


async def every_run(store: RunStore) -> AsyncIterator[RunSummary]:
    """Yield all runs of a store, newest first."""
    before = None
    while page := await store.list(limit=PAGE, before=before):
        for summary in page:
            yield summary
        before = page[-1].id


async def runs_by_mark(store: RunStore) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    async for summary in every_run(store):
        found.setdefault(mark_of(summary.question), []).append(await store.load(summary.id))
    return found


def repeatable(*of: object) -> random.Random:
    """Return a random generator seeded by these values."""
    return random.Random(":".join(map(str, of)))  # noqa: S311 -- repeatable, not unguessable


def write_configuration(directory: Path, port: int, more: str = "") -> Path:
    """Write the file of a pool whose workers are the upstream on that port, plus `more`."""
    steps = [
        {"worker": INNER[0], "subtask": "begin", "access": []},
        {"worker": INNER[1], "subtask": "end", "access": [0]},
    ]
    (directory / "inner.json").write_text(json.dumps({"steps": steps}), "utf-8")
    price = f"price = {{ input = {PRICE.input}, output = {PRICE.output} }}"
    workers = [WORKER.format(name=name, port=port, more=price) for name in (*STEPS, *INNER)]
    configuration = directory / CONFIGURATION
    configuration.write_text(_CONFIGURATION + "".join(workers) + more, "utf-8")
    return configuration


def question_of(index: int) -> str:
    return f"chaos-{index:06d}: what holds when things break?"


def mark_of(question: str) -> str:
    found = MARK.search(question)
    if found is None:
        raise ConfigError(f"expected a question with a mark such as chaos-000001, got {question!r}")
    return found[0]


def cost_of(mark: str) -> float:
    read, written = tokens_of(mark)
    return (read * PRICE.input + written * PRICE.output) / 1_000_000


def workflow_of(index: int, seed: int) -> Workflow:
    """Return the workflow of the question with that number, always the same."""
    chance = repeatable(seed, index)
    count = chance.randint(2, len(STEPS))
    shape = chance.choice(("chain", "join", "all"))
    nests = chance.randrange(count - 1) if chance.random() < 0.3 else None
    workers = [DEEPER if step == nests else STEPS[step] for step in range(count)]
    return connected(workers, f"{question_of(index)} part", shape, chance)


def connected(workers: list[str], subtask: str, shape: str, chance: random.Random) -> Workflow:
    """Return a workflow of these workers; the shape decides which earlier steps each one reads."""

    def access(index: int) -> Access:
        before = tuple(range(index))
        match shape:
            case "chain":
                return before[-1:]
            case "join":
                return before if index == len(workers) - 1 else ()
            case "all":
                return "all"
            case _:
                return tuple(step for step in before if chance.random() < 0.5)

    steps = [Step(name, f"{subtask} {n}", access(n)) for n, name in enumerate(workers)]
    return Workflow(tuple(steps))


def calls_needed(workflow: Workflow) -> int:
    """Count the calls of the workflow without faults."""
    return sum(len(INNER) if step.worker == DEEPER else 1 for step in workflow.steps)


def budget_of(workflow: Workflow) -> Budget:
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
