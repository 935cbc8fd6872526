"""A router over words alone, so that routing is tried without weights."""

from __future__ import annotations

import numpy as np

from podium.conductors.routing import KnownWorker, LearnedRouter
from podium.conductors.routing.encoders import HashedEncoder
from podium.conductors.routing.router import QualityBias
from podium.core.pool import Pool, WorkerProfile

SUMS = ("What is 2 + 2?", "What is 17 + 5?", "What is 8 + 31?", "What is 40 + 2?")
PLAYS = (
    "Who wrote the play Hamlet?",
    "Who wrote the play Faust?",
    "Who wrote the play Medea?",
    "Who wrote the play Tartuffe?",
)


def pool_of(*names: str) -> Pool:
    """A pool of workers of those names, each with a model that is called alike."""
    return Pool(tuple(WorkerProfile(name=name, model=f"{name}-model") for name in names))


def small_router() -> LearnedRouter:
    """Knows that `cheap` is as good as `dear` at sums, and worse at plays."""
    encoder = HashedEncoder.fit([*SUMS, *PLAYS])
    vectors = encoder.encode([*SUMS, *PLAYS])
    rewards = np.array([[0.9, 0.95]] * len(SUMS) + [[0.2, 0.9]] * len(PLAYS))
    solved, *_ = np.linalg.lstsq(np.hstack([vectors, np.ones((8, 1))]), rewards, rcond=None)
    costs = np.array([1.0, 10.0])
    return LearnedRouter(
        (KnownWorker("cheap", "cheap-model", 1.0), KnownWorker("dear", "dear-model", 10.0)),
        encoder,
        solved.astype(np.float32),
        QualityBias.fit(rewards, rewards, costs),
    )
