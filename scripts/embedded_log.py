"""What the embedded pool's workers earned, question by question: the log that its router is trained
on.

    python scripts/embedded_log.py log.jsonl
    podium train router recipes/router-embedded.toml

Études of the training split are put to every worker, and graded; those of several steps are among
them, which no worker can do alone, so that the router learns when it cannot be sure. Of everyday
questions, whose answers nobody can grade, the generalist is taken to earn all and the others
nothing, unless a specialist knows the answer. Lines of a file that is already there stand, and are
not made again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from podium import AsyncPodium
from podium.config import load
from podium.config.current import EMBEDDED_POOL
from podium.etudes import FAMILIES, Etude, Etudes, everyday, sensible
from podium.etudes.shapes import USUAL, EtudeShape
from podium.run import Run
from podium.task import Task
from podium.tasks import etude_task
from podium.workflow import Step, Workflow

SEED: Final = 8
OF_EACH_FAMILY: Final = 25
OF_SEVERAL_STEPS: Final = 45
AT_ONCE: Final = 4


def main() -> None:
    """Write the log to the file that the command line names."""
    file = Path(sys.argv[1])
    written = file.read_text("utf-8").splitlines() if file.exists() else []
    with file.open("a", encoding="utf-8") as log:
        asyncio.run(_write(log, [json.loads(line) for line in written]))


async def _write(log: TextIO, written: list[dict[str, Any]]) -> None:
    done = {(row["question"], row["worker"]) for row in written}
    async with AsyncPodium(settings=load(EMBEDDED_POOL)) as podium:
        models = {worker.name: worker.model for worker in await podium.pool()}
        places = asyncio.Semaphore(AT_ONCE)

        async def measure(task: Task, worker: str) -> None:
            async with places:
                workflow = Workflow((Step(worker, task.question),))
                run = await podium.run(workflow, task.question)
            reward = float(await task.grader(run.answer or ""))
            write(_row(task.question, worker, models[worker], reward, run))

        def write(row: dict[str, Any]) -> None:
            log.write(json.dumps(row, ensure_ascii=False) + "\n")
            log.flush()

        tasks = [etude_task(etude) for etude in _etudes()]
        # One worker after another: an adapter is switched to once, not for every question.
        for worker in models:
            left = [task for task in tasks if (task.question, worker) not in done]
            await asyncio.gather(*(measure(task, worker) for task in left))
    for question in everyday("train"):
        for worker, model in models.items():
            if (question, worker) not in done:
                sense = sensible(Workflow((Step(worker, question),)), question)
                write(_row(question, worker, model, float(sense)))


def _etudes() -> Iterator[Etude]:
    """So many of each family that one worker can do, and so many that none can."""
    left: dict[str, int] = {}
    for etude in Etudes(SEED).stream({EtudeShape.ONE: 1.0}):
        family = etude.families[0]
        left.setdefault(family, OF_EACH_FAMILY)
        if left[family]:
            left[family] -= 1
            yield etude
        if len(left) == len(FAMILIES) and not any(left.values()):
            break
    several = dict(USUAL)
    del several[EtudeShape.ONE]
    stream = Etudes(SEED).stream(several)
    for _ in range(OF_SEVERAL_STEPS):
        yield next(stream)


def _row(
    question: str, worker: str, model: str, reward: float, run: Run | None = None
) -> dict[str, Any]:
    return {
        "question": question,
        "worker": worker,
        "model": model,
        "reward": reward,
        "cost": 0.0,
        "output_tokens": run.usage.output_tokens if run is not None else None,
        "source": "etudes" if run is not None else "everyday",
    }


if __name__ == "__main__":
    main()
