"""A router that decides as a test says, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from podium.conductors.tiers import RoutingDecision
from podium.core.pool import Pool, WorkerProfile


@dataclass
class ScriptedRouter:
    """Chooses the worker of the best score among those that it is given, or the first that it is
    sure enough of at a quality bias of less than a half; a score is a chance. `stranger` is a
    worker that it was not trained with."""

    scores: Mapping[str, float]
    fingerprint: str = "0123456789ab"
    stranger: str = ""
    asked: list[tuple[str, tuple[str, ...], float]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    def knows(self, worker: WorkerProfile) -> bool:
        return worker.name != self.stranger

    def changes(self, pool: Pool) -> tuple[str, ...]:
        return tuple(f"{name} is new" for name in pool.names if name == self.stranger)

    def decide(
        self, question: str, pool: Pool, quality_bias: float, confidence: float
    ) -> RoutingDecision:
        self.asked.append((question, pool.names, quality_bias))
        self.threads.add(threading.current_thread().name)
        scores = {name: self.scores[name] for name in pool.names}
        best = max(scores, key=lambda name: scores[name])
        if quality_bias < 0.5:
            sure = (name for name in scores if quality_bias == 0 or scores[name] >= confidence)
            best = next(sure, best)
        return RoutingDecision(best, scores[best], scores)
