"""The second stage of a router's training: evolve the head for the reward of routing itself.

The first stage teaches the head expected rewards. The reward of the worker that is then chosen,
less its cost, has no gradient, so the head moves by separable CMA-ES (the package `cmaes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from podium.conductors.routing.arrays import Array, normalize_seed
from podium.conductors.routing.router import MARKS, QualityBias
from podium.core.errors import ConfigError, install_command

Vector = NDArray[np.float64]


def default_population(parameters: int) -> int:
    """Return the default population size, ⌈4 + 3 ln n⌉, as in the paper."""
    return math.ceil(4 + 3 * math.log(parameters))


class SeparableCma:
    """Separable CMA-ES that maximizes; the result is the mean of the distribution.

    The same seed and rewards give the same candidates on every machine.
    """

    def __init__(self, start: Vector, sigma: float, population: int, seed: int) -> None:
        try:
            from cmaes import SepCMA
        except ImportError as error:
            raise ConfigError(
                f"evolution needs the package cmaes, which is not here ({error}); install it by: "
                f"{install_command('router')}"
            ) from error
        self._optimiser = SepCMA(
            mean=start.copy(), sigma=sigma, population_size=population, seed=seed
        )
        self._asked: list[Vector] = []
        self.sigma = sigma

    @property
    def found(self) -> Vector:
        """The current mean."""
        mean: Vector = self._optimiser.mean.copy()
        return mean

    def ask(self) -> list[Vector]:
        """Draw the candidates of the next generation."""
        self._asked = [self._optimiser.ask() for _ in range(self._optimiser.population_size)]
        self.sigma = _spread(self._asked, self._optimiser.mean)
        return self._asked

    def tell(self, rewards: Sequence[float]) -> None:
        """Report the candidates' rewards, in their order; more is better."""
        losses = [-reward for reward in rewards]  # it looks for the least
        self._optimiser.tell(list(zip(self._asked, losses, strict=True)))


def _spread(candidates: Sequence[Vector], middle: Vector) -> float:
    return float(np.sqrt(np.mean((np.array(candidates) - middle) ** 2)))


WEIGHED: Final = tuple(range(1, len(MARKS), 3))
"""Marks of the quality bias at which a head is scored; at mark 0 the cheapest worker is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """Options of the second stage.

    `population` is 4 + 3 ln n of n numbers by default; heads are drawn at `spread` times the root
    mean square of the head's numbers.
    """

    generations: int = 60
    population: int | None = None
    spread: float = 0.1
    seed: int = 42


def evolve_head(
    head: Array,
    vectors: Array,
    rewards: Array,
    costs: Array,
    quality_bias: QualityBias,
    evolution: Evolution,
    *,
    generations: int | None = None,
) -> Iterator[Array]:
    """Yield the head, then the mean head after each generation.

    Every worker must have been asked each of the questions.
    """
    size = float(np.sqrt(np.mean(np.square(head[:-1])))) or 1e-3
    population = evolution.population or default_population(head.size)
    search = SeparableCma(
        np.zeros(head.size), evolution.spread, population, normalize_seed(evolution.seed)
    )
    yield head
    for _ in range(evolution.generations if generations is None else generations):
        drawn = [head + size * change.reshape(head.shape) for change in search.ask()]
        search.tell([_worth(moved, vectors, rewards, costs, quality_bias) for moved in drawn])
        found: Array = (head + size * search.found.reshape(head.shape)).astype(np.float32)
        yield found


def _worth(
    head: Array, vectors: Array, rewards: Array, costs: Array, quality_bias: QualityBias
) -> float:
    expected = vectors @ head[:-1] + head[-1]
    everyone = np.arange(len(vectors))
    total = 0.0
    for mark in WEIGHED:
        price = quality_bias.prices[mark]
        chosen = (expected - price * costs).argmax(axis=1)
        total += float(np.mean(rewards[everyone, chosen] - price * costs[chosen]))
    return total
