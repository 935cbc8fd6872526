"""The rules conductor: three topologies, chosen by words in the question, with no model asked.

These are the rules of the public proof of concept of the Conductor, kept exactly: a question
that asks to make something is planned, implemented and verified; one that asks to weigh
something gets two views and a synthesis; any other is answered directly. Cheap, predictable,
and a baseline that a trained conductor has to beat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from podium.conductors.names import FIXED, ROUTER, RULES
from podium.core.budget import estimated_input_tokens
from podium.core.conductor import Plan, PlanningContext
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile
from podium.core.request import Message, Request, Text, pictures_in
from podium.core.requirements import Needs, needs_of_one
from podium.core.worker import Caller
from podium.core.workflow import Step, Workflow

Choose = Callable[[PlanningContext], str]
"""Names the worker that answers."""

ROOM_FOR_AN_ANSWER: Final = 1024
"""Tokens that must be left in a worker's window after reading the question."""


class RouterConductor:
    """Hands the unaltered question to one worker, without a planning call."""

    def __init__(self, choose: Choose | None = None, *, name: str = ROUTER) -> None:
        self._choose = choose or cheapest_capable
        self.name = name

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """One step; once there is an answer, acceptance."""
        if context.answer is not None:
            return Plan(None)
        worker = context.pool[self._choose(context)]
        return Plan(Workflow((Step(worker.name, context.question),)))


def cheapest_capable(context: PlanningContext) -> str:
    """The name of the cheapest worker that can take the question."""
    return Pool(capable_workers(context)).cheapest.name


def capable_workers(context: PlanningContext) -> tuple[WorkerProfile, ...]:
    """The workers that can take the question, by themselves: without their fallbacks.

    A worker can take it when the conversation and the question fit its window with some room
    for an answer, when it can do what is demanded of the answer, and when it can see, should the
    question or the conversation hold an image. A worker that is a conductor itself would plan, so
    it is passed over. When nobody qualifies, those who can do what is demanded, or else all, are as
    good a choice as any: the provider will say what is wrong.
    """
    asked = Message("user", (*context.images, Text(context.question)))
    request = Request((*context.history, asked), tools=context.response_options.tools)
    pictures = pictures_in(request.messages)
    demanded = needs_of_one(context.response_options, context.images)
    able = [worker for worker in context.pool if _can_do(worker, demanded)]
    wanted = needs_of_one(context.response_options, pictures)
    capable = [worker for worker in able if _can_do(worker, wanted) and _fits(worker, request)]
    return tuple(replace(worker, fallback=None) for worker in capable or able or context.pool)


def _can_do(worker: WorkerProfile, needs: Needs) -> bool:
    return worker.provider != CONDUCTOR_PROVIDER and needs <= worker.capabilities


def _fits(worker: WorkerProfile, request: Request) -> bool:
    window = worker.limits.context_window
    return window is None or estimated_input_tokens(request) + ROOM_FOR_AN_ANSWER <= window


class FixedConductor:
    """Plans the given workflow, whatever the question, and accepts what comes of it."""

    def __init__(self, workflow: Workflow, *, name: str = FIXED) -> None:
        self.workflow = workflow
        self.name = name

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """The given workflow; once there is an answer, acceptance."""
        return Plan(self.workflow if context.answer is None else None)


class RequestWorkflowConductor(FixedConductor):
    """Plans the workflow that came with this very question."""

    def with_workflow(self, workflow: Workflow) -> RequestWorkflowConductor:
        """The conductor with what guardrails left of its workflow."""
        return RequestWorkflowConductor(workflow, name=self.name)


Complexity = Literal["simple", "medium", "complex"]

COMPLEX_WORDS: Final = ("solve", "implement", "write code", "algorithm", "optimize")
MEDIUM_WORDS: Final = ("compare", "analyze", "evaluate")

TECHNICAL_VIEW: Final = "Look at the question from the technical side and say what follows."
PRACTICAL_VIEW: Final = "Look at the question from the practical side and say what follows."
SYNTHESIS: Final = "Bring the views you are shown together into one balanced answer."
PLAN: Final = "Plan the solution: the approach, its steps and its pitfalls. Do not carry it out."
IMPLEMENT: Final = "Carry the solution out in full, after the plan where you are shown one."
VERIFY: Final = (
    "Check the solution you are shown, correct and refine it, and give the finished result."
)


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """Who plays which part. `lead` speaks last and answers what is simple."""

    lead: str
    planner: str
    implementer: str
    technical: str
    practical: str


PROOF_OF_CONCEPT: Final = RoleAssignment(
    lead="claude-sonnet-4",
    planner="gpt-5",
    implementer="deepseek-r1-qwen-32b",
    technical="gpt-5",
    practical="gemini-2.5-pro",
)
"""The parts as the proof of concept gives them, for a pool that has all of its four workers."""


class RulesConductor:
    """Chooses one of three workflows by the words of the question."""

    def __init__(self, *, name: str = RULES) -> None:
        self.name = name

    async def plan(self, context: PlanningContext, call: Caller) -> Plan:
        """A workflow; once there is an answer, acceptance."""
        return Plan(_workflow(context) if context.answer is None else None)


def classify_question(question: str) -> Complexity:
    """How much work the question's words announce."""
    lowered = question.lower()
    if any(word in lowered for word in COMPLEX_WORDS):
        return "complex"
    if any(word in lowered for word in MEDIUM_WORDS):
        return "medium"
    return "simple"


def assign_roles(pool: Pool) -> RoleAssignment:
    """The proof of concept's cast where the pool has its workers.

    In any other pool the best worker leads, and the others take the earlier parts in the pool's
    order, from the start again when there are too few of them.
    """
    poc = PROOF_OF_CONCEPT
    if {poc.lead, poc.planner, poc.implementer, poc.practical} <= set(pool.names):
        return poc
    lead = pool.best.name
    others = [
        worker.name
        for worker in pool
        if worker.name != lead and worker.provider != CONDUCTOR_PROVIDER
    ] or [lead]
    first, second = others[0], others[1 % len(others)]
    return RoleAssignment(
        lead, planner=first, implementer=second, technical=first, practical=second
    )


def _workflow(context: PlanningContext) -> Workflow:
    """The topology for the question; where it is too long, its last steps, down to one-shot."""
    players = assign_roles(context.pool)
    parts = _parts(classify_question(context.question), players)[-context.max_steps :]
    if len(parts) < 2:
        return Workflow((Step(players.lead, context.question),))
    return Workflow(
        tuple(
            Step(
                part.worker,
                _subtask(part.instruction, context),
                access=tuple(range(index)) if part.reads_earlier else (),
            )
            for index, part in enumerate(parts)
        )
    )


class _Part(NamedTuple):
    worker: str
    instruction: str
    reads_earlier: bool = True


def _parts(classify_question: Complexity, assign_roles: RoleAssignment) -> tuple[_Part, ...]:
    """The work to share out; none where the lead answers alone."""
    if classify_question == "complex":
        return (
            _Part(assign_roles.planner, PLAN),
            _Part(assign_roles.implementer, IMPLEMENT),
            _Part(assign_roles.lead, VERIFY),
        )
    if classify_question == "medium":
        return (
            _Part(assign_roles.technical, TECHNICAL_VIEW, reads_earlier=False),
            _Part(assign_roles.practical, PRACTICAL_VIEW, reads_earlier=False),
            _Part(assign_roles.lead, SYNTHESIS),
        )
    return ()


def _subtask(instruction: str, context: PlanningContext) -> str:
    """The instruction, with the question where the pool's workers would not see it otherwise."""
    if context.pool.share_question:
        return instruction
    return f"{instruction}\n\n{context.question}"
