"""Evaluations made up for tests of what is read back from them: real files, invented outcomes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Price, Usage
from podium.core.run import Attempt, Round, Run, StepRecord
from podium.core.task import Task
from podium.core.workflow import Access, Step, Workflow
from podium.evals.log import SUMMARY, EvalLogWriter, write_json
from podium.evals.sample import Case, Sample, grade_run

WORKERS = {
    "gpt-5": Price(input=1.25, output=10),
    "claude-sonnet-4": Price(input=3, output=15),
    "gemma-3-27b": Price(input=0.1, output=0.2),
}
POOL = Pool(
    tuple(WorkerProfile(name=n, provider="scripted", price=price) for n, price in WORKERS.items())
)

Planned = Sequence[tuple[str, str, Access]]
"""Steps: the worker, the subtask, what it may read."""

SINGLE_PLAN: Planned = (("gpt-5", "Solve it.", ()),)
PLANS: Mapping[str, Planned] = {
    "easy": (("gemma-3-27b", "Solve it and give the answer.", ()),),
    "medium": (
        ("gpt-5", "Solve it step by step.", ()),
        ("claude-sonnet-4", "Check the solution and give the answer.", (0,)),
    ),
    "hard": (
        ("claude-sonnet-4", "Outline an approach, without solving it.", ()),
        ("gpt-5", "Solve it by that approach.", (0,)),
        ("gemma-3-27b", "Solve it by cases.", ()),
        ("gpt-5", "Compare the two solutions and give the answer.", (1, 2)),
    ),
}
REVISED: Planned = (("gpt-5", "Check it once more.", "all"),)


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its one right answer."""

    id: str
    question: str = "What is six times seven?"
    answer: str = "42"
    kind: str = "arithmetic"
    difficulty: str | None = None

    @property
    def case(self) -> Case:
        async def grader(answer: str) -> bool:
            return answer == self.answer

        task = Task(
            id=self.id,
            question=self.question,
            grader=grader,
            kind=self.kind,
            difficulty=self.difficulty,
            answer=self.answer,
        )
        return Case(task, POOL)


def run_of(item: Item, answer: str, *plans: Planned, strategy: str = "conductor") -> Run:
    """A run in which the last step's reply is the answer."""
    tokens = 300 + len(item.question) + 40 * len(item.id)
    rounds = []
    for number, plan in enumerate(plans):
        steps = []
        for index, (worker, subtask, access) in enumerate(plan):
            usage = Usage(tokens + 200 * index, 150 + 60 * index, 0, 0, 0)
            began = 900.0 * (number + index)
            attempt = Attempt(worker, usage, WORKERS[worker].cost(usage), began, began + 800)
            is_last = number == len(plans) - 1 and index == len(plan) - 1
            steps.append(
                StepRecord(
                    round=number,
                    index=index,
                    worker=worker,
                    subtask=subtask,
                    access=access,
                    status="done",
                    reply=answer if is_last else f"I would say {answer}, since…",
                    error=None,
                    started_ms=began,
                    finished_ms=began + 800,
                    attempts=(attempt,),
                    answered_by=worker,
                )
            )
        planning: tuple[Attempt, ...] = ()
        if strategy in ("conductor", "recursion"):
            planning = (Attempt("planner", Usage(900, 120, 0, 0, 0), 0.0, 0.0, 300.0),)
        workflow = Workflow(tuple(Step(*step) for step in plan))
        rounds.append(Round(number, workflow, tuple(steps), planning))
    return Run(
        id=f"run_{item.id}",
        question=item.question,
        status="answered",
        pool=POOL,
        conductor=strategy,
        created_at="2026-11-15T10:00:00.000+00:00",
        rounds=tuple(rounds),
        answer=answer,
    )


async def sample_of(item: Item, run: Run, **changed: Any) -> Sample:
    sample = await grade_run(item.case, run)
    seconds = max(step.finished_ms for step in run.steps) / 1000
    return replace(sample, seconds=seconds, **changed)


Answers = Mapping[str, Sequence[tuple[Item, str]]]
"""By strategy: what was answered to each question."""


def plans_for(strategy: str, item: Item) -> tuple[Planned, ...]:
    family, _, worker = strategy.partition(":")
    if family == "single":
        return (((worker, item.question, ()),),)
    if family in ("majority", "moa"):
        asked: Planned = tuple((name, item.question, ()) for name in WORKERS)
        together: Planned = (("gpt-5", "put the responses together", (0, 1, 2)),)
        return ((*asked, *together),) if family == "moa" else (asked,)
    plan = PLANS.get(item.difficulty or "easy", SINGLE_PLAN)
    return (plan, REVISED) if family == "recursion" else (plan,)


async def write_evaluation(directory: Path, answers: Answers, **summary: Any) -> Path:
    """An evaluation of these answers; with `rows` and the like in a summary, a finished one."""
    with EvalLogWriter(directory) as files:
        for strategy, answered in answers.items():
            for item, answer in answered:
                run = run_of(item, answer, *plans_for(strategy, item), strategy=strategy)
                files.write_sample(strategy, await sample_of(item, run), run)
    if summary:
        write_json(directory / SUMMARY, summary)
    return directory


def draw(*words: object) -> float:
    """A number from 0 to 1 that is the same for the same words."""
    digest = hashlib.blake2b(repr(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
