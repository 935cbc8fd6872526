"""Samples of études that several test files look at."""

from __future__ import annotations

import pytest

from podium_lab.etudes import EtudeShape
from podium_lab.etudes.composition import SPLITS
from podium_lab.etudes.etude import Etude, Etudes

LARGE = 2_000


@pytest.fixture(scope="session")
def train() -> list[Etude]:
    return Etudes(3, "train").sample(LARGE)


@pytest.fixture(scope="session")
def test() -> list[Etude]:
    return Etudes(3, "test").sample(LARGE // 4)


@pytest.fixture(scope="session")
def etudes(train: list[Etude], test: list[Etude]) -> list[Etude]:
    """Études of both splits and of every shape."""
    longest = Etudes(3, "test").sample(100, {EtudeShape.CHAIN_5: 1.0})
    every = [*train, *test, *longest]
    assert {etude.shape for etude in every} == set(EtudeShape)
    assert {etude.split for etude in every} == set(SPLITS)
    return every
