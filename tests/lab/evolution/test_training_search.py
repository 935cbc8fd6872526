"""The search by itself, over parameters that mean nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("cmaes")

from podium_lab.evolution.training import SeparableCma, Vector, default_population

START = np.zeros(40)
GOAL = np.linspace(-1, 1, 40)


def nearness(candidate: Vector) -> float:
    return -float(np.sum((candidate - GOAL) ** 2))


def searched(
    search: SeparableCma, steps: int, reward: Callable[[Vector], float] = nearness
) -> list[list[float]]:
    values = []
    for _ in range(steps):
        values.append([reward(candidate) for candidate in search.ask()])
        search.tell(values[-1])
    return values


def beginning(seed: int = 42) -> SeparableCma:
    return SeparableCma(START, sigma=0.3, population=12, seed=seed)


def test_search_improves_on_the_start() -> None:
    search = beginning()
    searched(search, 60)
    assert nearness(search.mean) > nearness(START)


def test_replayed_rewards_restore_a_search() -> None:
    whole = beginning()
    result = searched(whole, 3)
    again = beginning()
    for rewards in result:
        again.ask()
        again.tell(rewards)
    assert np.array_equal(again.mean, whole.mean)
    assert np.array_equal(again.ask(), whole.ask())


def test_another_seed_is_another_search() -> None:
    one, other = beginning(), beginning(seed=43)
    assert not np.array_equal(one.ask(), other.ask())


def test_candidates_lie_as_far_apart_as_sigma_says() -> None:
    search = beginning()
    candidates = np.array(search.ask())
    assert search.sigma == pytest.approx(0.3, rel=0.1)
    assert candidates.std() == pytest.approx(0.3, rel=0.1)


def test_the_start_is_not_changed() -> None:
    searched(beginning(), 3)
    assert not START.any()


@pytest.mark.parametrize(("parameters", "population"), [(10_240, 32), (6_912, 31), (19_456, 34)])
def test_the_default_population_grows_with_the_logarithm(parameters: int, population: int) -> None:
    assert default_population(parameters) == population
