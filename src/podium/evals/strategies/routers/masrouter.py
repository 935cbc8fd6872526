"""MASRouter: a cascade that chooses how agents work together, how many, in which roles, and by
which workers (Yue et al., ACL 2025, arXiv:2502.11133).

Written from the paper's description. Where it departs from the original:

- Linear scores over learned vectors take the place of the variational auto-encoders, whose loss
  goes with them; the encoder is this package's own (sentence embeddings in the original), or
  another that is named.
- There is no classifier of the question's domain, which in the original is told the benchmark's
  name, and one set of seven roles without tools instead of one for each domain.
- The number of agents is drawn from 1 to 6; the original rounds a squashed number.
- The policy gradient is taken against the mean of its batch; the original has no baseline.
- When it answers, the most likely choice is taken at each stage; the original draws.
- What an answer costs is what the run cost in USD; where that is unknown, nothing is taken off.

The rest is the original's: six ways of working together, a worker chosen by its description, an
agent that decides in the end, a gradient weighted by right or wrong less 100 times the cost,
Adam at 0.01, batches of 16, 5 passes over the training split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from podium.conductors.routing.arrays import Array, encode_array, normalize_seed, read_array
from podium.conductors.routing.encoders import Encoder, width_of
from podium.core.pool import CONDUCTOR_PROVIDER, Pool
from podium.core.workflow import Workflow
from podium.evals.strategies.routers.base import AdamW
from podium.evals.strategies.routers.collaborations import (
    ALONE,
    MODES,
    MOST_AGENTS,
    ROLES,
    Agent,
    workflow,
)
from podium.evals.strategies.routers.encoder import MakeEncoder, read_encoder

WIDTH: Final = 64
RATE: Final = 0.01
BATCH: Final = 16
PASSES: Final = 5
COST_RATE: Final = 100.0
"""What a US dollar weighs against a right answer."""

NAMES: Final = ("question", "modes", "counts", "roles", "described", "known")


class Drawn(NamedTuple):
    """A plan, the logarithm of its chance, and what makes it more likely: that one's gradients."""

    workflow: Workflow
    chance: float
    gradients: dict[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class MasRouter:
    """The cascade. `weights` are its arrays by name: how a question (`question`) and a worker's
    description (`described`) are mapped onto one plane, and the vectors there of ways, numbers,
    roles and the `workers` met in training (`known`)."""

    workers: tuple[str, ...]
    encoder: Encoder
    weights: Mapping[str, Array]

    @classmethod
    def untaught(
        cls, workers: tuple[str, ...], questions: Sequence[str], encoder: MakeEncoder, seed: int
    ) -> MasRouter:
        """A cascade that has learned nothing yet."""
        rng = np.random.default_rng(normalize_seed(seed))
        made = encoder(questions)
        wide = made.encode(questions[:1]).shape[1]
        weights = {
            name: rng.normal(0, WIDTH**-0.5, shape).astype(np.float32)
            for name, shape in _shapes(wide, len(workers)).items()
        }
        return cls(workers, made, weights)

    def plan(self, question: str, pool: Pool) -> Workflow:
        """The most likely plan for the question."""
        return self._drawn(question, pool, None).workflow

    def drawn(self, question: str, pool: Pool, rng: np.random.Generator) -> Drawn:
        """A plan by chance, to learn from."""
        return self._drawn(question, pool, rng)

    def _drawn(self, question: str, pool: Pool, rng: np.random.Generator | None) -> Drawn:
        cascade = _Cascade(self.weights, self.encoder.encode([question])[0], rng)
        mode = MODES[cascade.choice("modes")]
        count = 1 + cascade.choice("counts")
        present = tuple(w for w in pool if w.provider != CONDUCTOR_PROVIDER)
        described = self.encoder.encode([w.description or w.name for w in present])
        known = [self.workers.index(w.name) if w.name in self.workers else None for w in present]
        agents = []
        for _ in range(1 if mode in ALONE else count):
            role = cascade.choice("roles")
            worker = cascade.worker(described, known)
            agents.append(Agent(tuple(ROLES)[role], present[worker].name))
        return Drawn(workflow(mode, agents, question, pool), cascade.chance, cascade.gradients)

    def document(self) -> dict[str, Any]:
        """The cascade as JSON."""
        return {
            "encoder": self.encoder.document(),
            "weights": {name: encode_array(array) for name, array in self.weights.items()},
        }

    @classmethod
    def read(cls, workers: tuple[str, ...], document: Mapping[str, Any]) -> MasRouter:
        """The cascade that was written down."""
        encoder = read_encoder(document.get("encoder"))
        shapes = _shapes(width_of(encoder), len(workers))
        kept = document.get("weights")
        weights = kept if isinstance(kept, Mapping) else {}
        return cls(
            workers, encoder, {name: read_array(weights, name, shapes[name]) for name in NAMES}
        )


def _shapes(wide: int, workers: int) -> dict[str, tuple[int, int]]:
    """Of each array, where an encoding is so wide and there are so many workers."""
    rows = (wide, len(MODES), MOST_AGENTS, len(ROLES), wide, workers)
    return {name: (count, WIDTH) for name, count in zip(NAMES, rows, strict=True)}


class Teacher:
    """Teaches a cascade by what became of its plans."""

    def __init__(self, router: MasRouter) -> None:
        self.router = replace(router, weights={k: v.copy() for k, v in router.weights.items()})
        self._optimiser = AdamW(RATE)

    def learn(self, plans: Sequence[Drawn], rewards: Sequence[float]) -> None:
        """One step: plans that earned more than the others become more likely."""
        above = np.array(rewards, dtype=np.float32) - np.float32(np.mean(rewards))
        uphill = {
            name: sum(plan.gradients[name] * gain for plan, gain in zip(plans, above, strict=True))
            for name in NAMES
        }
        self._optimiser.update(
            [self.router.weights[name] for name in NAMES],
            [-uphill[name] / len(plans) for name in NAMES],
        )


class _Cascade:
    """One plan being chosen, stage by stage: the context is the question's vector and those of
    everything that was chosen before. A slope of the context is a slope of all of them."""

    def __init__(
        self, weights: Mapping[str, Array], encoded: Array, rng: np.random.Generator | None
    ) -> None:
        self._weights = weights
        self._encoded = encoded
        self._rng = rng
        self._context: Array = encoded @ weights["question"]
        self._chosen: list[tuple[str, int]] = []
        self.chance = 0.0
        self.gradients = {name: np.zeros_like(array) for name, array in weights.items()}

    def choice(self, name: str) -> int:
        """One row of those vectors; it is part of the context from now on."""
        options = self._weights[name]
        place, slopes = self._settled(options @ self._context)
        self.gradients[name] += np.outer(slopes, self._context)
        self._pull(slopes @ options)
        self._chosen.append((name, place))
        self._context = self._context + options[place]
        return place

    def worker(self, described: Array, known: Sequence[int | None]) -> int:
        """One of the workers, by what is said of it and by what was learned of it. The next
        agent is chosen as if this one had not been, but for its role."""
        own = self._weights["known"]
        options = described @ self._weights["described"]
        for row, place in enumerate(known):
            if place is not None:
                options[row] += own[place]
        place, slopes = self._settled(options @ self._context)
        self.gradients["described"] += np.outer(slopes @ described, self._context)
        for row, learned in enumerate(known):
            if learned is not None:
                self.gradients["known"][learned] += slopes[row] * self._context
        self._pull(slopes @ options)
        return place

    def _settled(self, logits: Array) -> tuple[int, Array]:
        """A place, and the slope of the logarithm of its chance by each logit."""
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        if self._rng is None:
            place = int(chances.argmax())
        else:
            bounds = np.cumsum(chances)
            place = int(np.searchsorted(bounds, self._rng.random() * bounds[-1], side="right"))
            place = min(place, len(chances) - 1)
        self.chance += float(np.log(chances[place]))
        slopes: Array = -chances
        slopes[place] += 1
        return place, slopes

    def _pull(self, slope: Array) -> None:
        """Hand a slope of the context on to all that it is made of."""
        self.gradients["question"] += np.outer(self._encoded, slope)
        for name, place in self._chosen:
            self.gradients[name][place] += slope
