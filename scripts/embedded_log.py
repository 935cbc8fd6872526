"""Write the log that the études' router is trained on: each worker's reward for each question.

    python scripts/embedded_log.py log.jsonl
    podium train router recipes/router-embedded.toml

Every worker answers études of the training split, which are graded; the specialist of the last
step answers more of them. Études of several steps, which no worker can answer alone, teach the
router when to be unsure. Everyday questions have no grader: the generalist gets reward 1 and the
others 0, unless a specialist knows the answer. Lines of an existing file are kept.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

from podium import AsyncPodium
from podium.config import load
from podium.config.sources import ETUDES_POOL
from podium.core.run import Run
from podium.core.task import Task
from podium.core.workflow import Step, Workflow
from podium_lab.etudes import FAMILIES, Etude, Etudes, everyday_questions, is_direct_plan
from podium_lab.etudes.shapes import USUAL, EtudeShape
from podium_lab.etudes.tasks import etude_task

SEED: Final = 8
OF_EACH_FAMILY: Final = 75
OF_SEVERAL_STEPS: Final = 150
EVERYONE: Final = ""
PUT_TO_ALL: Final = 25, 45
"""Of those, how many are put to every worker."""

AT_ONCE: Final = 4


def main() -> None:
    """Write the log to the file that the command line names."""
    file = Path(sys.argv[1])
    written = file.read_text("utf-8").splitlines() if file.exists() else []
    with file.open("a", encoding="utf-8") as log:
        asyncio.run(_write(log, [json.loads(line) for line in written]))


async def _write(log: TextIO, written: list[dict[str, Any]]) -> None:
    done = {(row["question"], row["worker"]) for row in written}
    async with AsyncPodium(settings=load(ETUDES_POOL)) as podium:
        models = {worker.name: worker.model for worker in (await podium.open()).assembly.pool}
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

        asked = list(_etudes())
        # One worker after another: an adapter is switched to once, not for every question.
        for worker in models:
            tasks = [etude_task(etude) for etude, who in asked if who in (worker, EVERYONE)]
            left = [task for task in tasks if (task.question, worker) not in done]
            await asyncio.gather(*(measure(task, worker) for task in left))
    for question in everyday_questions("train"):
        for worker, model in models.items():
            if (question, worker) not in done:
                sense = is_direct_plan(Workflow((Step(worker, question),)), question)
                write(_row(question, worker, model, float(sense)))


def _etudes() -> Iterator[tuple[Etude, str]]:
    """Yield études of each family that one worker can answer, and as many that none can, each with
    the workers to call."""
    counts: Counter[str] = Counter()
    for etude in Etudes(SEED).stream({EtudeShape.ONE: 1.0}):
        family = etude.families[0]
        if counts[family] < OF_EACH_FAMILY:
            yield etude, EVERYONE if counts[family] < PUT_TO_ALL[0] else family
            counts[family] += 1
        if sum(counts.values()) == OF_EACH_FAMILY * len(FAMILIES):
            break
    several = dict(USUAL)
    del several[EtudeShape.ONE]
    for number, etude in enumerate(islice(Etudes(SEED).stream(several), OF_SEVERAL_STEPS)):
        yield etude, EVERYONE if number < PUT_TO_ALL[1] else etude.families[-1]


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
