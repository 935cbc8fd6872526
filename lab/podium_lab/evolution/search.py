"""The search for parameters: it proposes candidates and takes their rewards.

    search = start_search("cma-es", start, sigma=0.03, population=32, seed=42)
    for _ in range(60):
        search.tell([reward(candidate) for candidate in search.ask()])
    search.found

A search is repeatable: the same seed and the same rewards give the same candidates on every
machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.conductors.evolved_turns import CoordinatorDescription
from podium.core.errors import ConfigError, install_command
from podium.train.schema import Method

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


def default_population(parameters: int) -> int:
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
                f"{install_command('lab')}"
            ) from error
        self._optimiser = SepCMA(
            mean=start.copy(), sigma=sigma, population_size=population, seed=seed
        )
        self._candidates: list[Vector] = []
        self.sigma = sigma

    @property
    def found(self) -> Vector:
        mean: Vector = self._optimiser.mean.copy()
        return mean

    def ask(self) -> list[Vector]:
        self._candidates = [self._optimiser.ask() for _ in range(self._optimiser.population_size)]
        self.sigma = _spread(self._candidates, self._optimiser.mean)
        return self._candidates

    def tell(self, rewards: Sequence[float]) -> None:
        losses = [-reward for reward in rewards]  # SepCMA minimizes
        self._optimiser.tell(list(zip(self._candidates, losses, strict=True)))


def _spread(candidates: Sequence[Vector], middle: Vector) -> float:
    return float(np.sqrt(np.mean((np.array(candidates) - middle) ** 2)))


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """The search space of a coordinator; `directions` are the rows of a matrix, and without them
    every number is free."""

    described: CoordinatorDescription
    directions: Matrix | None = None

    @property
    def size(self) -> int:
        if self.directions is None:
            return self.described.size
        return self.described.size_with(len(self.directions))

    def parameters(self, chosen: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.directions is None:
            return chosen
        scales = sum(self.described.ranks)
        head = chosen[scales:].reshape(self.described.rows, -1) @ self.directions
        return np.concatenate([chosen[:scales], head.ravel()])


def principal_directions(states: Sequence[NDArray[np.floating[Any]]], count: int) -> Matrix:
    """Return the principal directions of these states, scaled so that the mean square of the states
    along each of them is 1."""
    seen = np.array(states, np.float64)
    if not np.isfinite(seen).all():
        raise ConfigError(
            f"of the {len(states)} hidden states that were looked at some have numbers that are "
            f"infinite or none at all, so no directions can be found; have another model.base read"
        )
    lengths, directions = np.linalg.svd(seen / np.sqrt(len(states)), full_matrices=False)[1:]
    found = int(np.count_nonzero(lengths > lengths[0] * 1e-6))
    if found < count:
        raise ConfigError(
            f"evolve.directions = {count}, and the {len(states)} hidden states that were looked at "
            f"differ along {found}; lower it, or have more questions"
        )
    lengths, directions = lengths[:count], directions[:count]
    strongest = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(count), strongest])  # the same on every machine
    scaled: Matrix = (signs / lengths)[:, None] * directions
    return scaled


class RandomSearch:
    """Draws every candidate around the start, whatever the rewards of others."""

    def __init__(self, start: Vector, sigma: float, population: int, seed: int) -> None:
        self._start = start
        self._population = population
        self._generator = np.random.RandomState(seed)
        self._candidates: list[Vector] = []
        self._most = -math.inf
        self.sigma = sigma
        self.found = start.copy()

    def ask(self) -> list[Vector]:
        self._candidates = [
            self._start + self.sigma * self._generator.randn(len(self._start))
            for _ in range(self._population)
        ]
        return self._candidates

    def tell(self, rewards: Sequence[float]) -> None:
        for candidate, reward in zip(self._candidates, rewards, strict=True):
            if reward > self._most:
                self._most, self.found = reward, candidate


Search = SeparableCma | RandomSearch
"""Proposes candidates and takes their rewards."""


def start_search(
    method: Method, start: Vector, *, sigma: float, population: int, seed: int
) -> Search:
    made = SeparableCma if method == "cma-es" else RandomSearch
    return made(start, sigma, population, seed)
