"""The arithmetic of tables: shares with their intervals, paired differences, means, quantiles.

An outcome is what became of one task: 1 or 0 where it was tried once, the share of tries that
were right where there were several. Tries of one task are not independent of each other, so
chance is always chance over tasks. Pure functions; what is counted is decided in
`podium.evals.tables.row`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final

Z_95: Final = 1.959963984540054
"""How many standard errors hold 95 % of a normal distribution."""

RESAMPLES: Final = 2_000
"""How many samples the bootstrap draws."""

FEW: Final = 20
"""Of fewer numbers the bootstrap says nothing: drawn from one, it is always that one."""

DIGITS: Final = 6
"""How many of them figures are written with after the point."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, or a difference of shares, with its 95 % interval."""

    value: float
    low: float
    high: float

    def document(self) -> dict[str, float]:
        """The share as it is written into tables."""
        return {name: round_figure(getattr(self, name)) for name in ("value", "low", "high")}


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much more often one is right than another on the same tasks.

    `gained` counts the tasks that only the first got right, `lost` those that only the second
    did; `p_value` is McNemar's, exact and two-sided.
    """

    share: Estimate
    gained: int
    lost: int
    p_value: float


def round_figure(number: float) -> float:
    """The number as it is written, and as it is held against a bar: 0.93 less 0.9 is 0.03, and
    not a little more."""
    return round(number, DIGITS)


def wilson(successes: float, trials: int) -> Estimate:
    """A share with Wilson's score interval, which also holds near 0 and 1 and for few trials.

    Of no trials nothing is known: the share is counted as 0, anywhere between 0 and 1. Shares of
    tasks may be summed to `successes`: they spread less than trials, so the interval holds.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials cannot be")
    if trials == 0:
        return Estimate(0.0, 0.0, 1.0)
    value = successes / trials
    weight = Z_95**2 / trials
    centre = (value + weight / 2) / (1 + weight)
    reach = Z_95 / (1 + weight) * math.sqrt(value * (1 - value) / trials + weight / (4 * trials))
    low = 0.0 if successes == 0 else centre - reach
    high = 1.0 if successes == trials else centre + reach
    return Estimate(value, low, high)


def estimate_share(outcomes: Iterable[float]) -> Estimate:
    """The mean outcome: with Wilson's interval where tasks were tried once or are few, else with
    one by the bootstrap over tasks, since the tries of one task are not independent."""
    found = list(outcomes)
    if _tried_once(found):
        return wilson(round(sum(found)), len(found))
    return wilson(math.fsum(found), len(found)) if len(found) < FEW else bootstrap(found)


def bootstrap(numbers: Sequence[float]) -> Estimate:
    """The mean of some numbers, with the percentile interval of resampled means.

    The same numbers give the same interval in whatever order they come, as samples do that are
    read back from files: they are sorted, and chance is seeded with how many there are.
    """
    if not numbers:
        raise ValueError("the mean of no numbers cannot be; give at least one")
    return _resampled(tuple(sorted(numbers)))


@lru_cache(maxsize=512)
def _resampled(numbers: tuple[float, ...]) -> Estimate:
    """Remembered, since it takes a while and tables ask for the same figure in several places."""
    count = len(numbers)
    rng = Random(count)  # noqa: S311 - repeatable
    means = sorted(math.fsum(rng.choices(numbers, k=count)) / count for _ in range(RESAMPLES))
    value = math.fsum(numbers) / count
    low, high = _between(means, 0.025), _between(means, 0.975)
    return Estimate(value, min(low, value), max(high, value))


def paired_difference(one: Sequence[float], other: Sequence[float]) -> PairedDifference:
    """How much more often `one` is right than `other`, task by task.

    The interval is Agresti and Min's: Wald's for matched pairs, with half a pair added to each
    of the four cells, which keeps it honest where few pairs differ. Of tasks that were tried
    several times, unless they are few, it is one by the bootstrap, and a task counts for whoever
    was right more often.
    """
    if len(one) != len(other):
        raise ValueError(f"{len(one)} and {len(other)} outcomes are not of the same tasks")
    differences = [a - b for a, b in zip(one, other, strict=True)]
    gained = sum(difference > 0 for difference in differences)
    lost = sum(difference < 0 for difference in differences)
    once = _tried_once(one) and _tried_once(other)
    share = (
        _matched_pairs(differences) if once or len(differences) < FEW else bootstrap(differences)
    )
    return PairedDifference(share, gained, lost, mcnemar(gained, lost))


def _matched_pairs(differences: Sequence[float]) -> Estimate:
    """The half pairs that are added on either side leave the sum as it is, and add one to the sum
    of squares, which of outcomes that are 0 or 1 is the number of pairs that differ."""
    total = math.fsum(differences)
    pairs = len(differences) + 2.0
    squares = math.fsum(difference**2 for difference in differences) + 1.0
    value, centre = total / len(differences) if differences else 0.0, total / pairs
    spread = math.sqrt(max(0.0, squares - total**2 / pairs)) / pairs
    low, high = centre - Z_95 * spread, centre + Z_95 * spread
    return Estimate(value, max(-1.0, min(low, value)), min(1.0, max(high, value)))


def _tried_once(outcomes: Sequence[float]) -> bool:
    return all(outcome in (0, 1) for outcome in outcomes)


def mcnemar(gained: int, lost: int) -> float:
    """The chance that pairs which differ would split as unevenly if neither were better.

    McNemar's exact test; with several tries of a task it is the sign test over tasks.
    """
    differing = gained + lost
    tail = sum(math.comb(differing, count) for count in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**differing))


def mean(numbers: Iterable[float | None]) -> float | None:
    """The mean; None for no numbers, and as soon as one of them is unknown."""
    found = list(numbers)
    if not found or any(number is None for number in found):
        return None
    return math.fsum(number for number in found if number is not None) / len(found)


def quantile(numbers: Iterable[float], share: float) -> float | None:
    """The number below which that share of them lies; None for no numbers."""
    ordered = sorted(numbers)
    return _between(ordered, share) if ordered else None


def _between(ordered: Sequence[float], share: float) -> float:
    """What stands at that share of the way, between two neighbours in proportion."""
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
