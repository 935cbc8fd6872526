"""What a guardrail did, as it stands on a run. Guardrails themselves are `podium.guardrails`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from podium.attempt import Attempt

Place = Literal["question", "reply", "answer"]
"""Where guardrails look: at the question with the conversation before it, at each worker's reply,
and at the answer."""

Deed = Literal["passed", "noted", "redacted", "blocked", "replanned"]
"""What a guardrail did. `replanned`: it demanded another plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What a guardrail did in one place; one that let something through, and asked nobody, did
    nothing and leaves none. `attempts` are its calls to a verifier. `round`, `step` and `worker`
    say whose reply it was; of the question, and of an answer that no final step gave, `step` is
    None. It stands on the step whose reply it was, else on the run."""

    guardrail: str
    place: Place
    deed: Deed
    reason: str = ""
    round: int = 0
    step: int | None = None
    worker: str = ""
    attempts: tuple[Attempt, ...] = ()
