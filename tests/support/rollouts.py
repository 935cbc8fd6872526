"""Rollouts of a policy, with scores made up for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podium.core.pool import Pool, WorkerProfile
from podium.core.run import Round, Run
from podium.core.workflow import Step, Workflow
from podium.train.diagnostics import Rollout
from podium.train.score import Score
from support.rounds import answered

POOL = Pool(tuple(WorkerProfile(name=name) for name in ("ann", "bob", "cid", "dan")))


def chain(*workers: str) -> Workflow:
    return Workflow(
        tuple(
            Step(worker, "do it", (index - 1,) if index else ())
            for index, worker in enumerate(workers)
        )
    )


def run_of(round_: Round, answer: str = "4") -> Run:
    return Run(
        id="r",
        question="q",
        status="answered",
        pool=POOL,
        conductor="scored",
        created_at="",
        rounds=(round_,),
        answer=answer,
    )


def plan(*workers: str, right: bool = True, workflow: Workflow | None = None) -> Score:
    workflow = workflow or chain(*workers)
    return Score(
        1.0 if right else 0.5,
        run=run_of(answered(workflow, "4")),
        workflow=workflow,
        right=right,
        question="What is two and two?",
        text="the plan",
    )


MALFORMED = Score(0.0, valid=False, problem="plan: no lists", question="q", text="er")
DROPPED = replace(plan("ann"), reward=None, right=False, problem="step 0 (ann): down")
ACCEPTED = Score(1.0, run=run_of(Round(1, None, accepts_answer=True)), right=True)


def rollouts(
    scores: Sequence[Score], *, per_group: int = 4, kind: str = "sums", tokens: int = 50
) -> list[Rollout]:
    return [
        Rollout(index // per_group, score, tokens, POOL, kind) for index, score in enumerate(scores)
    ]
