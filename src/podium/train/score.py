"""Scoring a plan: a conductor's text and a task in, its reward and the reasons out.

    scorer = Scorer(workers, reward=PAPER)
    result = await scorer.score(text, task, pool)
    result.reward, result.parts, result.run

The text is parsed, executed by the engine and graded. No trainer is known here, and any number
of scorings may run on one event loop.

A worker's fault is never the plan's fault. If the answer depends on a call that ended with a
`WorkerError`, the rollout is dropped (`reward` is None), even if a fallback stood in for the
worker. A worker that answers is no fault, whatever it says: such an answer is graded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from podium.conductors import plan
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import ConfigError, MalformedPlan, PlanError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.request import add
from podium.core.run import Round, Run, StepRecord, best_answer_step
from podium.core.task import Task
from podium.core.worker import Caller, Worker
from podium.core.workflow import DEFAULT_MAX_STEPS, Workflow
from podium.engine import CallPolicy
from podium.engine.runner import Runner

_PENALTIES: Final = (
    "penalty_per_usd",
    "penalty_per_1000_worker_tokens",
    "penalty_per_completion_token",
    "penalty_per_extra_step",
    "replan_penalty",
    "accept_penalty",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The reward of each outcome. Everything below `right` is 0 in the paper.

    `milestones` is added to a wrong answer for the intermediate results that were right, in
    proportion. `replan_penalty` is subtracted from a plan that follows a right answer: the same
    plan again would earn as much as accepting it. `accept_penalty` is subtracted for accepting a
    wrong answer. Penalties never make a valid plan worth less than a malformed one: otherwise the
    policy would learn to write no plan.
    """

    malformed: float = 0.0
    wrong: float = 0.5
    right: float = 1.0
    milestones: float = 0.0
    penalty_per_usd: float = 0.0
    penalty_per_1000_worker_tokens: float = 0.0
    penalty_per_completion_token: float = 0.0
    penalty_per_extra_step: float = 0.0
    replan_penalty: float = 0.0
    accept_penalty: float = 0.0

    def __post_init__(self) -> None:
        values = (self.malformed, self.wrong, self.right)
        if not all(map(math.isfinite, values)) or not self.malformed <= self.wrong < self.right:
            raise ConfigError(
                f"reward.malformed is {self.malformed:g}, reward.wrong {self.wrong:g} and "
                f"reward.right {self.right:g}; they must ascend, and right must be the highest"
            )
        if not 0 <= self.milestones < self.right - self.wrong:
            raise ConfigError(
                f"reward.milestones is {self.milestones:g}; expected a number from 0 to less than "
                f"{self.right - self.wrong:g}, the difference of right and wrong"
            )
        for name in _PENALTIES:
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"reward.{name} is {getattr(self, name)}; expected a number from 0 up, which "
                    f"is subtracted"
                )

    def of_malformed(self, completion_tokens: int = 0) -> Mapping[str, float]:
        return _nonzero(
            {
                "format": self.malformed,
                "length": -self.penalty_per_completion_token * completion_tokens,
            },
            "format",
        )

    def of_plan(
        self,
        *,
        right: bool,
        steps: int,
        cost: float = 0.0,
        completion_tokens: int = 0,
        reached: float = 0.0,
        replans_right_answer: bool = False,
        accepts_wrong_answer: bool = False,
    ) -> Mapping[str, float]:
        """Return the parts of a valid plan's reward.

        `cost` is the result of `cost_of`, `reached` the share of milestones that were reached.
        The part `floor` gives back penalties that would go below a malformed plan's reward.
        """
        length = self.penalty_per_completion_token * completion_tokens
        length += self.penalty_per_extra_step * max(0, steps - 1)
        parts = {
            "format": self.wrong,
            "answer": self.right - self.wrong if right else 0.0,
            "milestones": 0.0 if right else self.milestones * reached,
            "cost": -cost,
            "length": -length,
            "replan_penalty": -self.replan_penalty if replans_right_answer else 0.0,
            "accept_penalty": -self.accept_penalty if accepts_wrong_answer else 0.0,
        }
        parts["floor"] = max(0.0, self.malformed - sum(parts.values()))
        return _nonzero(parts, "format", "answer")

    def cost_of(self, steps: tuple[StepRecord, ...]) -> float | None:
        """Return the penalty for the workers' cost and tokens; None if either is unknown."""
        total: float | None = 0.0
        for step in steps:
            if self.penalty_per_usd:
                cost = step.cost_usd
                total = add(total, None if cost is None else self.penalty_per_usd * cost)
            if self.penalty_per_1000_worker_tokens:
                tokens = step.usage.total_tokens
                taken = (
                    None if tokens is None else self.penalty_per_1000_worker_tokens * tokens / 1000
                )
                total = add(total, taken)
        return total


PAPER: Final = Reward()
RELEASED: Final = Reward(right=1.5)
"""The rewards of the code that the paper's authors released."""


def combine_rounds(first: float | None, second: float | None, discount: float) -> float | None:
    """Return `(1 - discount) * first + discount * second`, the reward of a plan with a next round.

    A dropped rollout is None: without the first there is no reward, without the second the first
    stands alone.
    """
    if not 0 <= discount <= 1:
        raise ConfigError(f"recursion.discount is {discount}; expected a share from 0 to 1")
    if first is None or second is None:
        return first
    return (1 - discount) * first + discount * second


def _nonzero(parts: Mapping[str, float], *always: str) -> Mapping[str, float]:
    return {name: value for name, value in parts.items() if value or name in always}


PlanTransform = Callable[[Workflow], Workflow]
"""Returns the workflow to execute in place of the plan's, or raises `MalformedPlan`."""


@dataclass(frozen=True, slots=True)
class Score:
    """The result of scoring a text.

    `reward` is the sum of `parts`, or None if the rollout is dropped. `workflow` is None for a
    malformed plan and for an acceptance. `was_right` says whether the answer before this round was
    right, if the reward depends on it.
    """

    reward: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    run: Run | None = None
    workflow: Workflow | None = None
    valid: bool = True
    right: bool = False
    problem: str = ""
    question: str = ""
    text: str = ""
    was_right: bool | None = None

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The executed steps of this plan, without earlier rounds."""
        return self.run.rounds[-1].steps if self.run is not None else ()


class Scorer:
    """Scores plans over one set of workers.

    `transform_plan` replaces every plan's workflow before it is executed. `call_policy` is shared
    by all calls. `second_round_workers` work in rounds after the first; by default the same ones.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        reward: Reward = PAPER,
        max_steps: int = DEFAULT_MAX_STEPS,
        transform_plan: PlanTransform | None = None,
        call_policy: CallPolicy | None = None,
        second_round_workers: Sequence[Worker] | None = None,
    ) -> None:
        call_policy = call_policy or CallPolicy()
        self.reward = reward
        self.max_steps = max_steps
        self._transform_plan = transform_plan
        self._first = Runner(NoConductor(), workers, call_policy=call_policy)
        self._second_round = self._first
        if second_round_workers is not None:
            self._second_round = Runner(
                NoConductor(), second_round_workers, call_policy=call_policy
            )

    async def score(
        self,
        text: str,
        task: Task,
        pool: Pool,
        *,
        rounds: tuple[Round, ...] = (),
        ended: bool = True,
        completion_tokens: int | None = None,
        may_continue: bool = False,
    ) -> Score:
        """Score the text as a plan for the task over that pool.

        `rounds` are those before this plan, which may accept their answer; their cost and faults
        do not count. A completion that was not `ended` was cut off, and is malformed.
        `completion_tokens` are required if the reward depends on them. With `may_continue` the plan
        is executed even if the task grades plans: a next round needs an answer.
        """
        _refuse_conductors(pool)
        if self.reward.penalty_per_completion_token and completion_tokens is None:
            raise UsageError("completion_tokens is required: the reward depends on the length")
        tokens = completion_tokens or 0
        try:
            workflow = self._parse(text, pool, rounds, ended=ended)
        except MalformedPlan as malformed:
            parts = self.reward.of_malformed(tokens)
            return Score(
                sum(parts.values()),
                parts,
                valid=False,
                problem=str(malformed),
                question=task.question,
                text=text,
            )
        run, cost, reached = None, 0.0, 0.0
        if task.plan_grader is None or may_continue:
            run = await self._execute(text, workflow, task, pool, rounds)
        if task.plan_grader is not None:
            right = task.plan_grader(workflow or _last_workflow(rounds))
        else:
            assert run is not None
            done = run.rounds[-1]
            failed, found_cost = worker_fault(done), self.reward.cost_of(done.steps)
            if failed or found_cost is None:
                problem = failed or "a worker reported no usage, and the reward depends on it"
                return Score(
                    None,
                    run=run,
                    workflow=workflow,
                    problem=problem,
                    question=task.question,
                    text=text,
                )
            cost = found_cost
            right = run.answer is not None and await task.grader(run.answer)
            reached = 0.0 if right else await self._milestone_share(task, done)
        was_right = await self._was_right(task, rounds)
        parts = self.reward.of_plan(
            right=right,
            steps=0 if workflow is None else len(workflow),
            cost=cost,
            completion_tokens=tokens,
            reached=reached,
            replans_right_answer=workflow is not None and was_right is True,
            accepts_wrong_answer=workflow is None and was_right is False,
        )
        return Score(
            sum(parts.values()),
            parts,
            run=run,
            workflow=workflow,
            right=right,
            problem=(run.error or "") if run is not None else "",
            question=task.question,
            text=text,
            was_right=was_right,
        )

    def _parse(
        self, text: str, pool: Pool, rounds: tuple[Round, ...], *, ended: bool
    ) -> Workflow | None:
        """Return the workflow to execute; None if the text accepts the answer before."""
        if not ended:
            raise MalformedPlan("plan", "it was cut off at the limit of tokens; write less")
        workflow = plan.parse(
            text,
            pool,
            max_steps=self.max_steps,
            strict=True,
            may_accept=best_answer_step(rounds) is not None,
        ).workflow
        if workflow is None or self._transform_plan is None:
            return workflow
        return self._transform_plan(workflow)

    async def _execute(
        self,
        text: str,
        workflow: Workflow | None,
        task: Task,
        pool: Pool,
        rounds: tuple[Round, ...],
    ) -> Run:
        runner = self._second_round if rounds else self._first
        planned = Round(len(rounds), workflow, plan_text=text, accepts_answer=workflow is None)
        return await runner.execute(
            task.question, (*rounds, planned), pool=pool, max_steps=self.max_steps
        )

    async def _was_right(self, task: Task, rounds: tuple[Round, ...]) -> bool | None:
        counts = self.reward.replan_penalty or self.reward.accept_penalty
        before = best_answer_step(rounds) if counts else None
        if before is None:
            return None
        if task.plan_grader is not None:
            return task.plan_grader(_last_workflow(rounds))
        return await task.grader(before.reply)

    async def _milestone_share(self, task: Task, round_: Round) -> float:
        """Return the share of milestones that a reply of the round reached, if they count."""
        if not self.reward.milestones or not task.milestones:
            return 0.0
        replies = {step.reply for step in round_.steps if step.status == "done"}
        reached = 0
        for milestone in task.milestones:
            for reply in replies:
                if await milestone(reply):
                    reached += 1
                    break
        return reached / len(task.milestones)


async def score(
    text: str,
    task: Task,
    workers: Sequence[Worker],
    pool: Pool | None = None,
    *,
    reward: Reward = PAPER,
    max_steps: int = DEFAULT_MAX_STEPS,
    rounds: tuple[Round, ...] = (),
    ended: bool = True,
    completion_tokens: int | None = None,
) -> Score:
    """Score one text, without a pool over all workers. Keep a `Scorer` to score many."""
    return await Scorer(workers, reward=reward, max_steps=max_steps).score(
        text,
        task,
        pool or Pool(tuple(worker.profile for worker in workers)),
        rounds=rounds,
        ended=ended,
        completion_tokens=completion_tokens,
    )


class NoConductor(Conductor):
    """Stands for the conductor where the plan is written already."""

    name = "scored"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        raise PlanError("a scored run has one plan, which is written already")


def _refuse_conductors(pool: Pool) -> None:
    for worker in pool.workers:
        if worker.provider == CONDUCTOR_PROVIDER:
            raise ConfigError(
                f"{worker.name} is a conductor: nested runs are not supported while plans are "
                f"scored; take it out of the pool"
            )


def worker_fault(round_: Round) -> str:
    """Return the worker error that the round's answer depends on, or an empty text.

    Only a worker's last call counts: a retry that succeeded is no fault.
    """
    needed = _needed_steps(round_)
    for step in round_.steps:
        if step.index in needed:
            for worker, error in {call.worker: call.error for call in step.attempts}.items():
                if error is not None:
                    return f"step {step.index} ({worker}): {error}"
    return ""


def _needed_steps(round_: Round) -> set[int]:
    """Return the steps that the answer depends on: the last one and all that it reads.

    If the last one gave no answer, the answer is another step's, and every step counts.
    """
    if round_.workflow is None:
        return set()
    if round_.answer_step is None:
        return set(range(len(round_.workflow)))
    needed = set(range(round_.workflow.earliest_answer_step, len(round_.workflow)))
    for index in reversed(range(len(round_.workflow))):
        if index in needed:
            needed.update(round_.workflow.waits_for(index))
    return needed


def _last_workflow(rounds: tuple[Round, ...]) -> Workflow:
    return next(round_.workflow for round_ in reversed(rounds) if round_.workflow is not None)
