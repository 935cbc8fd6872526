"""The second stage of a router: evolution for what routing earns in the end.

Soft targets teach a head what to expect; which worker is asked, and what that earns less what it
costs, is a step further, with no slope to follow. So the head is moved by separable CMA-ES
(`podium.routing.separable`): draw heads around the present one, see what routing by each would have
earned at every mark of the quality bias, move towards the better ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from podium.conductors.routing.arrays import Array, normalize_seed
from podium.conductors.routing.quality_bias import MARKS, QualityBias
from podium.core.errors import ConfigError, install_command

WEIGHED: Final = tuple(range(1, len(MARKS), 3))
"""Which marks of the quality bias a head is judged at; at the first of all everything goes to the
cheapest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """`generations` at most, each of `population` heads (4 + 3 ln n of n numbers where it is None),
    drawn at `spread` times the mean size of the head's numbers."""

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
    """The head as it is, then the mean of the heads after each generation. Every worker was asked
    each of the questions."""
    try:
        from podium.conductors.routing.separable import SeparableCma, default_population
    except ImportError as error:
        raise ConfigError(
            f"evolution needs the package cmaes, which is not here ({error}); install it by: "
            f"{install_command('router')}"
        ) from error
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
    """What routing by the head earns less the price of what it costs, at all marks together."""
    expected = vectors @ head[:-1] + head[-1]
    everyone = np.arange(len(vectors))
    total = 0.0
    for mark in WEIGHED:
        price = quality_bias.prices[mark]
        chosen = (expected - price * costs).argmax(axis=1)
        total += float(np.mean(rewards[everyone, chosen] - price * costs[chosen]))
    return total
