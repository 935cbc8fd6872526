from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest

from podium import plan
from podium.etudes import FAMILIES, ROLES, EtudeShape, Opening, openings
from podium.etudes.openings import SHAPES, random_access
from podium.workflow import Shape, Step, Workflow


@pytest.fixture(scope="module")
def sample() -> list[Opening]:
    return list(islice(openings(7), 1500))


def workflow_of(opening: Opening) -> Workflow:
    parsed = plan.parse(opening.plan, opening.situation.pool, strict=True)
    assert parsed.workflow is not None
    assert not parsed.warnings
    return parsed.workflow


def test_every_opening_is_well_formed(sample: list[Opening]) -> None:
    for opening in sample:
        workflow_of(opening).check(opening.situation.pool.names)


def test_plans_say_nothing_of_who_can_do_what() -> None:
    steps = [
        step
        for opening in islice(openings(8, drop=0.0, true_clauses=1.0), 1000)
        for step in workflow_of(opening).steps
        if "Esperanto" in step.subtask
    ]
    by_its_worker = sum(step.worker == "translation" for step in steps)
    assert by_its_worker / len(steps) == pytest.approx(1 / len(ROLES), abs=0.05)


def test_joins_and_trees_are_as_frequent_as_chains(sample: list[Opening]) -> None:
    shapes = Counter(workflow.shape for workflow in map(workflow_of, sample) if len(workflow) > 2)
    branching = shapes[Shape.JOIN] + shapes[Shape.TREE] + shapes[Shape.MIXED]
    assert branching > shapes[Shape.CHAIN] > 0
    assert min(shapes[Shape.JOIN], shapes[Shape.TREE]) > 0.1 * shapes.total()


def test_the_whole_question_often_goes_to_one_worker_unaltered(sample: list[Opening]) -> None:
    whole = [
        opening
        for opening in sample
        if [step.subtask for step in workflow_of(opening).steps] == [opening.situation.question]
    ]
    assert 0.25 < len(whole) / len(sample) < 0.5


def test_pools_are_shuffled_and_differ_in_size(sample: list[Opening]) -> None:
    sizes = {len(opening.situation.pool) for opening in sample}
    assert len(sizes) > 4
    workers = Counter(workflow_of(opening).steps[0].worker for opening in sample)
    assert set(workers) == set(ROLES) > set(FAMILIES)


def test_openings_are_repeatable(sample: list[Opening]) -> None:
    assert list(islice(openings(7), 50)) == sample[:50]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_random_access_is_always_valid(length: int) -> None:
    rng = Random(9)
    drawn = [random_access(rng, length) for _ in range(100)]
    workflows = [Workflow(tuple(Step("w", "s", access) for access in draw)) for draw in drawn]
    assert {len(workflow) for workflow in workflows} == {length}
    assert len({workflow.shape for workflow in workflows}) >= min(length, 3)


def test_true_clauses_are_about_half_of_the_questions_of_several_steps() -> None:
    def several(true_clauses: float) -> list[int]:
        sample = islice(openings(8, true_clauses=true_clauses), 1000)
        return [len(workflow_of(opening)) for opening in sample]

    assert several(1.0).count(1) / 1000 == pytest.approx(SHAPES[EtudeShape.ONE], abs=0.04)
    assert several(0.0) != several(0.5) != several(1.0)
