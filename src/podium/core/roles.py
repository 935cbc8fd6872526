"""The roles of steps: plan, solve, verify, aggregate, hand over planning.

    step_roles(run)     # one for each step, in the order of the workflows

Conductors write subtasks in plain language, so a role is inferred from the wording: the verbs with
which such subtasks begin, and what the step may read (nothing can be verified unseen). A round
with a role decides for its steps. Everything else is there to solve.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.run import Run, TurnRole
from podium.core.workflow import Workflow


class Role(StrEnum):
    """The purpose of a step."""

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
"""Roles of steps by the role of their round."""

_HANDED_OVER: Final = re.compile(
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
_AGGREGATED: Final = re.compile(
    r"\b(?:combine|aggregate|merge|synthesi[sz]e|compare|reconcile|consolidate|integrate|unify|vote"
    r"|put (?:\w+ ){0,3}together|(?:choose|select|pick|decide on) (?:the |which )?"
    r"(?:best|most|right|correct|final|answer|solution)|majority|consensus)\b"
)
_BEGINNING: Final = 160
"""Characters that are read; what follows is mostly about the topic."""


def step_roles(run: Run) -> tuple[Role, ...]:
    """Return the role of every planned step, in the order of the rounds."""
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
    """Infer one role; `before` is the number of steps that access to `all` adds."""
    step = workflow.steps[index]
    if step.worker in run.pool.names and run.pool[step.worker].provider == CONDUCTOR_PROVIDER:
        return Role.HAND_OVER
    words = " ".join(step.subtask.casefold().split())
    if words == " ".join(run.question.casefold().split()):
        return Role.SOLVE
    reads = len(workflow.reads(index)) + (before if step.access == "all" else 0)
    return infer_role(words, reads=reads, is_last=index == len(workflow) - 1)


def infer_role(subtask: str, *, reads: int, is_last: bool) -> Role:
    """Infer the role of a subtask whose step reads so many others. A last step never plans."""
    beginning = subtask.casefold()[:_BEGINNING]
    if reads > 1 and _AGGREGATED.search(beginning):
        return Role.AGGREGATE
    if reads and _VERIFIED.search(beginning):
        return Role.VERIFY
    if not is_last and _HANDED_OVER.search(beginning):
        return Role.HAND_OVER
    if not is_last and _PLANNED.search(beginning):
        return Role.PLAN
    return Role.SOLVE
