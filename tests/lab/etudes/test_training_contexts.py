from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from podium_lab.etudes import DEFAULT_SHAPES, GENERALIST, ROLES, EtudeShape
from podium_lab.etudes.etude import Etude
from podium_lab.etudes.plan_examples import ExampleSettings, TrainingContext, make_training_contexts
from podium_lab.etudes.tasks import everyday_questions
from podium_lab.etudes.workers import descriptions


def contexts(seed: int, **settings: Any) -> Iterator[TrainingContext]:
    return make_training_contexts(seed, ExampleSettings(**{"shapes": DEFAULT_SHAPES, **settings}))


@pytest.fixture(scope="module")
def sample() -> list[TrainingContext]:
    return list(islice(contexts(3, everyday_share=0.2, later_round_share=0.2), 600))


def test_shares_are_as_they_were_asked_for(sample: list[TrainingContext]) -> None:
    questions = sum(isinstance(practice.asked, str) for practice in sample)
    later = sum(bool(practice.rounds) for practice in sample)
    assert questions / len(sample) == pytest.approx(0.2, abs=0.05)
    assert later / len(sample) == pytest.approx(0.2, abs=0.05)


def test_questions_are_those_for_training(sample: list[TrainingContext]) -> None:
    for asked, _, _ in sample:
        if isinstance(asked, Etude):
            assert asked.split == "train"
        else:
            assert asked in everyday_questions("train")


def test_needed_workers_are_in_the_pool(sample: list[TrainingContext]) -> None:
    for asked, pool, _ in sample:
        needed = set(asked.families) if isinstance(asked, Etude) else {GENERALIST}
        assert needed <= set(pool.names)
    assert len({len(practice.pool) for practice in sample}) > 3


def test_pools_are_described_in_words_for_training_and_shuffled(
    sample: list[TrainingContext],
) -> None:
    for _, pool, _ in sample:
        for worker in pool:
            assert worker.description in descriptions(worker.name, "train")
    assert {practice.pool.names[0] for practice in sample} == set(ROLES)


def test_shapes_are_as_frequent_as_their_weights_say() -> None:
    shapes = {EtudeShape.JOIN_2: 3.0, EtudeShape.CHAIN_2: 1.0}
    practices = islice(contexts(5, shapes=shapes, everyday_share=0.0, later_round_share=0.3), 400)
    seen = Counter(asked.shape for asked, _, _ in practices if isinstance(asked, Etude))
    assert set(seen) == set(shapes)
    assert seen[EtudeShape.JOIN_2] / 400 == pytest.approx(0.75, abs=0.07)


@pytest.mark.parametrize("later_round_share", [0.0, 1.0])
def test_as_many_are_nested_as_asked_for(later_round_share: float) -> None:
    shapes = {EtudeShape.JOIN_2: 1.0}
    nested = {}
    for share in (0.0, 1.0):
        practices = contexts(
            6,
            shapes=shapes,
            everyday_share=0.0,
            later_round_share=later_round_share,
            nested_phrase_share=share,
        )
        asked = [practice.asked for practice in islice(practices, 100)]
        nested[share] = sum(isinstance(item, Etude) and item.style == "nested" for item in asked)
    assert nested[0.0] == 0
    assert nested[1.0] > 60  # some could be read in two ways, and are lined up


def test_situations_are_repeatable_and_differ_by_seed(sample: list[TrainingContext]) -> None:
    again = contexts(3, everyday_share=0.2, later_round_share=0.2)
    assert list(islice(again, 60)) == sample[:60]
    other = contexts(6, everyday_share=0.2, later_round_share=0.2)
    assert list(islice(other, 60)) != sample[:60]
