"""Scoring a plan: a conductor's text and a task in, what it earned and why out.

    scorer = Scorer(workers, reward=PAPER)
    result = await scorer.score(text, task, pool)
    result.reward, result.parts, result.run

The text is read as a plan, carried out by the engine that carries out everybody's plans, and its
answer is graded. Nothing here knows a trainer or a batch: any number of scorings may be under
way on one event loop, and whoever trains makes of the rewards what they like.

A worker's fault is never the plan's fault. By the tree of `podium.errors`, whatever is a
`WorkerError` is for the worker or its provider to mend, and that includes `RequestRefused`, for
a request too long or a model that is gone: a rollout whose answer depends on a call that failed
so in the end is dropped, with `reward` None, also where a fallback stood in for the worker that
the plan had chosen. A worker that answers is no fault, whatever it says: wrongly, with a refusal
in words, cut off at its limit of output, or with nothing at all. Such an answer is graded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from podium.conductors import plan
from podium.core.conductor import Conductor, Plan, PlanningContext
from podium.core.errors import ConfigError, MalformedPlan, PlanError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.run import Round, Run, StepRecord, best_step, new_run_id, timestamp
from podium.core.task import Task
from podium.core.worker import Caller, Worker
from podium.core.workflow import DEFAULT_MAX_STEPS, Workflow
from podium.engine import CallPolicy
from podium.engine.runner import Runner
from podium.train.rewards import PAPER, Reward

Amend = Callable[[Workflow], Workflow]
"""Makes of a plan what is carried out of it, or raises `MalformedPlan`."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a text earned as a plan for a task.

    `reward` is None where the rollout is to be dropped, else the sum of `parts`. `run` is None
    where nothing was carried out; `workflow` is None for a text that is no plan, and for one
    that accepts the answer there is. `valid` says whether the text is a plan, `right` whether
    its answer was. `problem` tells in words what went wrong, where something did. `was_right` says
    whether the answer was right that this plan followed; None where there was none, or where the
    reward takes nothing off for a needless plan or a hasty one.
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
    def dropped(self) -> bool:
        """Whether the rollout teaches nothing, through no fault of its plan."""
        return self.reward is None

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """What was carried out of this very plan, earlier rounds not included."""
        return self.run.rounds[-1].steps if self.run is not None else ()


class _Read(NamedTuple):
    """A text that was read as a plan, and what it is a plan for; `workflow` is None where it
    accepts the answer there is."""

    text: str
    workflow: Workflow | None
    task: Task
    pool: Pool
    rounds: tuple[Round, ...]
    tokens: int


class PlanScorer(Protocol):
    """Whoever scores plans: a `Scorer` here, or many elsewhere (`podium.train.cluster`)."""

    async def score(
        self,
        text: str,
        task: Task,
        pool: Pool,
        *,
        rounds: tuple[Round, ...] = (),
        ended: bool = True,
        completion_tokens: int | None = None,
        is_followed: bool = False,
    ) -> Score:
        """Score the text as a plan for the task over that pool."""
        ...


class Scorer:
    """Scores plans over one set of workers.

    `amend` makes of every plan the one that is carried out instead, or raises `MalformedPlan`
    for one that is not allowed; plans are carried out as they are where there is none.
    `call_policy`
    is what calls share (retries, gates, clock); one of its own where none is given. `later` are
    the workers as rounds after the first meet them; where they are left out, the same.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        reward: Reward = PAPER,
        max_steps: int = DEFAULT_MAX_STEPS,
        amend: Amend | None = None,
        call_policy: CallPolicy | None = None,
        later: Sequence[Worker] | None = None,
    ) -> None:
        call_policy = call_policy or CallPolicy()
        self.reward = reward
        self.max_steps = max_steps
        self._amend = amend
        self._first = Runner(_Written(), workers, call_policy=call_policy)
        self._later = Runner(
            _Written(), workers if later is None else later, call_policy=call_policy
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
        is_followed: bool = False,
    ) -> Score:
        """Score the text as a plan for the task over that pool.

        With `rounds`, which an earlier plan for the same task has been through, the text is the
        plan of the next round: it may accept the answer there is, and its steps may read the
        round before, as in every run. Only what this plan adds is scored; what the earlier
        rounds cost, and their faults, are theirs. `ended` is False for a text that was cut off
        at a limit of tokens, which is malformed however it looks. `completion_tokens` is its
        length, needed where the reward counts it. `is_followed` says that another round may go on
        from this one, which needs an answer to accept: where the plan itself is graded, it is
        carried out all the same.
        """
        _refuse_conductors(pool)
        if self.reward.per_completion_token and completion_tokens is None:
            raise UsageError("this reward counts the plan's tokens; give completion_tokens")
        tokens = completion_tokens or 0
        try:
            workflow = self._read(text, pool, rounds, ended=ended)
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
        read = _Read(text, workflow, task, pool, rounds, tokens)
        if task.plan_grader is None:
            return await self._carried_out(read)
        right = task.plan_grader(workflow or _last_workflow(rounds))
        run = await self._run(read) if is_followed else None
        return await self._earned(read, run, right=right)

    def _read(
        self, text: str, pool: Pool, rounds: tuple[Round, ...], *, ended: bool
    ) -> Workflow | None:
        if not ended:
            raise MalformedPlan("plan", "it was cut off at the limit of tokens; write less")
        workflow = plan.parse(
            text,
            pool,
            max_steps=self.max_steps,
            strict=True,
            may_accept=best_step(rounds) is not None,
        ).workflow
        return workflow if workflow is None or self._amend is None else self._amend(workflow)

    async def _carried_out(self, read: _Read) -> Score:
        """Carry the plan out and grade what it came to."""
        task, run = read.task, await self._run(read)
        done = run.rounds[-1]
        failed = worker_fault(done)
        cost = self.reward.cost_of(done.steps)
        if failed or cost is None:
            problem = failed or "a worker did not say what it used, and this reward counts it"
            return Score(
                None,
                run=run,
                workflow=read.workflow,
                problem=problem,
                question=task.question,
                text=read.text,
            )
        right = run.answer is not None and await task.grader(run.answer)
        reached = 0.0 if right else await self._reached(task, done)
        return await self._earned(read, run, right=right, cost=cost, reached=reached)

    async def _earned(
        self,
        read: _Read,
        run: Run | None,
        *,
        right: bool,
        cost: float = 0.0,
        reached: float = 0.0,
    ) -> Score:
        """What the plan earns, now that it is known whether it is right."""
        workflow, was_right = read.workflow, await self._was_right(read.task, read.rounds)
        parts = self.reward.of_plan(
            right=right,
            steps=_length(workflow),
            cost=cost,
            completion_tokens=read.tokens,
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
            problem=run.error or "" if run is not None else "",
            question=read.task.question,
            text=read.text,
            was_right=was_right,
        )

    async def _run(self, read: _Read) -> Run:
        """Carry the plan out. To the engine this is a run that was cut off just when its last round
        had been planned, so that there is no second way to carry out a plan."""
        rounds, workflow = read.rounds, read.workflow
        round_ = Round(len(rounds), workflow, plan_text=read.text, accepted=workflow is None)
        return await (self._later if rounds else self._first).resume(
            Run(
                id=new_run_id(),
                question=read.task.question,
                status="interrupted",
                pool=read.pool,
                conductor=_Written.name,
                created_at=timestamp(),
                rounds=(*rounds, round_),
                max_steps=self.max_steps,
                max_rounds=len(rounds) + 1,
            )
        )

    async def _was_right(self, task: Task, rounds: tuple[Round, ...]) -> bool | None:
        """Whether the answer that could have been accepted is right, where it counts; its plan
        speaks for it where plans are graded."""
        counts = self.reward.replan_penalty or self.reward.accept_penalty
        before = best_step(rounds) if counts else None
        if before is None:
            return None
        if task.plan_grader is not None:
            return task.plan_grader(_last_workflow(rounds))
        return await task.grader(before.reply)

    async def _reached(self, task: Task, round_: Round) -> float:
        """The share of the task's milestones that some step's reply was, where it counts."""
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
    """Score one text; without a pool, over all the workers in their order.

    Who scores many makes one `Scorer` and keeps it.
    """
    return await Scorer(workers, reward=reward, max_steps=max_steps).score(
        text,
        task,
        pool or Pool(tuple(worker.profile for worker in workers)),
        rounds=rounds,
        ended=ended,
        completion_tokens=completion_tokens,
    )


class _Written(Conductor):
    """Stands where a run has its conductor, for a run whose plan is written already."""

    name = "scored"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Never asked, because the round that is scored is the last."""
        raise PlanError("the plan that is scored is the only one there is")


def _refuse_conductors(pool: Pool) -> None:
    for worker in pool.workers:
        if worker.provider == CONDUCTOR_PROVIDER:
            raise ConfigError(
                f"{worker.name} is a conductor, and no runs are nested while plans are scored; "
                f"take it out of the pool"
            )


def worker_fault(round_: Round) -> str:
    """What a worker must mend before the round's plan can be judged, in words; or nothing.

    A worker that was asked again and answered is no fault, so only its last call counts.
    """
    needed = _needed(round_)
    for step in round_.steps:
        if step.index in needed:
            for worker, error in {call.worker: call.error for call in step.attempts}.items():
                if error is not None:
                    return f"step {step.index} ({worker}): {error}"
    return ""


def _needed(round_: Round) -> set[int]:
    """The steps that the answer depends on: the last one and all it reads, directly or not. If
    the last one gave no answer, then the answer is another's, and every step counts."""
    if round_.workflow is None:
        return set()
    if round_.final is None:
        return set(range(len(round_.workflow)))
    needed = {len(round_.workflow) - 1}
    for index in reversed(range(len(round_.workflow))):
        if index in needed:
            needed.update(round_.workflow.reads(index))
    return needed


def _length(workflow: Workflow | None) -> int:
    return 0 if workflow is None else len(workflow)


def _last_workflow(rounds: tuple[Round, ...]) -> Workflow:
    """The plan behind an answer that is accepted."""
    return next(round_.workflow for round_ in reversed(rounds) if round_.workflow is not None)
