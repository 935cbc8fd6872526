"""The search for parameters: candidates in the same form each time, and what they earned back.

    search = begin("cma-es", start, sigma=0.03, population=32, seed=42)
    for _ in range(60):
        candidates = search.ask()
        search.tell([reward(candidate) for candidate in candidates])
    search.found

A search is repeatable: the same seed, told the same rewards, asks for the same candidates, on every
machine. So it is kept as the rewards that it was told, and one that goes on is told them again.
Nothing here knows what parameters are for. Needs the package cmaes
(`podium.routing.separable`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from podium.conductors.routing.separable import SeparableCma, Vector
from podium.train.method import Method


class Search(Protocol):
    """Asks for candidates, and is told what each of them earned."""

    @property
    def found(self) -> Vector:
        """The best that is known: what a training comes to."""
        ...

    @property
    def sigma(self) -> float:
        """How far the candidates that were asked for last lie from their middle, in each of the
        parameters."""
        ...

    def ask(self) -> list[Vector]:
        """The candidates of the next step."""
        ...

    def tell(self, rewards: Sequence[float]) -> None:
        """What these earned, in their order; more is better."""
        ...


def begin(method: Method, start: Vector, *, sigma: float, population: int, seed: int) -> Search:
    """A search that begins at `start` and first looks about `sigma` far around it."""
    made = SeparableCma if method == "cma-es" else _AtRandom
    return made(start, sigma, population, seed)


class _AtRandom:
    """Random search: every candidate is drawn around the start, whatever others earned."""

    def __init__(self, start: Vector, sigma: float, population: int, seed: int) -> None:
        self._start = start
        self._population = population
        self._generator = np.random.RandomState(seed)
        self._asked: list[Vector] = []
        self._most = -math.inf
        self.sigma = sigma
        self.found = start.copy()

    def ask(self) -> list[Vector]:
        self._asked = [
            self._start + self.sigma * self._generator.randn(len(self._start))
            for _ in range(self._population)
        ]
        return self._asked

    def tell(self, rewards: Sequence[float]) -> None:
        for candidate, reward in zip(self._asked, rewards, strict=True):
            if reward > self._most:
                self._most, self.found = reward, candidate
