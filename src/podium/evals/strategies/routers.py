"""Routers that are fitted to outcomes: which worker answers a question.

    constant      always the worker that was best in training
    neighbours    the worker that was best on the most similar questions
    router        Podium's own: soft targets, then evolution (`podium.conductors.routing`)

RouterDC, Smoothie and MASRouter are in `podium_lab.routers`. All of them need numpy; `router` also
needs cmaes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from podium._util.lab import lab_extra
from podium.conductors.routing import KnownWorker, LearnedRouter, encoders
from podium.conductors.routing.arrays import AGAIN, Array, encode_array, normalize_rows, read_array
from podium.conductors.routing.encoders import (
    HASHED,
    MINILM,
    Embedder,
    Encoder,
    HashedEncoder,
    width_of,
)
from podium.conductors.routing.learning import RouterTraining, fit_router
from podium.conductors.routing.router import RewardTable
from podium.core.errors import ConfigError, UsageError
from podium.core.pool import Pool
from podium.core.workflow import Workflow
from podium.evals.strategies.registry import MASROUTER, is_function_name, load_function

EncoderFactory = Callable[[Sequence[str]], Encoder]
"""Makes an encoder for texts like these."""


@dataclass(frozen=True, slots=True, eq=False)
class CustomEncoder:
    """A user's encoder, returned by the function `name` and saved by that name."""

    name: str
    encoder: Encoder

    def encode(self, texts: Sequence[str]) -> Array:
        """Return the texts as rows of length one."""
        return normalize_rows(np.asarray(self.encoder.encode(list(texts)), dtype=np.float32))

    def document(self) -> dict[str, Any]:
        """Return its name as JSON."""
        return {"name": self.name}


def encoder_factory(name: str | None) -> EncoderFactory:
    """Return a factory for `hashed` (the default), `minilm`, or `module:function`."""
    if name is None or name == HASHED:
        return HashedEncoder.fit
    if name == MINILM:
        return lambda texts: _cached(Embedder.quick())
    return lambda texts: CustomEncoder(name, load_function(name)())


def read_encoder(document: object) -> Encoder:
    """Read an encoder from JSON."""
    name = document.get("name") if isinstance(document, Mapping) else None
    if isinstance(name, str) and is_function_name(name):
        return CustomEncoder(name, load_function(name)())
    if isinstance(document, Mapping) and name == MINILM:
        return _cached(Embedder.read(document))
    return encoders.read_encoder(document)


class CachedEmbedder:
    """An embedder with cached vectors: cross-validation encodes the same texts many times."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors: dict[str, Array] = {}

    def encode(self, texts: Sequence[str]) -> Array:
        """Return the texts as rows of length one."""
        for text in texts:
            if text not in self._vectors:
                (self._vectors[text],) = self._embedder.encode([text])
        return np.stack([self._vectors[text] for text in texts])

    def document(self) -> dict[str, Any]:
        """Return the embedder as JSON."""
        return self._embedder.document()


def _cached(embedder: Embedder) -> CachedEmbedder:
    """Return the cache shared by all embedders with the same document."""
    return _CACHED_EMBEDDERS.setdefault(json.dumps(embedder.document()), CachedEmbedder(embedder))


_CACHED_EMBEDDERS: Final[dict[str, CachedEmbedder]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class WorkerOutcomes:
    """The accuracy of each worker (columns) on each question (rows), from 0 to 1.

    `replies` and `costs` have the same layout; `costs` is None unless all are known.
    """

    questions: tuple[str, ...]
    workers: tuple[str, ...]
    shares: Array
    replies: tuple[tuple[str, ...], ...] | None = None
    costs: Array | None = None

    def __post_init__(self) -> None:
        if not self.questions or not self.workers:
            raise UsageError("a router learns from at least one question and one worker")
        expected = (len(self.questions), len(self.workers))
        if self.shares.shape != expected:
            raise ValueError(f"expected shares of the shape {expected}, not {self.shares.shape}")

    def of(self, rows: Sequence[int]) -> WorkerOutcomes:
        """Return the outcomes of some questions, by their indices."""
        return WorkerOutcomes(
            tuple(self.questions[row] for row in rows),
            self.workers,
            self.shares[list(rows)],
            None if self.replies is None else tuple(self.replies[row] for row in rows),
            None if self.costs is None else self.costs[list(rows)],
        )

    @property
    def best(self) -> int:
        """The index of the most accurate worker; of several, the first."""
        return int(np.argmax(self.shares.mean(axis=0)))


class RouterModel(Protocol):
    """Scores workers for questions."""

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers in the order of the scores."""
        ...

    def scores(self, questions: Sequence[str]) -> Array:
        """Return a row per question with a score per worker; the highest wins."""
        ...

    def document(self) -> dict[str, Any]:
        """Return the router as JSON."""
        ...


@runtime_checkable
class Planner(Protocol):
    """Writes a plan of several workers for a question, as MASRouter does."""

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it was fitted to."""
        ...

    def plan(self, question: str, pool: Pool) -> Workflow:
        """Return a plan for the question."""
        ...

    def document(self) -> dict[str, Any]:
        """Return the planner as JSON."""
        ...


def choose_worker(router: RouterModel, question: str, present: Collection[str]) -> str:
    """Return the worker with the highest score among those present."""
    (row,) = router.scores([question])
    known = known_indices(router, present)
    return router.workers[max(known, key=lambda index: float(row[index]))]


def known_indices(router: RouterModel, present: Collection[str]) -> list[int]:
    """Return the indices of the router's workers that are present."""
    known = [index for index, worker in enumerate(router.workers) if worker in present]
    if not known:
        raise UsageError(
            f"the router was fitted to {', '.join(router.workers)}, and the pool has "
            f"{', '.join(present)}: none of them; fit it again on this pool"
        )
    return known


CANDIDATES: Final = (5, 10, 20, 40, 80)
"""Numbers of neighbours to choose from, by their accuracy in training."""

BLOCK: Final = 512
"""Questions compared with all others at a time; the whole matrix may be too large."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourRouter:
    """Averages the workers' accuracy on the `count` nearest training questions, by cosine.

    Departures from RouterBench's: the number of neighbours is chosen by leave-one-out, cost is
    not weighed, and the encoder is this package's own unless another is named.
    """

    workers: tuple[str, ...]
    encoder: Encoder
    vectors: Array
    shares: Array
    count: int

    @classmethod
    def fit(cls, outcomes: WorkerOutcomes, encoder: EncoderFactory, seed: int) -> NeighbourRouter:
        """Keep the training questions and choose the number of neighbours."""
        made = encoder(outcomes.questions)
        vectors = made.encode(outcomes.questions)
        others = max(1, len(outcomes.questions) - 1)
        counts = sorted({min(count, others) for count in CANDIDATES})
        nearest = _nearest(vectors, vectors, counts[-1], include_self=False)
        count = max(
            counts, key=lambda count: _neighbour_accuracy(nearest[:, :count], outcomes.shares)
        )
        return cls(outcomes.workers, made, vectors, outcomes.shares, count)

    def scores(self, questions: Sequence[str]) -> Array:
        """Return the workers' accuracy on the neighbours of each question."""
        encoded = self.encoder.encode(questions)
        return _averages(
            _nearest(encoded, self.vectors, self.count, include_self=True), self.shares
        )

    def document(self) -> dict[str, Any]:
        """Return the router as JSON."""
        return {
            "encoder": self.encoder.document(),
            "vectors": encode_array(self.vectors),
            "shares": encode_array(self.shares),
            "count": self.count,
        }

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> NeighbourRouter:
        """Read the router from JSON."""
        encoder = read_encoder(document.get("encoder"))
        vectors = read_array(document, "vectors", (None, width_of(encoder)))
        shares = read_array(document, "shares", (len(vectors), len(workers)))
        count = document.get("count")
        if not isinstance(count, int) or not 1 <= count <= len(vectors):
            raise ConfigError(
                f"expected a count of neighbours from 1 to {len(vectors)}, not {count!r:.40}; "
                f"{AGAIN}"
            )
        return cls(workers, encoder, vectors, shares, count)


def _nearest(vectors: Array, others: Array, count: int, *, include_self: bool) -> NDArray[np.int64]:
    """Return the indices of the `count` nearest others of each vector, the nearest first."""
    found = []
    for start in range(0, len(vectors), BLOCK):
        cosines = vectors[start : start + BLOCK] @ others.T
        rows = np.arange(len(cosines))
        if not include_self and len(others) > 1:
            cosines[rows, start + rows] = -np.inf
        indices = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(cosines, indices, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(indices, order, axis=1))
    return np.concatenate(found)


def _averages(nearest: NDArray[np.int64], shares: Array) -> Array:
    """Return the mean accuracy of the neighbours; the overall accuracy breaks ties."""
    found: Array = shares[nearest].mean(axis=1) + 1e-3 * shares.mean(axis=0)
    return found


def _neighbour_accuracy(nearest: NDArray[np.int64], shares: Array) -> float:
    """Return the accuracy of the workers that the neighbours suggest."""
    choices = _averages(nearest, shares).argmax(axis=1)
    return float(shares[np.arange(len(shares)), choices].mean())


@dataclass(frozen=True, slots=True, eq=False)
class HeadRouter:
    """Podium's own router: prefers the worker with the highest expected reward."""

    router: LearnedRouter

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it was fitted to."""
        return tuple(known.name for known in self.router.workers)

    @classmethod
    def fit(cls, outcomes: WorkerOutcomes, encoder: EncoderFactory, seed: int) -> HeadRouter:
        """Fit the router in both stages."""
        # outcomes do not name the workers' models
        workers = tuple(
            KnownWorker(name, "", cost)
            for name, cost in zip(outcomes.workers, mean_costs(outcomes), strict=True)
        )
        evidence = RewardTable(outcomes.questions, workers, outcomes.shares)
        return cls(
            fit_router(evidence, encoder(outcomes.questions), RouterTraining(seed=seed)).router
        )

    def scores(self, questions: Sequence[str]) -> Array:
        """Return the expected reward of each worker."""
        return self.router.expected(self.router.encoder.encode(questions))

    def choose_with_bias(self, quality_bias: float, question: str, present: Collection[str]) -> str:
        """Return the worker for that quality bias among those present."""
        (row,) = self.scores([question])
        known = known_indices(self, present)
        return self.workers[
            self.router.quality_bias.choose(row, self.router.costs, quality_bias, known)
        ]

    def document(self) -> dict[str, Any]:
        """Return the router as JSON."""
        return self.router.document()

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> HeadRouter:
        """Read the router from JSON."""
        return cls(LearnedRouter.read(document, read_encoder))


def mean_costs(outcomes: WorkerOutcomes) -> tuple[float, ...]:
    """Return the mean cost per worker; without costs, 1 for the better of two workers, else 0."""
    if outcomes.costs is not None:
        return tuple(map(float, outcomes.costs.mean(axis=0)))
    if len(outcomes.workers) != 2:
        return (0.0,) * len(outcomes.workers)
    return tuple(float(index == outcomes.best) for index in range(2))


@dataclass(frozen=True, slots=True, eq=False)
class ConstantRouter:
    """Prefers workers by their accuracy in training."""

    workers: tuple[str, ...]
    shares: Array

    @classmethod
    def fit(cls, outcomes: WorkerOutcomes, encoder: EncoderFactory, seed: int) -> ConstantRouter:
        """Keep each worker's accuracy."""
        return cls(outcomes.workers, outcomes.shares.mean(axis=0))

    def scores(self, questions: Sequence[str]) -> Array:
        """Return the same row for every question."""
        return np.tile(self.shares, (len(questions), 1))

    def document(self) -> dict[str, Any]:
        """Return the router as JSON."""
        return {"shares": encode_array(self.shares)}

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> ConstantRouter:
        """Read the router from JSON."""
        return cls(workers, read_array(document, "shares", (len(workers),)))


class RouterClass(Protocol):
    """A class of routers."""

    def fit(self, outcomes: WorkerOutcomes, encoder: EncoderFactory, seed: int) -> RouterModel:
        """Fit a router to outcomes."""
        ...

    def read(self, workers: tuple[str, ...], document: Mapping[str, Any]) -> RouterModel:
        """Read a router from JSON."""
        ...


ROUTERS: Final[Mapping[str, RouterClass]] = MappingProxyType(
    {"constant": ConstantRouter, "neighbours": NeighbourRouter, "router": HeadRouter}
)


def router_class(name: str) -> RouterClass:
    """Return the class of a router by its strategy's name; research routers are in the lab."""
    if name in ROUTERS:
        return ROUTERS[name]
    with lab_extra():
        from podium_lab.routers import RESEARCH_ROUTERS
    return RESEARCH_ROUTERS[name]


def read_model(
    name: str, workers: tuple[str, ...], document: Mapping[str, Any]
) -> RouterModel | Planner:
    """Read the model of a fitted strategy from JSON."""
    if name == MASROUTER:
        with lab_extra():
            from podium_lab.routers import MasRouter
        return MasRouter.read(workers, document)
    return router_class(name).read(workers, document)
