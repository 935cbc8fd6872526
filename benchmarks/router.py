"""Measure a learned router: its decision, and the first token of `podium-mini`."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from operator import lt
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, ClassVar, Final

from benchmarks.environment import OnProgress
from benchmarks.load_client import QUESTION, Call, first_tokens
from benchmarks.processes import upstream_process
from benchmarks.report import Bar, Figures, machine
from benchmarks.server import TIER, podium_server
from benchmarks.upstream import MODEL
from podium.core.pool import Pool, WorkerProfile
from podium.workers.local.weights import models_dir
from podium_lab.etudes import everyday_questions

if TYPE_CHECKING:
    from podium.conductors.routing import LearnedRouter
    from podium.conductors.routing.encoders import Encoder

BAR: Final = Bar("<", 15.0, lt)
"""Milliseconds for the p50 of a decision, and for what it adds to the first token. The p95 has no
bar, for it depends on what else the machine does."""

_SENTENCE: Final = "Explain step by step how the following came about, and what could be done. "
LONG: Final = _SENTENCE * 60
"""A question longer than a router reads."""

HUGE: Final = _SENTENCE * 1_500
"""A question of more than a hundred thousand characters."""

_LONG: Final = ", a long question"
QUESTIONS: Final = {"": QUESTION, _LONG: LONG}
"""Questions for the first-token measurement, by the suffix of their name."""

WORKERS: Final = ("one", "two", "three", "four", "five")


@dataclass(frozen=True, slots=True)
class RouterExtent:
    """Decisions of each kind, and streams of each contestant."""

    decisions: int
    streams: int


USUAL: Final = RouterExtent(decisions=400, streams=60)
QUICK: Final = RouterExtent(decisions=20, streams=3)


@dataclass(frozen=True, slots=True)
class Decisions:
    """Wall-clock seconds of decisions, and their CPU seconds."""

    seconds: Sequence[float]
    cpu_seconds: float

    @property
    def p50_ms(self) -> float:
        return median(self.seconds) * 1000

    @property
    def p95_ms(self) -> float:
        return quantiles(self.seconds, n=20)[-1] * 1000

    @property
    def cpu_ms(self) -> float:
        """Mean CPU milliseconds of a decision."""
        return self.cpu_seconds / len(self.seconds) * 1000

    def document(self) -> dict[str, float]:
        """Return the figures as JSON values."""
        names = ("p50_ms", "p95_ms", "cpu_ms")
        figures = {name: round(getattr(self, name), 2) for name in names}
        return {**figures, "count": len(self.seconds)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFigures(Figures):
    """Decisions by kind of question, and seconds to first token by contestant."""

    bars: ClassVar = dict.fromkeys(("decision_p50_ms", "ttft_added_ms", "ttft_added_long_ms"), BAR)
    decisions: Mapping[str, Decisions]
    first_tokens: Mapping[str, Sequence[float]]
    load_average: float

    def first_token_ms(self, name: str) -> float:
        """Milliseconds to first token, p50."""
        return median(self.first_tokens[name]) * 1000

    def added_ms(self, question: str = "") -> float | None:
        """Milliseconds that `podium-mini` adds to the upstream's first token."""
        if not self.first_tokens:
            return None
        routed, upstream = f"routed{question}", f"upstream{question}"
        return round(self.first_token_ms(routed) - self.first_token_ms(upstream), 2)

    def document(self) -> dict[str, Any]:
        decisions = {name: kind.document() for name, kind in self.decisions.items()}
        return {
            "decision_p50_ms": decisions["everyday"]["p50_ms"],
            "decision_p95_ms": decisions["everyday"]["p95_ms"],
            "ttft_added_ms": self.added_ms(),
            "ttft_added_long_ms": self.added_ms(_LONG),
            "decisions": decisions,
            "ttft_ms": {name: round(self.first_token_ms(name), 2) for name in self.first_tokens},
            "load_average": round(self.load_average, 2),
            **machine(),
        }


async def measure_router(
    extent: RouterExtent, *, file: Path | None, on_progress: OnProgress
) -> RouterFigures:
    """Measure the router of that file, else an untrained one, which takes as long."""
    from podium.conductors.routing import LearnedRouter

    load_before = os.getloadavg()[0]
    router = random_router(WORKERS) if file is None else LearnedRouter.load(file)
    pool = Pool(
        tuple(WorkerProfile(name=worker.name, model=worker.model) for worker in router.workers)
    )
    kinds = {
        "everyday": everyday_questions("train"),
        "a long question": [LONG],
        "a huge question": [HUGE],
    }
    on_progress(f"deciding {len(kinds) * extent.decisions} times …")
    decisions = {
        name: _decide(router, pool, questions, extent.decisions)
        for name, questions in kinds.items()
    }
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-bench-")))
        upstream = await stack.enter_async_context(upstream_process())
        LearnedRouter.save(random_router((MODEL,), like=router), directory / "router.json")
        on_progress("starting podium serve with a router and without …")
        calls = {"upstream": Call(upstream, MODEL)}
        for name, table in (("unrouted", ""), ("routed", _mini(directory / "router.json"))):
            home = directory / name
            _share_weights(home)
            started = await stack.enter_async_context(podium_server(upstream, home, table))
            calls[name] = Call(started.port, TIER)
        asked = {
            f"{name}{which}": replace(call, question=text)
            for which, text in QUESTIONS.items()
            for name, call in calls.items()
        }
        on_progress(f"measuring {extent.streams} streams of each of {len(asked)} in turn …")
        waits = await first_tokens(asked, extent.streams)
    return RouterFigures(decisions=decisions, first_tokens=waits, load_average=load_before)


def random_router(names: Sequence[str], like: LearnedRouter | None = None) -> LearnedRouter:
    """Return an untrained router for workers of these names."""
    import numpy as np

    from podium.conductors.routing import KnownWorker, LearnedRouter
    from podium.conductors.routing.router import QualityBias

    encoder = _with_all_centres(len(names)) if like is None else like.encoder
    width = encoder.encode(["?"]).shape[1]
    head = np.zeros((width + 1, len(names)), dtype=np.float32)
    workers = tuple(KnownWorker(name, name, 1.0 + position) for position, name in enumerate(names))
    costs = np.array([worker.cost for worker in workers])
    return LearnedRouter(workers, encoder, head, QualityBias.fit(head, head, costs))


def _with_all_centres(workers: int) -> Encoder:
    """Return an encoder with as many centres as possible and the everyday questions' words."""
    import numpy as np

    from podium.conductors.routing import Embedder
    from podium.conductors.routing.encoders import ScoringEncoder
    from podium.conductors.routing.scores import (
        CENTRE_SETS,
        MAX_CENTRES,
        NeighbourScores,
        TokenCounts,
        WordScores,
    )

    embedder = Embedder.quick()
    width = embedder.encode(["?"]).shape[1]
    questions = everyday_questions("train")
    return ScoringEncoder(
        embedder,
        NeighbourScores(
            np.zeros((CENTRE_SETS, MAX_CENTRES, width), dtype=np.float32),
            np.zeros((CENTRE_SETS, MAX_CENTRES + width, workers), dtype=np.float32),
            np.zeros(workers, dtype=np.float32),
            sharpness=1.0,
        ),
        WordScores.fit(TokenCounts.of(questions), np.zeros((len(questions), workers))),
    )


def _decide(router: LearnedRouter, pool: Pool, questions: Sequence[str], times: int) -> Decisions:
    router.decide(questions[0], pool, 0.5)  # the first finds cold paths
    seconds, cpu = [], time.process_time()
    for number in range(times):
        began = time.perf_counter()
        router.decide(questions[number % len(questions)], pool, 0.5)
        seconds.append(time.perf_counter() - began)
    return Decisions(seconds, time.process_time() - cpu)


def _share_weights(home: Path) -> None:
    """Let a server with another home directory find the weights of this one."""
    home.mkdir(parents=True)
    (home / "models").symlink_to(models_dir(), target_is_directory=True)


def _mini(router: Path) -> str:
    return f"""
        [mini]
        router = "{router}"
        confidence = 0
        """
