"""The join: two steps of 300 ms at once, then one of 100 ms that reads both.

Nothing can do it in less than 400 ms; one call after another takes 700. The workers really
sleep, as workers do while a model far away is thinking.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Final

from podium.conductors import FixedConductor
from podium.core.workflow import Step, Workflow
from podium.engine.runner import Runner
from podium.workers.scripted import ScriptedWorker

BRANCH_SECONDS: Final = 0.3
END_SECONDS: Final = 0.1
LEAST_SECONDS: Final = BRANCH_SECONDS + END_SECONDS
TIMES: Final = 3

WORKFLOW: Final = Workflow(
    (
        Step("branch", "look at one side"),
        Step("branch", "look at the other side"),
        Step("end", "bring both together", access=(0, 1)),
    )
)


async def join_makespan() -> float:
    """Seconds from the question to the answer, in the middle of three tries."""
    runner = Runner(
        FixedConductor(WORKFLOW),
        [
            ScriptedWorker("branch", "a view", delay_seconds=BRANCH_SECONDS),
            ScriptedWorker("end", "the answer", delay_seconds=END_SECONDS),
        ],
    )
    makespans = []
    for _ in range(TIMES):
        started = perf_counter()
        await runner.run("What do both sides say?")
        makespans.append(perf_counter() - started)
    return median(makespans)
