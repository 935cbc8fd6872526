"""What passes in a run that is led turn by turn: the transcript, the roles' words, and what is read
from replies.

Of a reply only two things are ever taken: whether a verifier accepts, and which role a thinker
suggests next. Neither can name a worker, a subtask or what a step may read.
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
"""The words of the roles, by the names of their files."""

_VERDICT: Final = re.compile(r"\W*(ACCEPT|REVISE)\b")
_SUGGESTION: Final = re.compile(r"\W*NEXT(?:\s+ROLE)?\W+(THINKER|WORKER|VERIFIER)\b", re.IGNORECASE)


class Turn(NamedTuple):
    """A turn that was taken: in which role, by which step, and whether that came to its end."""

    role: TurnRole
    step: StepRecord

    @property
    def is_done(self) -> bool:
        """Whether there is a reply."""
        return self.step.status == "done"


def turns_of(rounds: Sequence[Round]) -> tuple[Turn, ...]:
    """The turns that were taken in these rounds. What another conductor planned was work."""
    return tuple(
        Turn(round_.role or "worker", round_.steps[-1]) for round_ in rounds if round_.steps
    )


def transcript(context: PlanningContext) -> str:
    """All that was said, raw: a line `role: content` for the conversation before, the question,
    and every reply so far. No chat template is put around it, as the paper's coordinator has none:
    a head reads hidden states of texts in the form that it was trained with, and no other."""
    said: list[tuple[str, str]] = [(turn.role, turn.text) for turn in context.history if turn.text]
    said.append(("user", context.question))
    said += [(turn.role, turn.step.reply) for turn in turns_of(context.rounds) if turn.is_done]
    if context.objection:
        said.append(("guardrail", context.objection))
    return "".join(f"{role}: {content}\n" for role, content in said)


def is_accepted(turns: Sequence[Turn]) -> bool:
    """Whether the last turn was a verifier's who accepts: in the first line that says something,
    or else in the last."""
    if not turns or turns[-1].role != "verifier" or not turns[-1].is_done:
        return False
    lines = [line for line in turns[-1].step.reply.splitlines() if line.strip()]
    for line in (*lines[:1], *lines[-1:]):
        if verdict := _VERDICT.match(line):
            return verdict[1] == "ACCEPT"
    return False


def ends_accepted(rounds: Sequence[Round]) -> bool:
    """Whether the answer was accepted in the end. A verifier who has the last turn that a run may
    take accepts as well: no round is left in which the conductor would say so."""
    return bool(rounds) and (rounds[-1].accepted or is_accepted(turns_of(rounds)))


def suggested(turns: Sequence[Turn]) -> TurnRole | None:
    """The role that the last turn's thinker wants next, if it says so in its last line."""
    if not turns or turns[-1].role != "thinker" or not turns[-1].is_done:
        return None
    lines = [line for line in turns[-1].step.reply.splitlines() if line.strip()]
    found = _SUGGESTION.match(lines[-1]) if lines else None
    return next((role for role in ROLES if found and role == found[1].casefold()), None)


def subtask(role: TurnRole, context: PlanningContext, *, is_first: bool) -> str:
    """What a step is told to do. Who works from the beginning, or does not see the question, is
    asked just that; in another role, who does not see the question is told it."""
    is_shared = context.pool.share_question
    if role == "worker" and (is_first or not is_shared):
        return context.question
    words = _text(f"turn_{role}.txt")
    if is_shared:
        return words
    return f"{words}\n\n{_text('turn_withheld.txt')}\n{context.question}"


@cache
def prompt_hash() -> str:
    """A fingerprint of the roles' words."""
    texts = "\0".join(f"{name}\0{_text(name)}" for name in TEXTS)
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


@cache
def _text(name: str) -> str:
    return resources.files("podium.conductors").joinpath("prompts", name).read_text("utf-8").strip()
