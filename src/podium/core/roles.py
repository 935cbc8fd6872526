"""The roles that subtasks take: to plan, to solve, to verify, to aggregate, to hand planning over.

    roles(run)          # one for each step, in the order of the workflows

Nobody tells a conductor that plans of roles; it writes subtasks in plain language, and which role
one takes is read from it afterwards, unless its round has a role. That is a reading, not a fact:
the wording is matched against the verbs with which subtasks of the kind begin, and what a step may
read must fit, since nobody verifies or puts together what they cannot see. A subtask that fits
nothing is there to solve.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.run import Run, TurnRole
from podium.core.workflow import Workflow


class Role(StrEnum):
    """What a step is there for."""

    PLAN = "plan"
    SOLVE = "solve"
    VERIFY = "verify"
    AGGREGATE = "aggregate"
    HAND_OVER = "hand over planning"


_TURNS: Final[dict[TurnRole, Role]] = {
    "thinker": Role.PLAN,
    "worker": Role.SOLVE,
    "verifier": Role.VERIFY,
}
"""By the role of a round, where its conductor gave one: then nothing need be read."""

_DECIDED_BY_OTHERS: Final = re.compile(
    r"\b(?:write|draft|devise|design|define|assign|decide|propose|create|formulate|list)\b[^.]{0,60}"
    r"\b(?:sub-?tasks|workflow|division of labou?r|which (?:model|worker|agent)s?)\b"
    r"|\b(?:orchestrate|delegate|coordinate the (?:models|workers|agents))\b"
)
_PLANNED: Final = re.compile(
    r"\b(?:plan|outline|sketch|strateg(?:y|ise|ize)|roadmap|decompose|break (?:it|this|the \w+) "
    r"(?:down|into)|identify (?:the|which|what) (?:approach|method|steps|key|sub-?problems))\b"
    r"|\b(?:describe|propose|suggest|choose|pick) (?:an?|the|which) (?:\w+ )?"
    r"(?:algorithm|approach|method|procedure)\b"
    r"|\b(?:do not|don't|without) (?:yet )?(?:solv|implement|comput|writ)\w*"
    r"|\bwrite no code\b"
)
_VERIFIED: Final = re.compile(
    r"\b(?:verify|check|double-check|re-?check|review|validate|confirm|critique|criticise|criticize"
    r"|inspect|proofread|audit|debug|refine|revise|correct|fix|improve|go through|make sure"
    r"|find (?:the |any )?(?:mistakes?|errors?|bugs?|flaws?))\b"
)
_PUT_TOGETHER: Final = re.compile(
    r"\b(?:combine|aggregate|merge|synthesi[sz]e|compare|reconcile|consolidate|integrate|unify|vote"
    r"|put (?:\w+ ){0,3}together|(?:choose|select|pick|decide on) (?:the |which )?"
    r"(?:best|most|right|correct|final|answer|solution)|majority|consensus)\b"
)
_BEGINNING: Final = 160
"""So many letters tell what a subtask is; what follows is mostly about the thing itself."""


def step_roles(run: Run) -> tuple[Role, ...]:
    """The role of every step that was planned, those of every round in order."""
    return tuple(_roles(run))


def _roles(run: Run) -> Iterator[Role]:
    before = 0
    for round_ in run.rounds:
        if round_.workflow is None:
            continue
        for index in range(len(round_.workflow)):
            if round_.role is not None:
                yield _TURNS[round_.role]
            else:
                yield _role(run, round_.workflow, index, before)
        before = len(round_.workflow)


def _role(run: Run, workflow: Workflow, index: int, before: int) -> Role:
    """`before` is how many steps the round before had: whoever may read all reads these too."""
    step = workflow.steps[index]
    if _is_conductor(step.worker, run.pool):
        return Role.HAND_OVER
    words = " ".join(step.subtask.casefold().split())
    if words == " ".join(run.question.casefold().split()):
        return Role.SOLVE
    reads = len(workflow.reads(index)) + (before if step.access == "all" else 0)
    return infer_role(words, reads=reads, is_last=index == len(workflow) - 1)


def infer_role(subtask: str, *, reads: int, is_last: bool) -> Role:
    """What a subtask reads like, whose step may read so many others. Planning is no last step:
    its reply is the answer."""
    beginning = subtask.casefold()[:_BEGINNING]
    if reads > 1 and _PUT_TOGETHER.search(beginning):
        return Role.AGGREGATE
    if reads and _VERIFIED.search(beginning):
        return Role.VERIFY
    if not is_last and _DECIDED_BY_OTHERS.search(beginning):
        return Role.HAND_OVER
    if not is_last and _PLANNED.search(beginning):
        return Role.PLAN
    return Role.SOLVE


def _is_conductor(worker: str, pool: Pool) -> bool:
    return worker in pool.names and pool[worker].provider == CONDUCTOR_PROVIDER
