from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random
from typing import Any

import pytest

from podium.conductors import plan
from podium.core.workflow import Shape, Step, Workflow
from podium_lab.etudes import FAMILIES, ROLES, EtudeShape
from podium_lab.etudes.etude import Etudes
from podium_lab.etudes.plan_examples import (
    SHAPES,
    ExampleSettings,
    PlanExample,
    make_plan_examples,
    random_access,
)
from podium_lab.etudes.tasks import everyday_questions
from podium_lab.etudes.workers import descriptions


def examples(seed: int, count: int, **settings: Any) -> list[PlanExample]:
    return list(islice(make_plan_examples(seed, ExampleSettings(**settings)), count))


@pytest.fixture(scope="module")
def sample() -> list[PlanExample]:
    return list(islice(make_plan_examples(7), 1500))


def workflow_of(opening: PlanExample) -> Workflow:
    parsed = plan.parse(opening.plan, opening.context.pool, strict=True)
    assert parsed.workflow is not None
    assert not parsed.warnings
    return parsed.workflow


def test_every_opening_is_well_formed(sample: list[PlanExample]) -> None:
    for opening in sample:
        workflow_of(opening).check(opening.context.pool.names)


def test_plans_reveal_nothing_about_skills() -> None:
    steps = [
        step
        for opening in examples(8, 1500, drop=0.0, correct_split_share=1.0)
        for step in workflow_of(opening).steps
        if "Esperanto" in step.subtask
    ]
    by_its_worker = sum(step.worker == "translation" for step in steps)
    assert by_its_worker / len(steps) == pytest.approx(1 / len(ROLES), abs=0.05)


def test_joins_and_trees_are_as_frequent_as_chains(sample: list[PlanExample]) -> None:
    shapes = Counter(workflow.shape for workflow in map(workflow_of, sample) if len(workflow) > 2)
    branching = shapes[Shape.JOIN] + shapes[Shape.TREE] + shapes[Shape.MIXED]
    assert branching > shapes[Shape.CHAIN] > 0
    assert min(shapes[Shape.JOIN], shapes[Shape.TREE]) > 0.1 * shapes.total()


def test_the_whole_question_often_goes_to_one_worker_unaltered(sample: list[PlanExample]) -> None:
    whole = [
        opening
        for opening in sample
        if [step.subtask for step in workflow_of(opening).steps] == [opening.context.question]
    ]
    assert 0.25 < len(whole) / len(sample) < 0.5


def test_pools_are_shuffled_and_differ_in_size(sample: list[PlanExample]) -> None:
    sizes = {len(opening.context.pool) for opening in sample}
    assert len(sizes) > 4
    workers = Counter(workflow_of(opening).steps[0].worker for opening in sample)
    assert set(workers) == set(ROLES) > set(FAMILIES)


def test_a_plan_is_written_in_the_order_that_is_asked_for() -> None:
    (usual,), (other,) = examples(7, 1), examples(7, 1, layout="lists")
    assert usual.plan.startswith('{"steps": ')
    assert other.plan.startswith("model_id = ")
    assert workflow_of(usual) == workflow_of(other)


def test_openings_are_repeatable(sample: list[PlanExample]) -> None:
    assert list(islice(make_plan_examples(7), 50)) == sample[:50]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_random_access_is_always_valid(length: int) -> None:
    rng = Random(9)
    drawn = [random_access(rng, length) for _ in range(100)]
    workflows = [Workflow(tuple(Step("w", "s", access) for access in draw)) for draw in drawn]
    assert {len(workflow) for workflow in workflows} == {length}
    assert len({workflow.shape for workflow in workflows}) >= min(length, 3)


def test_an_assigned_question_names_the_workers_and_the_plan_obeys() -> None:
    in_the_pools_words = steps = 0
    for opening in examples(9, 400, assigned_share=1.0, everyday_share=0.0):
        assert opening.is_assigned
        question, pool = opening.context.question, opening.context.pool
        for worker in pool:
            assert worker.description in descriptions(worker.name, "train", composed=False)
        for step in workflow_of(opening).steps:
            assert step.subtask in question
            lines = descriptions(step.worker, "train", composed=False)
            assert any(words in question for words in lines)
            in_the_pools_words += pool[step.worker].description in question
            steps += 1
    assert 0.4 < in_the_pools_words / steps < 0.75


def test_an_assigned_worker_is_anyone_and_its_clause_says_nothing_of_it() -> None:
    sample = examples(10, 1000, assigned_share=1.0, everyday_share=0.0, drop=0.0)
    steps = [step for opening in sample for step in workflow_of(opening).steps]
    assert Counter(step.worker for step in steps).keys() == set(ROLES)
    esperanto = [step for step in steps if "Esperanto" in step.subtask]
    by_its_worker = sum(step.worker == "translation" for step in esperanto)
    assert by_its_worker / len(esperanto) == pytest.approx(1 / len(ROLES), abs=0.05)


def test_an_everyday_question_goes_to_anyone_as_it_is() -> None:
    sample = list(islice(make_plan_examples(11, ExampleSettings(everyday_share=1.0)), 300))
    for opening in sample:
        assert opening.context.question in everyday_questions("train")
        (step,) = workflow_of(opening).steps
        assert step.subtask == opening.context.question
    assert {workflow_of(opening).steps[0].worker for opening in sample} == set(ROLES)


def test_the_shares_of_the_kinds_are_parameters(sample: list[PlanExample]) -> None:
    questions = [opening.context.question for opening in sample]
    assert sum(question in everyday_questions("train") for question in questions) / len(
        sample
    ) == pytest.approx(ExampleSettings().everyday_share, abs=0.03)
    assigned = sum(opening.is_assigned for opening in sample)
    assert assigned / len(sample) == pytest.approx(ExampleSettings().assigned_share, abs=0.04)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape is not EtudeShape.ONE])
def test_every_shape_has_plans_with_its_true_clauses_and_access(shape: EtudeShape) -> None:
    """With the right workers, these would be right: reward has something to find."""
    plain = examples(12, 200, shapes={shape: 1.0}, assigned_share=0.0, everyday_share=0.0)
    shapes = Counter(workflow_of(opening).shape for opening in plain)
    wanted = Etudes(0).sample(1, {shape: 1.0})[0].own_plan.shape
    assert shapes[wanted] > 0.25 * 200


def test_true_clauses_and_true_access_are_parameters() -> None:
    def lengths(correct_split_share: float) -> list[int]:
        sample = make_plan_examples(
            8,
            ExampleSettings(
                correct_split_share=correct_split_share, assigned_share=0.0, everyday_share=0.0
            ),
        )
        return [len(workflow_of(opening)) for opening in islice(sample, 1000)]

    assert lengths(1.0).count(1) / 1000 == pytest.approx(SHAPES[EtudeShape.ONE], abs=0.04)
    assert lengths(0.0) != lengths(0.5) != lengths(1.0)
    only = {EtudeShape.JOIN_3: 1.0}
    joins = make_plan_examples(
        8,
        ExampleSettings(
            shapes=only, correct_split_share=1.0, correct_access_share=1.0, everyday_share=0.0
        ),
    )
    assert {workflow_of(opening).shape for opening in islice(joins, 50)} == {Shape.JOIN}
