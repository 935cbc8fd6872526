"""The search by itself, over parameters that mean nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("cmaes")

from podium.train.schema import Method
from podium_lab.evolution.training import Search, Vector, default_population, start_search

START = np.zeros(40)
GOAL = np.linspace(-1, 1, 40)

both = pytest.mark.parametrize("method", ["cma-es", "random"])


def nearness(candidate: Vector) -> float:
    return -float(np.sum((candidate - GOAL) ** 2))


def searched(
    search: Search, steps: int, reward: Callable[[Vector], float] = nearness
) -> list[list[float]]:
    values = []
    for _ in range(steps):
        values.append([reward(candidate) for candidate in search.ask()])
        search.tell(values[-1])
    return values


def beginning(method: Method = "cma-es", seed: int = 42) -> Search:
    return start_search(method, START, sigma=0.3, population=12, seed=seed)


@both
def test_search_improves_on_the_start(method: Method) -> None:
    search = beginning(method)
    searched(search, 60)
    assert nearness(search.found) > nearness(START)


def test_evolution_finds_more_than_as_many_random_tries() -> None:
    found = []
    methods: list[Method] = ["cma-es", "random"]
    for method in methods:
        search = beginning(method)
        searched(search, 60)
        found.append(nearness(search.found))
    assert found[0] > found[1] / 4  # both are below 0


def test_random_search_keeps_the_best_candidate() -> None:
    search = beginning("random")
    result = searched(search, 5)
    assert nearness(search.found) == max(reward for step in result for reward in step)


@both
def test_replayed_rewards_restore_a_search(method: Method) -> None:
    whole = beginning(method)
    result = searched(whole, 3)
    again = beginning(method)
    for rewards in result:
        again.ask()
        again.tell(rewards)
    assert np.array_equal(again.found, whole.found)
    assert np.array_equal(again.ask(), whole.ask())


@both
def test_another_seed_is_another_search(method: Method) -> None:
    one, other = beginning(method), beginning(method, seed=43)
    assert not np.array_equal(one.ask(), other.ask())


@both
def test_candidates_lie_as_far_apart_as_sigma_says(method: Method) -> None:
    search = beginning(method)
    candidates = np.array(search.ask())
    assert search.sigma == pytest.approx(0.3, rel=0.1)
    assert candidates.std() == pytest.approx(0.3, rel=0.1)


def test_the_start_is_not_changed() -> None:
    searched(beginning(), 3)
    assert not START.any()


@pytest.mark.parametrize(("parameters", "population"), [(10_240, 32), (6_912, 31), (19_456, 34)])
def test_the_default_population_grows_with_the_logarithm(parameters: int, population: int) -> None:
    assert default_population(parameters) == population
