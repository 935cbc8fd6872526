"""A task: a question with a grader. A suite is a list of tasks.

Tasks come from `podium.tasks` and are used by `podium.train` and `podium.evals`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Any, Protocol, cast

from podium.core.request import Message, user
from podium.core.run import Run, StepRecord, total_cost, total_usage
from podium.core.workflow import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run and its reward from 0 to 1.

    `source` is the judge. `task` is the task as JSON, if it was graded by one. `has_exclusions`:
    the asker excluded workers or providers from seeing it.
    """

    run: Run
    reward: float
    source: str
    judged_at: str = ""
    task: str = ""
    has_exclusions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The reward of one worker on one question. `cost` is in US dollars; None is unknown."""

    question: str
    worker: str
    model: str
    reward: float
    cost: float | None
    output_tokens: int | None
    source: str

    def to_json(self) -> dict[str, Any]:
        """Return the line of a log."""
        return asdict(self)


def worker_outcome(judged: JudgedRun) -> Outcome | None:
    """Return the outcome of a run by one worker; None if others took part."""
    run = judged.run
    step = sole_step(run)
    if step is None:
        return None
    worker = step.answered_by or step.worker
    calls = [call for call in step.attempts if call.worker == worker and call.error is None]
    return Outcome(
        question=run.question,
        worker=worker,
        model=run.pool[worker].model if worker in run.pool.names else "",
        reward=judged.reward,
        cost=total_cost(iter(calls)),
        output_tokens=total_usage(iter(calls)).output_tokens,
        source=judged.source,
    )


def sole_step(run: Run) -> StepRecord | None:
    """Return the only step of a run; None if there were others or nested runs."""
    planned = [round_.workflow for round_ in run.rounds if round_.workflow is not None]
    if len(planned) != 1 or len(planned[0]) != 1 or len(run.steps) != 1:
        return None
    (step,) = run.steps
    return step if step.status == "done" and not step.nested else None


class Grader(Protocol):
    """Decides whether a final answer is right."""

    async def __call__(self, answer: str) -> bool:
        """Grade the answer: wrong or empty is False; an error means it could not be graded.

        A judge that is unreachable is such an error: the answer is then neither right nor wrong.
        """


def grader(function: Callable[[str], bool] | Callable[[str], Awaitable[bool]]) -> Grader:
    """Make a grader of a function from answer to verdict; use it as a decorator.

    Args:
        function: True if the answer is right. One that is no coroutine function runs in a thread.

    Returns:
        The grader of a `Task`.

    """

    @wraps(function)
    async def grade(answer: str) -> bool:
        if inspect.iscoroutinefunction(function):
            return bool(await function(answer))
        return bool(await asyncio.to_thread(cast("Callable[[str], bool]", function), answer))

    return grade


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question and its grader.

    Args:
        id: Unlike every other of its suite.
        question: What is asked.
        grader: Decides whether an answer is right.
        history: The conversation before the question.
        kind: What tables group by: a subject, a shape.
        difficulty: As the data set states it, if it does.
        answer: The reference answer, if there is one.
        judge: The worker whose opinion is the grade; reports must say so.
        milestones: Graders of intermediate results, for partial credit in training.
        plan_grader: Grades the plan instead of its execution, where answers cannot be checked.
    """

    id: str
    question: str
    grader: Grader
    history: tuple[Message, ...] = ()
    kind: str = ""
    difficulty: str | None = None
    answer: str = ""
    judge: str | None = None
    milestones: tuple[Grader, ...] = ()
    plan_grader: Callable[[Workflow], bool] | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation with the question at its end."""
        return (*self.history, user(self.question))


Suite = Sequence[Task]
