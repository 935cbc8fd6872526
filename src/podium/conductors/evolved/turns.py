"""Turns of a run: the transcript, the roles' prompts, and what is read from replies.

Of a reply only two things are read: whether a verifier accepts, and which role a thinker suggests.
Neither can name a worker, a subtask or an access.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from podium.conductors.evolved.description import ROLES
from podium.core.conductor import PlanningContext
from podium.core.run import Round, StepRecord, TurnRole

TEXTS: Final = (*(f"turn_{role}.txt" for role in ROLES), "turn_withheld.txt")
"""The files of the roles' prompts."""

_VERDICT: Final = re.compile(r"\W*(ACCEPT|REVISE)\b")
_SUGGESTION: Final = re.compile(r"\W*NEXT(?:\s+ROLE)?\W+(THINKER|WORKER|VERIFIER)\b", re.IGNORECASE)


class Turn(NamedTuple):
    """A turn: its role and its step."""

    role: TurnRole
    step: StepRecord

    @property
    def is_done(self) -> bool:
        """True if there is a reply."""
        return self.step.status == "done"


def turns_of(rounds: Sequence[Round]) -> tuple[Turn, ...]:
    """Return the turns of these rounds; a round of another conductor is a worker's turn."""
    return tuple(
        Turn(round_.role or "worker", round_.steps[-1]) for round_ in rounds if round_.steps
    )


def transcript(context: PlanningContext) -> str:
    """Return the transcript: a line `role: content` for each message, the question and each reply.

    There is no chat template around it, as in the paper: a head reads texts in the form of its
    training.
    """
    said: list[tuple[str, str]] = [(turn.role, turn.text) for turn in context.history if turn.text]
    said.append(("user", context.question))
    said += [(turn.role, turn.step.reply) for turn in turns_of(context.rounds) if turn.is_done]
    if context.objection:
        said.append(("guardrail", context.objection))
    return "".join(f"{role}: {content}\n" for role, content in said)


def is_accepted(turns: Sequence[Turn]) -> bool:
    """True if the last turn is a verifier's that accepts, in its first or last line."""
    if not turns or turns[-1].role != "verifier" or not turns[-1].is_done:
        return False
    lines = [line for line in turns[-1].step.reply.splitlines() if line.strip()]
    for line in (*lines[:1], *lines[-1:]):
        if verdict := _VERDICT.match(line):
            return verdict[1] == "ACCEPT"
    return False


def ends_accepted(rounds: Sequence[Round]) -> bool:
    """True if the answer was accepted in the end.

    A verifier in the last turn that a run may take accepts as well: no round is left in which the
    conductor could.
    """
    return bool(rounds) and (rounds[-1].accepted or is_accepted(turns_of(rounds)))


def suggested_role(turns: Sequence[Turn]) -> TurnRole | None:
    """Return the role that the last turn's thinker suggests in its last line, if any."""
    if not turns or turns[-1].role != "thinker" or not turns[-1].is_done:
        return None
    lines = [line for line in turns[-1].step.reply.splitlines() if line.strip()]
    found = _SUGGESTION.match(lines[-1]) if lines else None
    return next((role for role in ROLES if found and role == found[1].casefold()), None)


def subtask(role: TurnRole, context: PlanningContext, *, is_first: bool) -> str:
    """Return the subtask of a role.

    The first worker, and a worker that does not see the question, get the question alone; in other
    roles the question is added where the pool does not share it.
    """
    is_shared = context.pool.share_question
    if role == "worker" and (is_first or not is_shared):
        return context.question
    words = _text(f"turn_{role}.txt")
    if is_shared:
        return words
    return f"{words}\n\n{_text('turn_withheld.txt')}\n{context.question}"


@cache
def prompt_hash() -> str:
    """Return the fingerprint of the roles' prompts."""
    texts = "\0".join(f"{name}\0{_text(name)}" for name in TEXTS)
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


@cache
def _text(name: str) -> str:
    return resources.files("podium.conductors").joinpath("prompts", name).read_text("utf-8").strip()
