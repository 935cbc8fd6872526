"""A conductor reads a question and a pool, and writes a plan. It never executes one.

class AlwaysFirst(Conductor):
    name = "always-first"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        worker = context.pool.workers[0]
        return Plan(Workflow((Step(worker.name, context.question),)))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from podium.core.pool import Pool
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Image, Message, ResponseOptions
from podium.core.routing import RoutingRecord
from podium.core.run import Round, TurnRole, best_answer_step
from podium.core.worker import Caller, Worker
from podium.core.workflow import DEFAULT_MAX_STEPS, Step, Workflow

FIXED: Final = "fixed"
"""The name of conductors that plan a given workflow."""


class EarlySteps(Protocol):
    """Executes a plan that is still being written.

    What begins counts only if the finished plan contains it; otherwise it is cancelled, and stays
    on record with its cost.
    """

    def begin(self, step: Step) -> None:
        """Start the next step; never the plan's last one, whose reply is the answer."""

    def cancel(self, reason: str) -> None:
        """Cancel the steps that have begun: the plan is void."""

    def speculate(self, worker: str) -> None:
        """Have that worker answer the question meanwhile; nothing where the budget is tight.

        A plan of one step for it uses that answer; any other cancels it.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """All that a conductor may know when it plans a round.

    Attributes:
        question: The question.
        pool: The workers that it may use.
        history: The conversation before the question.
        rounds: The run's earlier rounds.
        max_steps: The most steps of the plan.
        images: Images that belong to the question.
        response_options: What the answer must satisfy.
        replan_reason: Why a guardrail asked for another plan.
        rounds_left: How many rounds are left, this one included.
        quality_bias: Quality over cost from 0 to 1, if set.
        early: Executes steps before the plan is complete, where the engine can.

    """

    question: str
    pool: Pool
    history: tuple[Message, ...] = ()
    rounds: tuple[Round, ...] = ()
    max_steps: int = DEFAULT_MAX_STEPS
    images: tuple[Image, ...] = ()
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
    replan_reason: str = ""
    rounds_left: int = 1
    quality_bias: float | None = None
    early: EarlySteps | None = field(default=None, repr=False, compare=False)

    @property
    def answer(self) -> str | None:
        """The best answer so far; without one, nothing can be accepted."""
        if self.replan_reason or not self.rounds:
            return None
        best = best_answer_step(self.rounds)
        return best.reply if best is not None else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of a conductor.

    Args:
        workflow: The workflow, or None to accept the last round's answer.
        text: What the conductor wrote.
        warnings: What was tolerated in it.
        role: The round's purpose, where the conductor assigns roles.
        routing: A learned router's decision.

    """

    workflow: Workflow | None
    text: str = ""
    warnings: tuple[str, ...] = ()
    role: TurnRole | None = None
    routing: RoutingRecord | None = None


@runtime_checkable
class Conductor(Protocol):
    """Question and pool in, plan out. Inherit from it, to get the defaults.

    Attributes:
        name: Appears on every run it plans.
        worker: The model that plans, if one does; budgets and exclusions apply to it too.
        prompt_hash: A fingerprint of its prompts, part of every run.
        local_model: A model in this process that it uses, if any; the server loads it at startup.
        is_trained: It was trained to plan, and leaves a simple question to one worker by itself.
        takes_turns: Its rounds are turns, not revisions; it always needs all of them.
    """

    name: str
    worker: Worker | None = None
    prompt_hash: str = ""
    local_model: object | None = None
    is_trained: bool = False
    takes_turns: bool = False

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan the next round.

        `call` reaches a model within the run's budget. Raises `BudgetExhausted`, or `PlanError`
        where there is nothing to fall back on.
        """


class RequestWorkflowConductor(Conductor):
    """Plans the workflow that came with the question; guardrails check both."""

    name = FIXED

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan the workflow; accept the answer once there is one."""
        return Plan(self.workflow if context.answer is None else None)
