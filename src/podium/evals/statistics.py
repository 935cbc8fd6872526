"""Statistics of tables: shares with intervals, paired differences, means, quantiles.

An outcome is the share of right samples of one task. Samples of one task are not independent, so
intervals and tests are always over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final

Z_95: Final = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""

RESAMPLES: Final = 2_000
"""Resamples of the bootstrap."""

FEW: Final = 20
"""The bootstrap is not used for fewer numbers."""

DIGITS: Final = 6
"""Decimal places of written figures."""


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A share, or a difference of shares, with its 95 % interval."""

    value: float
    low: float
    high: float

    def document(self) -> dict[str, float]:
        """Return the estimate as JSON."""
        return {name: round_figure(getattr(self, name)) for name in ("value", "low", "high")}


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The difference of two accuracies on the same tasks.

    `gained` counts tasks that only the first got right, `lost` those that only the second did;
    `p_value` is McNemar's, exact and two-sided.
    """

    share: IntervalEstimate
    gained: int
    lost: int
    p_value: float


def round_figure(number: float) -> float:
    """Round a figure for output and for comparison with a threshold."""
    return round(number, DIGITS)


def wilson(successes: float, trials: int) -> IntervalEstimate:
    """Return a share with Wilson's score interval, which also holds near 0 and 1.

    Without trials the share is 0 and the interval 0 to 1. `successes` may be a sum of shares:
    these vary less than trials, so the interval holds.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials cannot be")
    if trials == 0:
        return IntervalEstimate(0.0, 0.0, 1.0)
    value = successes / trials
    weight = Z_95**2 / trials
    centre = (value + weight / 2) / (1 + weight)
    reach = Z_95 / (1 + weight) * math.sqrt(value * (1 - value) / trials + weight / (4 * trials))
    low = 0.0 if successes == 0 else centre - reach
    high = 1.0 if successes == trials else centre + reach
    return IntervalEstimate(value, low, high)


def estimate_share(outcomes: Iterable[float]) -> IntervalEstimate:
    """Return the mean outcome, with Wilson's interval for single samples or few tasks, else with a
    bootstrap interval over tasks."""
    found = list(outcomes)
    if _is_binary(found):
        return wilson(round(sum(found)), len(found))
    return wilson(math.fsum(found), len(found)) if len(found) < FEW else bootstrap(found)


def bootstrap(numbers: Sequence[float]) -> IntervalEstimate:
    """Return the mean with a bootstrap percentile interval; the order of the numbers is ignored."""
    if not numbers:
        raise ValueError("the mean of no numbers cannot be; give at least one")
    return _resampled(tuple(sorted(numbers)))


@lru_cache(maxsize=512)
def _resampled(numbers: tuple[float, ...]) -> IntervalEstimate:
    """Resample; cached because tables use the same figure several times."""
    count = len(numbers)
    rng = Random(count)  # noqa: S311 - repeatable
    means = sorted(math.fsum(rng.choices(numbers, k=count)) / count for _ in range(RESAMPLES))
    value = math.fsum(numbers) / count
    low, high = _between(means, 0.025), _between(means, 0.975)
    return IntervalEstimate(value, min(low, value), max(high, value))


def paired_difference(one: Sequence[float], other: Sequence[float]) -> PairedDifference:
    """Return how much more often `one` is right than `other`, task by task.

    The interval is Agresti and Min's: Wald's for matched pairs, with half a pair added to each
    of the four cells, which helps if few pairs differ. For repeated tasks, unless they are few,
    it is a bootstrap interval.
    """
    if len(one) != len(other):
        raise ValueError(f"{len(one)} and {len(other)} outcomes are not of the same tasks")
    differences = [a - b for a, b in zip(one, other, strict=True)]
    gained = sum(difference > 0 for difference in differences)
    lost = sum(difference < 0 for difference in differences)
    is_binary = _is_binary(one) and _is_binary(other)
    share = (
        _matched_pairs(differences)
        if is_binary or len(differences) < FEW
        else bootstrap(differences)
    )
    return PairedDifference(share, gained, lost, mcnemar(gained, lost))


def _matched_pairs(differences: Sequence[float]) -> IntervalEstimate:
    """Compute the interval: the added half pairs keep the sum and add one to the squares."""
    total = math.fsum(differences)
    pairs = len(differences) + 2.0
    squares = math.fsum(difference**2 for difference in differences) + 1.0
    value, centre = total / len(differences) if differences else 0.0, total / pairs
    spread = math.sqrt(max(0.0, squares - total**2 / pairs)) / pairs
    low, high = centre - Z_95 * spread, centre + Z_95 * spread
    return IntervalEstimate(value, max(-1.0, min(low, value)), min(1.0, max(high, value)))


def _is_binary(outcomes: Sequence[float]) -> bool:
    return all(outcome in (0, 1) for outcome in outcomes)


def mcnemar(gained: int, lost: int) -> float:
    """Return the p-value of McNemar's exact test; for repeated tasks, of the sign test."""
    differing = gained + lost
    tail = sum(math.comb(differing, count) for count in range(min(gained, lost) + 1))
    return min(1.0, float(2 * tail / 2**differing))


def mean(numbers: Iterable[float | None]) -> float | None:
    """Return the mean; None without numbers or if one is unknown."""
    found = list(numbers)
    if not found or any(number is None for number in found):
        return None
    return math.fsum(number for number in found if number is not None) / len(found)


def quantile(numbers: Iterable[float], share: float) -> float | None:
    """Return a quantile; None without numbers."""
    ordered = sorted(numbers)
    return _between(ordered, share) if ordered else None


def _between(ordered: Sequence[float], share: float) -> float:
    """Interpolate between neighbours."""
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
