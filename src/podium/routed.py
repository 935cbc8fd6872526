"""How a learned router decided, as it stands on a run: whom it chose, how sure it was, and what it
made of the others. Deciding is `podium.routing`; whether the choice is followed, the mini tier's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """One decision. `scores` are what the router expected of each worker that could take the
    question, `dial` how much quality counted over cost (0 the cheapest, 1 the best), and `router`
    the fingerprint of its file. What was `passed_on` the conductor planned: for nobody the
    confidence was as high as `needed`, and the `worker` is who came nearest."""

    worker: str
    confidence: float
    scores: Mapping[str, float]
    dial: float
    router: str
    needed: float = 0.0
    passed_on: bool = False

    @property
    def sentence(self) -> str:
        """The decision in words."""
        others = sorted(self.scores.items(), key=lambda each: -each[1])
        expected = ", ".join(f"{name} {score:.2f}" for name, score in others)
        if self.passed_on:
            verdict = (
                f"chose nobody at dial {self.dial:g}, so the conductor planned; it was surest of "
                f"{self.worker}, with confidence {self.confidence:.2f} where {self.needed:.2f} is "
                f"needed"
            )
        else:
            verdict = (
                f"chose {self.worker} with confidence {self.confidence:.2f} at dial {self.dial:g}"
            )
        return f"the router {self.router} {verdict}; expected of each: {expected}"
