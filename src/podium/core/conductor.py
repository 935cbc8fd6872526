"""What a conductor is: it reads a situation and writes a plan. It never carries one out.

A conductor is a plain class with a name and one method:

    class AlwaysFirst:
        name = "always-first"

        async def plan(self, situation: Situation, call: Caller) -> Plan:
            worker = situation.pool.workers[0]
            return Plan(Workflow((Step(worker.name, situation.question),)))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

from podium.core.frozen import quick
from podium.core.pool import Pool
from podium.core.request import DEFAULT_RESPONSE_OPTIONS, Image, Message, ResponseOptions
from podium.core.run import Round, TurnRole, best_so_far
from podium.core.run_records import Routed
from podium.core.worker import Caller
from podium.core.workflow import DEFAULT_MAX_STEPS, Workflow


@final
@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """All that a conductor may know: the question and its images, the pool, the conversation
    before it, what is demanded of the answer, and what earlier rounds of this run did. `objection`
    is why a guardrail wants another plan than that of the round before. `rounds_left` is how many
    there may still be, the one to be planned included. `quality_bias` is how much quality counts
    over cost, from 0 to 1, where that was asked for."""

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

    @property
    def answer(self) -> str | None:
        """The best answer so far; only where there is one can it be accepted."""
        if self.objection:
            return None
        best = best_so_far(self.rounds)
        return best.reply if best is not None else None


@dataclass(frozen=True, slots=True)
class Plan:
    """A workflow, or None to accept the last round's answer as it is.

    `text` is what the conductor wrote, where it wrote something; `warnings` are what was
    tolerated in it, in words for a person. `role` is what the round is there for, where the
    conductor gives roles; `routed` is what a learned router decided.
    """

    workflow: Workflow | None
    text: str = ""
    warnings: tuple[str, ...] = ()
    role: TurnRole | None = None
    routed: Routed | None = None


@runtime_checkable
class Conductor(Protocol):
    """Question and pool in, plan out.

    A conductor that asks a worker to plan has it as its attribute `worker`, so that budgets and
    exclusions hold for that one too.
    """

    name: str

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """Write the plan for the next round. `call` reaches a model within the run's budget;
        may raise `BudgetExhausted`, or `PlanError` where there is nothing to fall back on."""
        ...


@runtime_checkable
class Given(Protocol):
    """A conductor whose workflow came with the question. What is looked at before it may go on is
    both."""

    workflow: Workflow

    def with_workflow(self, workflow: Workflow) -> Conductor:
        """The conductor with what is left of its workflow."""
        ...
