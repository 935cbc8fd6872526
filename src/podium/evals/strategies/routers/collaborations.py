"""The six ways in which MASRouter lets agents work together, as workflows.

An agent is a role and a worker. The words of the roles and of the ways are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

from podium.core.pool import Pool
from podium.core.workflow import Step, Workflow

Mode = Literal["io", "cot", "chain", "full", "debate", "reflection"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
ALONE: Final[tuple[Mode, ...]] = ("io", "cot")
"""Ways in which a single agent answers, whatever the number that was drawn."""

MOST_AGENTS: Final = 6

ROLES: Final = MappingProxyType(
    {
        "solver": "Solve the question and give the answer.",
        "planner": "Break the question into parts and say how each is to be solved.",
        "mathematician": "Work out every quantity with care and show the calculation.",
        "programmer": "Think in programs: give code, or trace what the code would do.",
        "scholar": "Recall the facts that the question turns on and apply them.",
        "critic": "Look for mistakes in what you are shown and correct them.",
        "inspector": "Check the answer against every condition and its required form.",
    }
)
"""What each role is told."""

STEP_BY_STEP: Final = "Think step by step, then answer the question."
REVISE: Final = "Weigh the other answers against your own, and answer the question anew."
REFLECT: Final = "Criticise the last answer you are shown, and give a better one."
DECIDE: Final = "Read all that was said, decide what is right, and answer the question."


class Agent(NamedTuple):
    """Who plays which part."""

    role: str
    worker: str


def workflow(mode: Mode, agents: Sequence[Agent], question: str, pool: Pool) -> Workflow:
    """What these agents do together; where there are several, the last one decides at the end."""
    first = agents[0]
    if mode == "io":
        return Workflow((Step(first.worker, question),))

    def told(instruction: str) -> str:
        """Workers of some pools see nothing of the question but what a subtask says."""
        return instruction if pool.share_question else f"{instruction}\n\n{question}"

    if mode == "cot":
        return Workflow((Step(first.worker, told(STEP_BY_STEP)),))
    steps = _together(mode, agents, told)
    if len(agents) > 1:
        steps.append(Step(agents[-1].worker, told(DECIDE), "all"))
    return Workflow(tuple(steps))


def _together(mode: Mode, agents: Sequence[Agent], told: Callable[[str], str]) -> list[Step]:
    count = len(agents)
    said = [Step(agent.worker, told(ROLES[agent.role])) for agent in agents]
    if mode == "debate":
        everyone = tuple(range(count))
        again = [Step(agent.worker, told(REVISE), everyone) for agent in agents]
        return [*said, *(again if count > 1 else ())]
    farthest = 1 if mode == "chain" else count
    reads = [tuple(range(max(0, place - farthest), place)) for place in range(count)]
    if mode == "reflection":
        said[1:] = [Step(agent.worker, told(REFLECT)) for agent in agents[1:]]
    return [Step(step.worker, step.subtask, read) for step, read in zip(said, reads, strict=True)]
