"""One call to one worker, as it stands on a run, and what several come to together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, final

from podium.core.frozen import quick
from podium.core.usage import NO_USAGE, Usage, add


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """One decision. `scores` are what the router expected of each worker that could take the
    question, `quality_bias` how much quality counted over cost (0 the cheapest, 1 the best), and
    `router` the fingerprint of its file. What was `escalated` the conductor planned: for nobody the
    confidence was as high as `needed`, and the `worker` is who came nearest."""

    worker: str
    confidence: float
    scores: Mapping[str, float]
    quality_bias: float
    router: str
    needed: float = 0.0
    escalated: bool = False

    @property
    def sentence(self) -> str:
        """The decision in words."""
        others = sorted(self.scores.items(), key=lambda each: -each[1])
        expected = ", ".join(f"{name} {score:.2f}" for name, score in others)
        if self.escalated:
            verdict = (
                f"chose nobody at quality bias {self.quality_bias:g}, so the conductor planned; "
                f"it was surest of "
                f"{self.worker}, with confidence {self.confidence:.2f} where {self.needed:.2f} is "
                f"needed"
            )
        else:
            verdict = (
                f"chose {self.worker} with confidence {self.confidence:.2f} "
                f"at quality bias {self.quality_bias:g}"
            )
        return f"the router {self.router} {verdict}; expected of each: {expected}"


@final
@quick
@dataclass(frozen=True, slots=True)
class Attempt:
    """One call to one worker, whether it succeeded or not. Times count from the run's start."""

    worker: str
    usage: Usage
    cost_usd: float | None
    started_ms: float
    finished_ms: float
    error: str | None = None

    @property
    def was_made(self) -> bool:
        """Whether the worker was called at all: one that is left alone, for it has failed too
        often, is refused in no time and for nothing."""
        took_no_time = self.started_ms == self.finished_ms
        return not (took_no_time and self.error is not None and self.usage == NO_USAGE)


def total_usage(calls: Iterable[Attempt]) -> Usage:
    """The sum of the calls' tokens."""
    return sum((call.usage for call in calls), NO_USAGE)


def total_cost(calls: Iterable[Attempt]) -> float | None:
    """The sum of the calls' cost, unknown as soon as one is."""
    total: float | None = 0.0
    for call in calls:
        total = add(total, call.cost_usd)
    return total


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
