"""A conductor reads a question and a pool, and writes a plan. It never executes one.

class AlwaysFirst(Conductor):
    name = "always-first"

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        worker = context.pool.workers[0]
        return Plan(Workflow((Step(worker.name, context.question),)))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, final, runtime_checkable

from podium.core.frozen import fast_init
from podium.core.pool import Pool
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Image, Message, ResponseOptions
from podium.core.run import Round, RoutingRecord, TurnRole, best_step
from podium.core.worker import Caller, Worker
from podium.core.workflow import DEFAULT_MAX_STEPS, Step, Workflow


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


@final
@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """All that a conductor may know when it plans a round.

    `rounds` are the run's earlier rounds; `rounds_left` counts the one to plan. `objection` is why
    a guardrail asked for another plan. `quality_bias` is quality over cost from 0 to 1, if set.
    `early` executes steps before the plan is complete, where the engine can.
    """

    question: str
    pool: Pool
    history: tuple[Message, ...] = ()
    rounds: tuple[Round, ...] = ()
    max_steps: int = DEFAULT_MAX_STEPS
    images: tuple[Image, ...] = ()
    response_options: ResponseOptions = DEFAULT_RESPONSE_OPTIONS
    objection: str = ""
    rounds_left: int = 1
    quality_bias: float | None = None
    early: EarlySteps | None = field(default=None, repr=False, compare=False)

    @property
    def answer(self) -> str | None:
        """The best answer so far; without one, nothing can be accepted."""
        if self.objection or not self.rounds:
            return None
        best = best_step(self.rounds)
        return best.reply if best is not None else None


@dataclass(frozen=True, slots=True)
class Plan:
    """A workflow, or None to accept the last round's answer.

    `text` is what the conductor wrote; `warnings` say what was tolerated in it. `role` is the
    round's purpose, where the conductor assigns roles; `routed` is a learned router's decision.
    """

    workflow: Workflow | None
    text: str = ""
    warnings: tuple[str, ...] = ()
    role: TurnRole | None = None
    routed: RoutingRecord | None = None


@runtime_checkable
class Conductor(Protocol):
    """Question and pool in, plan out. Inherit from it, to get the defaults.

    Attributes:
        name: Appears on every run it plans.
        worker: The model that plans, if one does; budgets and exclusions apply to it too.
        prompt_hash: A fingerprint of its prompts, part of every run.
        reader: A local model it reads with, if any; the server loads it at startup.
    """

    name: str
    worker: Worker | None = None
    prompt_hash: str = ""
    reader: object | None = None

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Plan the next round.

        `call` reaches a model within the run's budget. Raises `BudgetExhausted`, or `PlanError`
        where there is nothing to fall back on.
        """


@runtime_checkable
class SuppliedWorkflow(Protocol):
    """A conductor whose workflow came with the question; guardrails check both."""

    workflow: Workflow

    def with_workflow(self, workflow: Workflow) -> Conductor:
        """Return this conductor with the workflow that guardrails left."""
