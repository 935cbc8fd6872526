"""Credit: what a run earned, and to whom that belongs.

A reward is earned by a whole run. Where one worker did all of it in one step, the reward is that
worker's, and a router can learn from it. What several steps earned belongs to none of them: it
belongs to the plan, and teaches the conductor.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from podium.attempt import total_cost, total_usage
from podium.run import Run, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
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


def outcome_of(judged: Judged) -> Outcome | None:
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
