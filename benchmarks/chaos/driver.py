"""The process that is killed: runs every question that the store has no end of.

    python -m benchmarks.chaos.driver DIRECTORY RUNS SEED IN_FLIGHT

It resumes stored runs, starts the others, and prints `ready` when it begins.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import ENDED, every_run, in_turns
from benchmarks.chaos.scene import (
    CONFIGURATION,
    STORE,
    budget_of,
    mark_of,
    question_of,
    workflow_of,
)
from podium.client.client import AsyncPodium
from podium.config import discover_settings

READY: Final = "ready"


async def drive(directory: Path, runs: int, seed: int, in_flight: int) -> None:
    """Run `runs` questions, or what is left of them."""
    settings = await discover_settings(os.environ, config=directory / CONFIGURATION)
    async with AsyncPodium(settings=settings, store=directory / STORE) as podium:
        store = (await podium.open()).store
        begun = {mark_of(run.question): run async for run in every_run(store)}

        async def perform(index: int) -> None:
            question, workflow = question_of(index), workflow_of(index, seed)
            run = begun.get(mark_of(question))
            if run is None:
                await podium.run(workflow, question, budget=budget_of(workflow))
            elif run.status not in ENDED:
                await podium.resume(run.id)

        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        await in_turns(runs, in_flight, perform)


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    asyncio.run(drive(Path(where), *map(int, numbers)))
