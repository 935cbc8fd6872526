"""The quality bias between money and quality, as it was learned from a log.

    quality_bias.price(0.5)                                  # reward that one dollar must bring
    quality_bias.choose(expected, costs, 0.5, places)        # the place of the worker to ask

A worker is worth what is expected of it, less its cost times a price. The quality bias ends at the
price at
which routing earned most on questions that were left out of the lesson, and each mark before has
the price at which that share of the way from the cheapest worker's cost to there was spent: equal
steps of the quality bias are equal steps of money, and nobody sets a number by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from podium.conductors.routing.arrays import Array, read_number
from podium.core.errors import UsageError

MARKS: Final = tuple(mark / 20 for mark in range(21))
"""Where the quality bias has prices of its own; between them it is interpolated."""

HALVINGS: Final = 40
"""How often the range in which a price is looked for is halved."""


@dataclass(frozen=True, slots=True)
class QualityBias:
    """The price at each of `MARKS`, falling from the first to the last."""

    prices: tuple[float, ...]

    def price(self, quality_bias: float) -> float:
        """What reward a unit of cost must bring at that position."""
        if not 0 <= quality_bias <= 1:
            raise UsageError(
                f"expected a quality bias between 0 (cheapest) and 1 (best), not {quality_bias:g}"
            )
        return float(np.interp(quality_bias, MARKS, self.prices))

    def choose(
        self, expected: Array, costs: Array, quality_bias: float, places: Sequence[int]
    ) -> int:
        """The place of the worker that is worth most; of equals, the cheaper."""
        price = self.price(quality_bias)
        if quality_bias == 0:  # nothing that is expected outweighs money
            return min(places, key=lambda place: (costs[place], -expected[place]))
        return max(
            places, key=lambda place: (expected[place] - price * costs[place], -costs[place])
        )

    def document(self) -> dict[str, Any]:
        """The quality bias as JSON."""
        return {"prices": list(self.prices)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> QualityBias:
        """The quality bias that was written down."""
        prices = tuple(read_number(price, "prices from 0 up", 0.0) for price in document["prices"])
        if len(prices) != len(MARKS):
            raise ValueError(f"expected {len(MARKS)} prices, not {len(prices)}")
        return cls(prices)

    @classmethod
    def learned(cls, expected: Array, rewards: Array, costs: Array) -> QualityBias:
        """The quality bias by what was expected of each worker (columns) on each question (rows)
        by a head
        that had not met it, what they earned there (all of them were asked), and what they cost.

        Its end is what earned most, which can be less than all that a head would spend: where it
        is wrong about who is best, the money is lost.
        """
        lowest = float(costs.min())
        budgets = np.linspace(lowest, _spent(expected, costs, 0.0), len(MARKS))
        prices = [price_within(expected, costs, float(budget)) for budget in budgets]
        best = max(prices, key=lambda price: earned(expected, rewards, costs, price))
        reach = _spent(expected, costs, best) - lowest
        steps = [price_within(expected, costs, lowest + mark * reach) for mark in MARKS[1:-1]]
        return cls((_ceiling(expected, costs), *steps, best))


def earned(expected: Array, rewards: Array, costs: Array, price: float) -> float:
    """What routing at that price earns on questions that every worker was asked."""
    return float(rewards[np.arange(len(rewards)), routed(expected, costs, price)].mean())


def routed(expected: Array, costs: Array, price: float) -> Array:
    """The place of the worker that each question (row) goes to at that price."""
    cheapest_first = np.argsort(costs, kind="stable")
    worth = (expected - price * costs)[:, cheapest_first]
    found: Array = cheapest_first[worth.argmax(axis=1)]
    return found


def _spent(expected: Array, costs: Array, price: float) -> float:
    return float(costs[routed(expected, costs, price)].mean())


def _ceiling(expected: Array, costs: Array) -> float:
    """A price at which every question goes to the cheapest worker."""
    apart = float(expected.max() - expected.min())
    distinct = np.unique(costs)
    step = float(np.diff(distinct).min()) if len(distinct) > 1 else 1.0
    return 2 * apart / step + 1.0


def price_within(expected: Array, costs: Array, budget: float) -> float:
    """A price at which no more than the budget is spent on a question, and as much as can be: the
    middle of all those at which just that is spent."""
    if _spent(expected, costs, 0.0) <= budget:
        return 0.0
    ceiling = _ceiling(expected, costs)

    def lowest(spends: Callable[[float], bool]) -> float:
        """Where what holds at the ceiling begins to hold."""
        low, high = 0.0, ceiling
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if spends(middle) else (middle, high)
        return high

    first = lowest(lambda price: _spent(expected, costs, price) <= budget)
    spent = _spent(expected, costs, first)
    if spent <= costs.min():
        return first
    return (first + lowest(lambda price: _spent(expected, costs, price) < spent)) / 2
