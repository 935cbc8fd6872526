from __future__ import annotations

from random import Random

import pytest

from podium.core.errors import UsageError
from podium_lab.etudes import GENERALIST, MISLEADING, ROLES
from podium_lab.etudes.skills import FAMILIES
from podium_lab.etudes.values import read_table
from podium_lab.etudes.workers import descriptions, pool_profiles

MODELS = {role: f"adapter-{role}" for role in ROLES}


def test_a_pool_has_every_worker_described_and_its_question_withheld() -> None:
    pool = pool_profiles(Random(1), MODELS)
    assert set(pool.names) == set(ROLES)
    assert not pool.share_question
    assert pool.mask_names
    for worker in pool:
        assert worker.model == f"adapter-{worker.name}"
        assert worker.description in descriptions(worker.name, "train")


def test_the_order_and_the_descriptions_change_from_pool_to_pool() -> None:
    rng = Random(2)
    pools = [pool_profiles(rng, MODELS) for _ in range(120)]
    assert len({pool.names for pool in pools}) > 105
    assert {pool.index("facts") for pool in pools} == set(range(len(ROLES)))
    assert len({pool["facts"].description for pool in pools}) >= 6


def test_workers_are_left_out_unless_they_are_to_be_kept() -> None:
    rng = Random(3)
    pools = [pool_profiles(rng, MODELS, keep=("words", "codes"), drop=0.7) for _ in range(60)]
    assert all({"words", "codes"} <= set(pool.names) for pool in pools)
    assert 2 <= min(len(pool) for pool in pools) < max(len(pool) for pool in pools)


def test_a_pool_is_never_empty() -> None:
    assert len(pool_profiles(Random(4), MODELS, drop=1.0)) == 1


def test_descriptions_for_testing_are_used_when_asked_for() -> None:
    pool = pool_profiles(Random(5), {GENERALIST: "base", MISLEADING: "base"}, split="test")
    for worker in pool:
        assert worker.description in descriptions(worker.name, "test")


@pytest.mark.parametrize("family", FAMILIES)
def test_training_knows_hundreds_of_descriptions_of_a_specialist(family: str) -> None:
    train = descriptions(family, "train")
    assert len(train) == len(set(train)) > 300
    assert set(train).isdisjoint(descriptions(family, "test"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_composed_description_names_more_than_half_of_the_skills(family: str) -> None:
    parts = read_table("trades.toml")[family]["parts"]
    lines = descriptions(family, "train")[-300:]
    values = [sum(any(way in line for way in ways) for ways in parts) for line in lines]
    assert min(values) > len(parts) // 2
    assert max(values) == len(parts)


def test_no_two_specialists_do_the_same() -> None:
    table = read_table("trades.toml")
    ways = [way for family in FAMILIES for part in table[family]["parts"] for way in part]
    assert len(ways) == len(set(ways))


def test_an_unknown_role_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="'cook'; there is arithmetic"):
        pool_profiles(Random(6), {"cook": "base"})
