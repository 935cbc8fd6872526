"""Measure the accuracy of podium-mini on the études' pool, with and without its router, beside
podium-ultra, where the trained conductor plans every question: the table in
docs/reference/etudes.md, under "The router of the études' pool".

    python scripts/embedded_answers.py 60

Each answers études of the test split, in the usual mixture of one step and several.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from podium import AsyncPodium
from podium.config import Settings, load
from podium.config.sources import ETUDES_POOL
from podium.core.run import Run, Tier
from podium.core.task import Task
from podium.store import RunStore
from podium_lab.etudes import Etudes
from podium_lab.etudes.tasks import etude_task

SEED: Final = 7
AT_ONCE: Final = 4


def main() -> None:
    """Print the table: a line for each strategy over the given number of études."""
    for line in asyncio.run(_lines(_tasks(int(sys.argv[1])))):
        print(line)  # noqa: T201 - it is a script


def _tasks(count: int) -> list[Task]:
    return [etude_task(etude) for etude in Etudes(SEED, "test").sample(count)]


async def _lines(tasks: Sequence[Task]) -> list[str]:
    settings = load(ETUDES_POOL)
    ways: dict[str, tuple[Settings, Tier]] = {
        "podium-mini, with its router": (settings, "mini"),
        "podium-mini, without it": (replace(settings, mini=None), "mini"),
        "podium-ultra": (settings, "ultra"),
    }
    return [f"{name}: {await _measured(*way, tasks)}" for name, way in ways.items()]


async def _measured(settings: Settings, tier: Tier, tasks: Sequence[Task]) -> str:
    """Return the accuracy, and the mean time and tokens."""
    places = asyncio.Semaphore(AT_ONCE)
    async with AsyncPodium(settings=settings, store=RunStore()) as podium:

        async def answered(task: Task) -> tuple[Run, bool]:
            async with places:
                run = await podium.ask(task.question, tier=tier)
            return run, bool(await task.grader(run.answer or ""))

        found = await asyncio.gather(*map(answered, tasks))
    right = sum(is_right for _, is_right in found)
    steps = sum(len(run.steps) for run, _ in found) / len(found)
    tokens = sum(run.usage.output_tokens or 0 for run, _ in found) / len(found)
    took = f"{steps:.2f} steps and {tokens:.0f} output tokens"
    escalated = sum(_is_passed_on(run) for run, _ in found)
    return f"{right} of {len(found)} right, {took} a question, {escalated} passed on by a router"


def _is_passed_on(run: Run) -> bool:
    """True if the router left the question to the conductor."""
    routed = run.rounds[0].routed if run.rounds else None
    return routed is not None and routed.escalated


if __name__ == "__main__":
    main()
