"""The learned router: one worker for a question, by what each is expected to earn and to cost.

    router = LearnedRouter.load(Path("router.json"))
    router.check(pool)
    decision = router.decide("What is six times seven?", pool, quality_bias=0.5)
    decision.worker, decision.confidence, decision.scores

A linear head over what its encoder makes of the question says for each worker what reward to expect
of it. The quality bias weighs that against money: at 1 the best worker that the head expects, at 0
the cheapest, and between them what the head expects less the worker's cost times a price that was
learned from the log (`podium.conductors.routing.quality_bias`). How the head is learned is
`podium.routing.learning`.

The file is versioned JSON, its numbers in base64; nothing of it is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from podium._util.files import read_json, write_whole, writing
from podium.conductors.routing.arrays import AGAIN, Array, encode_array, read_array, read_number
from podium.conductors.routing.encoders import Encoder, ReadEncoder, read_encoder, width_of
from podium.conductors.routing.quality_bias import QualityBias
from podium.conductors.tiers import RoutingDecision
from podium.core.errors import ConfigError, UsageError
from podium.core.pool import CONDUCTOR_PROVIDER, Pool, WorkerProfile

DIRECTORY: Final = Path(__file__).with_name("routers")


def shipped_router(name: str) -> Path:
    """The file of the router of that name, without the prefix that says that it is shipped."""
    known = {file.stem: file for file in sorted(DIRECTORY.glob("*.json"))}
    if name not in known:
        raise ConfigError(
            f"Podium ships no router called {name!r}; it ships {', '.join(known) or 'none'}"
        )
    return known[name]


FORMAT: Final = "podium-router"
VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class KnownWorker:
    """A worker that the router was trained with: its name, its model (nothing where the log did not
    say), and what one question cost on the average, in US dollars or whatever else the log counts
    in."""

    name: str
    model: str
    cost: float

    def is_(self, worker: WorkerProfile) -> bool:
        """Whether it is that worker: one of the same name and, where it is known, model."""
        return self.name == worker.name and self.model in ("", worker.model)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How an expected reward becomes a chance: a logistic curve, fitted to questions that the head
    had not learned from."""

    slope: float = 4.0
    middle: float = 0.5

    def __call__(self, expected: float) -> float:
        """The chance that belongs to it."""
        steepness = min(max(self.slope * (expected - self.middle), -50.0), 50.0)
        return float(1 / (1 + np.exp(-steepness)))


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRouter:
    """What was learned: `head` has a column for each worker, and a row for each direction of the
    question's vector and one for what is the same for every question."""

    workers: tuple[KnownWorker, ...]
    encoder: Encoder
    head: Array
    quality_bias: QualityBias
    certainty: Calibration = Calibration()
    source: str = ""

    @classmethod
    def load(cls, path: Path) -> LearnedRouter:
        """The router that `podium train router` wrote; an error says what is wrong with it."""
        document = read_json(path, "make it by `podium train router`")
        try:
            return cls.read(document)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    def save(self, path: Path) -> None:
        """Write it, all of it or none of it."""
        with writing(path.parent, 0):
            write_whole(path, json.dumps(self.document()) + "\n")

    def decide(
        self, question: str, pool: Pool, quality_bias: float = 1.0, confidence: float = 0.0
    ) -> RoutingDecision:
        """The worker of the pool that is to answer, of those that the router knows.

        With `quality_bias` 0 the cheapest whatever its chance; above, of those whose chance to be
        right is
        at least the `confidence`, with 1 the one of which the most is expected. Where nobody's is,
        it is who has the best chance, and the decision says how small that is.
        """
        places = self._places(pool)
        expected = self.expected(self.encoder.encode([question]))[0]
        chances = {place: self.certainty(float(expected[place])) for place in places}
        trusted = [place for place in places if chances[place] >= confidence]
        if quality_bias == 0:
            trusted = places
        elif not trusted:
            trusted = [max(places, key=chances.__getitem__)]
        chosen = self.quality_bias.choose(expected, self.costs, quality_bias, trusted)
        return RoutingDecision(
            self.workers[chosen].name,
            chances[chosen],
            MappingProxyType(
                {self.workers[place].name: _reward(float(expected[place])) for place in places}
            ),
        )

    def expected(self, vectors: Array) -> Array:
        """What reward to expect of each worker, a row for each vector of a question."""
        return expected_by(self.head, vectors)

    @property
    def costs(self) -> Array:
        """What a question costs with each worker, on the average."""
        return np.array([worker.cost for worker in self.workers])

    @property
    def fingerprint(self) -> str:
        """Changes with anything that could change a decision."""
        text = json.dumps(self.document(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def knows(self, worker: WorkerProfile) -> bool:
        """Whether it was trained with that worker."""
        return any(each.is_(worker) for each in self.workers)

    def check(self, pool: Pool) -> None:
        """Refuse a pool that is not the one that it was trained with, in whatever order."""
        changes = self.changes(pool)
        if changes:
            raise ConfigError(
                f"the router was trained with another pool: {'; '.join(changes)}; train it again "
                f"with `podium train router`, or put the pool back"
            )

    def changes(self, pool: Pool) -> tuple[str, ...]:
        """How the pool differs from the one that it was trained with, a phrase each. A worker is
        the same if its name is and, where it is known, its model; conductors do not count."""
        there = {
            worker.name: worker.model for worker in pool if worker.provider != CONDUCTOR_PROVIDER
        }
        here = {worker.name: worker.model for worker in self.workers}
        added = [name for name in there if name not in here]
        removed = [name for name in here if name not in there]
        found = []
        for name in removed:
            match = next((new for new in added if there[new] == here[name]), None)
            if match is None:
                found.append(f"{name} is gone")
            else:
                added.remove(match)
                found.append(f"{name} is now called {match}")
        found += [f"{name} is new" for name in added]
        found += [
            f"{name} was the model {here[name]} and is {there[name]}"
            for name in here
            if name in there and here[name] not in ("", there[name])
        ]
        return tuple(found)

    def _places(self, pool: Pool) -> list[int]:
        """The places of the workers that it knows and the pool has."""
        found = [
            place
            for place, known in enumerate(self.workers)
            if known.name in pool.names and known.is_(pool[known.name])
        ]
        if not found:
            known = ", ".join(worker.name for worker in self.workers)
            raise UsageError(
                f"the router was trained with {known}, and the pool has {', '.join(pool.names)}: "
                f"none of them; train it again with `podium train router`"
            )
        return found

    def document(self) -> dict[str, Any]:
        """The router as JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "source": self.source,
            "workers": [
                {"name": worker.name, "model": worker.model, "cost": worker.cost}
                for worker in self.workers
            ],
            "encoder": self.encoder.document(),
            "head": encode_array(self.head),
            "quality_bias": self.quality_bias.document(),
            "certainty": {"slope": self.certainty.slope, "middle": self.certainty.middle},
        }

    @classmethod
    def read(cls, document: object, inner: ReadEncoder | None = None) -> LearnedRouter:
        """The router that was written down; `inner` reads what its encoder is made over. One that
        `podium eval fit` wrote stands inside of what it says of the fitting."""
        if isinstance(document, Mapping) and document.get("strategy") == "router":
            document = document.get("learned")
        if not isinstance(document, Mapping) or document.get("format") != FORMAT:
            raise ConfigError("this is nothing that `podium train router` wrote")
        if document.get("version") != VERSION:
            raise ConfigError(
                f"version {document.get('version')!r} cannot be read, only {VERSION}, so with this "
                f"Podium {AGAIN}"
            )
        encoder = read_encoder(document.get("encoder"), inner)
        try:
            workers = tuple(
                KnownWorker(
                    str(row["name"]), str(row["model"]), read_number(row["cost"], "a cost", 0.0)
                )
                for row in document["workers"]
            )
            certainty = Calibration(
                read_number(document["certainty"]["slope"], "a slope"),
                read_number(document["certainty"]["middle"], "a middle"),
            )
            quality_bias = QualityBias.read(document["quality_bias"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"expected workers, a quality bias and a certainty in it ({type(error).__name__}: "
                f"{error}); {AGAIN}"
            ) from error
        if not workers or len({worker.name for worker in workers}) < len(workers):
            raise ConfigError("it has no workers, or two of the same name; " + AGAIN)
        head = read_array(document, "head", (width_of(encoder) + 1, len(workers)))
        return cls(workers, encoder, head, quality_bias, certainty, str(document.get("source", "")))


def expected_by(head: Array, vectors: Array) -> Array:
    """What reward a head expects of each worker (columns) on each question (rows). A line leaves 0
    and 1 behind where it is sure: by that workers are still told apart, and the chance that an
    answer is right is a curve over it, which stays between them."""
    found: Array = vectors @ head[:-1] + head[-1]
    return found


def _reward(expected: float) -> float:
    """What is expected, as a reward that can be earned."""
    return min(max(expected, 0.0), 1.0)
