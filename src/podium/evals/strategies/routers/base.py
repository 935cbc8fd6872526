"""What routers learn from, and what they are: one worker chosen for each question.

    outcomes = Outcomes(questions, workers, shares)      # who was how often right on what
    router = RouterDC.fitted(outcomes, encoder, seed=0)
    router.scores(["What is six times seven?"])          # a row, a column for each worker

Who is asked what, and whether it was right, is found out in `podium.evals.strategies.fit`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing import KnownWorker, LearnedRouter
from podium.conductors.routing.arrays import AGAIN, Array, encode_array, read_array
from podium.conductors.routing.encoders import Encoder, width_of
from podium.conductors.routing.evidence import RewardTable
from podium.conductors.routing.learning import RouterTraining, fit_router
from podium.core.errors import ConfigError, UsageError
from podium.evals.strategies.routers.encoder import MakeEncoder, read_encoder

FIRST: Final = 0.9
SECOND: Final = 0.999
SMALL: Final = 1e-8


class AdamW:
    """AdamW that updates arrays in place. In numpy: evaluating routers must not need torch."""

    def __init__(self, rate: float, *, decay: float = 0.0) -> None:
        self._rate = rate
        self._decay = decay
        self._steps = 0
        self._means: list[Array] = []
        self._squares: list[Array] = []

    def update(self, arrays: Sequence[Array], gradients: Sequence[Array]) -> None:
        """Make one step."""
        if not self._means:
            self._means = [np.zeros_like(array) for array in arrays]
            self._squares = [np.zeros_like(array) for array in arrays]
        self._steps += 1
        for array, gradient, mean, square in zip(
            arrays, gradients, self._means, self._squares, strict=True
        ):
            mean += (1 - FIRST) * (gradient - mean)
            square += (1 - SECOND) * (gradient * gradient - square)
            steady = mean / (1 - FIRST**self._steps)
            spread = np.sqrt(square / (1 - SECOND**self._steps)) + SMALL
            array -= self._rate * (steady / spread + self._decay * array)


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """How often each worker was right on each question: a row for each question, a column for
    each worker, shares from 0 to 1. `replies` are what each worker said to each question, where
    a router reads that; `costs` what each question cost with each worker, where that is known of
    all of them."""

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

    def of(self, rows: Sequence[int]) -> Outcomes:
        """The same for some of the questions, by their places."""
        return Outcomes(
            tuple(self.questions[row] for row in rows),
            self.workers,
            self.shares[list(rows)],
            None if self.replies is None else tuple(self.replies[row] for row in rows),
            None if self.costs is None else self.costs[list(rows)],
        )

    @property
    def best(self) -> int:
        """The place of the worker that is right most often; of several, the first."""
        return int(np.argmax(self.shares.mean(axis=0)))


class Router(Protocol):
    """Says for each question how much each worker is to be preferred."""

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it knows, in the order of its scores."""
        ...

    def scores(self, questions: Sequence[str]) -> Array:
        """A row for each question, a number for each worker; the largest is its choice."""
        ...

    def document(self) -> dict[str, Any]:
        """What it has learned, as JSON."""
        ...


def chosen(router: Router, question: str, present: Collection[str]) -> str:
    """The worker that the router prefers among those who are there."""
    (row,) = router.scores([question])
    known = known_places(router, present)
    return router.workers[max(known, key=lambda place: float(row[place]))]


def known_places(router: Router, present: Collection[str]) -> list[int]:
    """The places of the workers that the router knows and that are there."""
    known = [place for place, worker in enumerate(router.workers) if worker in present]
    if not known:
        raise UsageError(
            f"the router was fitted to {', '.join(router.workers)}, and the pool has "
            f"{', '.join(present)}: none of them; fit it again on this pool"
        )
    return known


CANDIDATES: Final = (5, 10, 20, 40, 80)
"""How many neighbours may be looked at; the number that does best in training is taken."""

BLOCK: Final = 512
"""How many questions are held against all others at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourRouter:
    """Averages what workers got right on the `count` nearest questions of the training split,
    by the cosine of their encodings. Departures from RouterBench's: the number of neighbours is
    chosen by leaving each training question out in turn, money is not weighed, and the encoder
    is this package's own unless another is named."""

    workers: tuple[str, ...]
    encoder: Encoder
    vectors: Array
    shares: Array
    count: int

    @classmethod
    def fitted(cls, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> NeighbourRouter:
        """The training questions themselves, and the best number of neighbours; the seed
        changes nothing."""
        made = encoder(outcomes.questions)
        vectors = made.encode(outcomes.questions)
        others = max(1, len(outcomes.questions) - 1)
        counts = sorted({min(count, others) for count in CANDIDATES})
        nearest = _nearest(vectors, vectors, counts[-1], own=False)
        count = max(counts, key=lambda count: _reached(nearest[:, :count], outcomes.shares))
        return cls(outcomes.workers, made, vectors, outcomes.shares, count)

    def scores(self, questions: Sequence[str]) -> Array:
        """What workers got right among the neighbours of each question."""
        encoded = self.encoder.encode(questions)
        return _averages(_nearest(encoded, self.vectors, self.count, own=True), self.shares)

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return {
            "encoder": self.encoder.document(),
            "vectors": encode_array(self.vectors),
            "shares": encode_array(self.shares),
            "count": self.count,
        }

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> NeighbourRouter:
        """The router that was written down."""
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


def _nearest(vectors: Array, others: Array, count: int, *, own: bool) -> NDArray[np.int64]:
    """The places of the `count` others that each vector is most like, the most alike first. With
    `own` left out, nobody is its own neighbour. In blocks, for the table of all likenesses is as
    large as their number squared."""
    found = []
    for start in range(0, len(vectors), BLOCK):
        likeness = vectors[start : start + BLOCK] @ others.T
        rows = np.arange(len(likeness))
        if not own and len(others) > 1:
            likeness[rows, start + rows] = -np.inf
        places = np.argpartition(-likeness, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(likeness, places, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(places, order, axis=1))
    return np.concatenate(found)


def _averages(nearest: NDArray[np.int64], shares: Array) -> Array:
    """The mean shares of each one's nearest. What everyone gets right on average settles ties, so
    that a question without any right neighbour goes to the best."""
    found: Array = shares[nearest].mean(axis=1) + 1e-3 * shares.mean(axis=0)
    return found


def _reached(nearest: NDArray[np.int64], shares: Array) -> float:
    """How often the worker is right that each question's neighbours suggest."""
    choices = _averages(nearest, shares).argmax(axis=1)
    return float(shares[np.arange(len(shares)), choices].mean())


@dataclass(frozen=True, slots=True, eq=False)
class HeadRouter:
    """Prefers the worker of which the head expects most."""

    router: LearnedRouter

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers that it knows."""
        return tuple(known.name for known in self.router.workers)

    @classmethod
    def fitted(cls, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> HeadRouter:
        """The router that comes of both stages."""
        # Outcomes do not say of which model a worker is, so it is known by its name alone.
        workers = tuple(
            KnownWorker(name, "", cost)
            for name, cost in zip(outcomes.workers, costs_of(outcomes), strict=True)
        )
        evidence = RewardTable(outcomes.questions, workers, outcomes.shares)
        return cls(
            fit_router(evidence, encoder(outcomes.questions), RouterTraining(seed=seed)).router
        )

    def scores(self, questions: Sequence[str]) -> Array:
        """What reward is expected of each worker."""
        return self.router.expected(self.router.encoder.encode(questions))

    def chosen_at(self, quality_bias: float, question: str, present: Collection[str]) -> str:
        """The worker at that position of the quality bias, of those who are there."""
        (row,) = self.scores([question])
        places = known_places(self, present)
        return self.workers[
            self.router.quality_bias.choose(row, self.router.costs, quality_bias, places)
        ]

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return self.router.document()

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> HeadRouter:
        """The router that was written down."""
        return cls(LearnedRouter.read(document, read_encoder))


def costs_of(outcomes: Outcomes) -> tuple[float, ...]:
    """What a question costs with each worker on the average, or what stands for that."""
    if outcomes.costs is not None:
        return tuple(map(float, outcomes.costs.mean(axis=0)))
    if len(outcomes.workers) != 2:
        return (0.0,) * len(outcomes.workers)
    return tuple(float(place == outcomes.best) for place in range(2))


@dataclass(frozen=True, slots=True, eq=False)
class ConstantRouter:
    """Prefers workers by the `shares` that they got right in training."""

    workers: tuple[str, ...]
    shares: Array

    @classmethod
    def fitted(cls, outcomes: Outcomes, encoder: MakeEncoder, seed: int) -> ConstantRouter:
        """A router that knows who was right how often; encoder and seed change nothing."""
        return cls(outcomes.workers, outcomes.shares.mean(axis=0))

    def scores(self, questions: Sequence[str]) -> Array:
        """The same row for every question."""
        return np.tile(self.shares, (len(questions), 1))

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return {"shares": encode_array(self.shares)}

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> ConstantRouter:
        """The router that was written down."""
        return cls(workers, read_array(document, "shares", (len(workers),)))
