"""A task: a question that can be graded, and what it takes to grade it.

Tasks are what conductors are trained on and what strategies are measured by; a suite is a list
of them. Where tasks come from is `podium.tasks`; what is made of them is `podium.train` and
`podium.evals`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from podium.core.run import Run, StepRecord, total_cost, total_usage
from podium.core.workflow import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A run, and its reward from 0 to 1.

    `source` says who judged it, and `judged_at` when. `task` is what it was graded by, as JSON,
    where a grader had one. With `excludes`, whoever asked named workers or providers that must
    see nothing of it.
    """

    run: Run
    reward: float
    source: str
    judged_at: str = ""
    task: str = ""
    excludes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of asking one worker one question. `cost` is in dollars; like `output_tokens` it is
    None where nobody knows it."""

    question: str
    worker: str
    model: str
    reward: float
    cost: float | None
    output_tokens: int | None
    source: str

    def to_json(self) -> dict[str, Any]:
        """As it stands in a line of a log."""
        return asdict(self)


def worker_outcome(judged: JudgedRun) -> Outcome | None:
    """What one worker earned; None where the reward is not one worker's."""
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
    """The step that did all of a run; None where there were others, or runs nested in it."""
    planned = [round_.workflow for round_ in run.rounds if round_.workflow is not None]
    if len(planned) != 1 or len(planned[0]) != 1 or len(run.steps) != 1:
        return None
    (step,) = run.steps
    return step if step.status == "done" and not step.nested else None


class Grader(Protocol):
    """Tells whether a final answer is right."""

    async def __call__(self, answer: str) -> bool:
        """Grade the answer. A wrong, empty or endless answer is False, never an error: what is
        raised says that nobody could grade, as when a judge is out of reach, and then the
        answer is neither right nor wrong."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question and its grader.

    `kind` is what tables group by: a subject, a shape. `difficulty` is what the data itself says
    of how hard the task is, None where it says nothing. `answer` is the reference in words, where
    there is one. `judge` names the worker that decides where the grade is a model's opinion:
    what is reported of such a task must say so. `milestones` grade the results that a good run
    comes by on its way, where they are known: training may give some credit for these. With
    `plan_grader` the plan itself is graded and need not be carried out: for questions whose
    answers cannot be checked, where it still is clear what a sensible plan looks like.
    """

    id: str
    question: str
    grader: Grader
    kind: str = ""
    difficulty: str | None = None
    answer: str = ""
    judge: str | None = None
    milestones: tuple[Grader, ...] = ()
    plan_grader: Callable[[Workflow], bool] | None = None


Suite = Sequence[Task]
"""Tasks in order."""
