"""Separable CMA-ES (the package `cmaes`) as everything here that evolves uses it.

    search = Separable(start, sigma=0.03, population=usual_population(len(start)), seed=42)
    candidates = search.ask()
    search.tell([reward(candidate) for candidate in candidates])
    search.found

The same seed, told the same rewards, asks for the same candidates, on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from cmaes import SepCMA
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def default_population(parameters: int) -> int:
    """How many candidates a step has where nobody says: ⌈4 + 3 ln n⌉, as in the paper."""
    return math.ceil(4 + 3 * math.log(parameters))


class SeparableCma:
    """Asks for candidates, and is told what each of them earned. What is found is the middle of the
    distribution, which no single lucky candidate decides."""

    def __init__(self, start: Vector, sigma: float, population: int, seed: int) -> None:
        self._optimiser = SepCMA(
            mean=start.copy(), sigma=sigma, population_size=population, seed=seed
        )
        self._asked: list[Vector] = []
        self.sigma = sigma

    @property
    def found(self) -> Vector:
        """The middle as it is now."""
        mean: Vector = self._optimiser.mean.copy()
        return mean

    def ask(self) -> list[Vector]:
        """The candidates of the next step."""
        self._asked = [self._optimiser.ask() for _ in range(self._optimiser.population_size)]
        self.sigma = _spread(self._asked, self._optimiser.mean)
        return self._asked

    def tell(self, rewards: Sequence[float]) -> None:
        """What these earned, in their order; more is better."""
        losses = [-reward for reward in rewards]  # it looks for the least
        self._optimiser.tell(list(zip(self._asked, losses, strict=True)))


def _spread(candidates: Sequence[Vector], middle: Vector) -> float:
    return float(np.sqrt(np.mean((np.array(candidates) - middle) ** 2)))
