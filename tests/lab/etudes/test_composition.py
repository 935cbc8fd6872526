from __future__ import annotations

from random import Random

import pytest

from podium_lab.etudes import EtudeShape, Split
from podium_lab.etudes.composition import (
    SKELETONS,
    SPLITS,
    Operation,
    compose_operations,
    signature,
    try_operations,
)
from podium_lab.etudes.skills import SKILLS
from podium_lab.etudes.values import number


@pytest.mark.parametrize("shape", EtudeShape)
@pytest.mark.parametrize("split", SPLITS)
def test_every_answer_follows_from_its_arguments(shape: EtudeShape, split: Split) -> None:
    rng = Random(1)
    for _ in range(30):
        operations = compose_operations(rng, split, shape)
        branches, after = SKELETONS[shape]
        assert len(operations) == sum(branches) + (len(branches) > 1) + after
        for operation in operations:
            assert operation.skill.solve(operation.arguments) == operation.answer
            for value, source in zip(operation.arguments, operation.sources, strict=True):
                if source is not None:
                    assert operations[source].answer == value


def test_every_skill_occurs_in_every_part_that_it_can_play() -> None:
    rng = Random(2)
    seen: set[tuple[str, int]] = set()
    for _ in range(400):
        for shape in EtudeShape:
            for operation in compose_operations(rng, "train", shape):
                seen.add((operation.skill.name, len(operation.reads)))
    for skill in SKILLS.values():
        parts = {reads for name, reads in seen if name == skill.name}
        expected = {0} if skill.leaf else set[int]()
        expected |= {1} if skill.refers else set()
        assert parts == expected | set(skill.joins), skill.name


@pytest.mark.parametrize("name", SKILLS)
def test_a_question_can_be_made_to_end_in_any_skill(name: str) -> None:
    skill = SKILLS[name]
    shape = EtudeShape.CHAIN_2 if skill.refers else EtudeShape.ONE
    shape = shape if skill.leaf else EtudeShape.JOIN_2
    assert compose_operations(Random(3), "train", shape, last=skill)[-1].skill is skill


def test_impossible_demands_are_given_up() -> None:
    roman = SKILLS["from_roman"]
    assert try_operations(Random(4), "train", EtudeShape.CHAIN_2, last=roman, tries=50) is None
    assert try_operations(Random(4), "train", EtudeShape.JOIN_STEP, last=roman, tries=50) is None


def test_an_earlier_result_among_literals_is_as_often_the_answer_as_not() -> None:
    rng = Random(5)
    wins = 0
    for _ in range(300):
        *_, last = compose_operations(rng, "train", EtudeShape.CHAIN_2, last=SKILLS["largest"])
        wins += last.answer == last.arguments[0]
    assert 100 < wins < 220


def test_signatures_differ_by_operations_arguments_and_order() -> None:
    def operation(name: str, one: int, other: int) -> Operation:
        return Operation(SKILLS[name], (number(one), number(other)), (None, None), number(0))

    sum_, difference = operation("add", 1, 2), operation("subtract", 1, 2)
    asked = [[sum_], [difference], [sum_, difference], [difference, sum_], [operation("add", 2, 1)]]
    assert len({signature(operations) for operations in asked}) == len(asked)
