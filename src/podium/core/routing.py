"""The decision of a learned router, as a run keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRecord:
    """The decision of a learned router.

    `scores` are the expected rewards by worker; `router` is the fingerprint of its file. If
    `escalated`, no worker reached `min_confidence`, `worker` came nearest, and the conductor
    planned.
    """

    worker: str
    confidence: float
    scores: Mapping[str, float]
    quality_bias: float
    router: str
    min_confidence: float = 0.0
    escalated: bool = False

    @property
    def explanation(self) -> str:
        """The decision in words."""
        others = sorted(self.scores.items(), key=lambda score: -score[1])
        expected = ", ".join(f"{name} {score:.2f}" for name, score in others)
        if self.escalated:
            verdict = (
                f"chose no worker at quality bias {self.quality_bias:g}, so the conductor planned; "
                f"{self.worker} came nearest with confidence {self.confidence:.2f} "
                f"where {self.min_confidence:.2f} is needed"
            )
        else:
            verdict = (
                f"chose {self.worker} with confidence {self.confidence:.2f} "
                f"at quality bias {self.quality_bias:g}"
            )
        return f"the router {self.router} {verdict}; expected of each: {expected}"
