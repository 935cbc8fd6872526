"""The rules conductor: three topologies, chosen by words in the question, with no model asked.

These are the rules of the public proof of concept of the Conductor, kept exactly: a question
that asks to make something is planned, implemented and verified; one that asks to weigh
something gets two views and a synthesis; any other is answered directly. Cheap, predictable,
and a baseline that a trained conductor has to beat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from podium.conductor.base import Plan, Situation
from podium.conductor.names import RULES
from podium.pool import CONDUCTOR_PROVIDER, Pool
from podium.worker import Caller
from podium.workflow import Step, Workflow

Verdict = Literal["simple", "medium", "complex"]

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
class Cast:
    """Who plays which part. `lead` speaks last and answers what is simple."""

    lead: str
    planner: str
    implementer: str
    technical: str
    practical: str


PROOF_OF_CONCEPT: Final = Cast(
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

    async def plan(self, situation: Situation, call: Caller) -> Plan:
        """A workflow; once there is an answer, acceptance."""
        return Plan(_workflow(situation) if situation.answer is None else None)


def verdict(question: str) -> Verdict:
    """How much work the question's words announce."""
    lowered = question.lower()
    if any(word in lowered for word in COMPLEX_WORDS):
        return "complex"
    if any(word in lowered for word in MEDIUM_WORDS):
        return "medium"
    return "simple"


def cast(pool: Pool) -> Cast:
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
    return Cast(lead, planner=first, implementer=second, technical=first, practical=second)


def _workflow(situation: Situation) -> Workflow:
    """The topology for the question; where it is too long, its last steps, down to one-shot."""
    players = cast(situation.pool)
    parts = _parts(verdict(situation.question), players)[-situation.max_steps :]
    if len(parts) < 2:
        return Workflow((Step(players.lead, situation.question),))
    return Workflow(
        tuple(
            Step(
                part.worker,
                _subtask(part.instruction, situation),
                access=tuple(range(index)) if part.reads_earlier else (),
            )
            for index, part in enumerate(parts)
        )
    )


class _Part(NamedTuple):
    worker: str
    instruction: str
    reads_earlier: bool = True


def _parts(verdict: Verdict, cast: Cast) -> tuple[_Part, ...]:
    """The work to share out; none where the lead answers alone."""
    if verdict == "complex":
        return (
            _Part(cast.planner, PLAN),
            _Part(cast.implementer, IMPLEMENT),
            _Part(cast.lead, VERIFY),
        )
    if verdict == "medium":
        return (
            _Part(cast.technical, TECHNICAL_VIEW, reads_earlier=False),
            _Part(cast.practical, PRACTICAL_VIEW, reads_earlier=False),
            _Part(cast.lead, SYNTHESIS),
        )
    return ()


def _subtask(instruction: str, situation: Situation) -> str:
    """The instruction, with the question where the pool's workers would not see it otherwise."""
    if situation.pool.share_question:
        return instruction
    return f"{instruction}\n\n{situation.question}"
