from __future__ import annotations

import json

import pytest

from podium.core.workflow import Step, Workflow
from podium_lab.etudes import FAMILIES, GENERALIST, MISLEADING, Split
from podium_lab.etudes.composition import SPLITS
from podium_lab.etudes.oracle import readings
from podium_lab.etudes.tasks import everyday_questions, is_direct_plan


def test_there_are_many_questions_and_none_twice() -> None:
    train, test = everyday_questions("train"), everyday_questions("test")
    assert len(train) >= 500
    assert len(test) >= 100
    plain = [question.casefold().rstrip(".?! ") for question in (*train, *test)]
    assert len(set(plain)) == len(plain)
    assert "What is the capital of Japan?" in test


@pytest.mark.parametrize("split", SPLITS)
def test_questions_are_not_made_from_one_template(split: Split) -> None:
    openings = [" ".join(question.split()[:3]).casefold() for question in everyday_questions(split)]
    assert len(set(openings)) > 0.6 * len(openings)
    assert max(len(question) for question in everyday_questions(split)) > 80
    assert min(len(question) for question in everyday_questions(split)) < 15


def test_no_everyday_question_is_an_etude() -> None:
    for question in (*everyday_questions("train"), *everyday_questions("test")):
        assert not readings(question), question
        assert "Esperanto" not in question


def test_a_question_needs_no_escapes_in_a_plan() -> None:
    for question in (*everyday_questions("train"), *everyday_questions("test")):
        assert json.dumps(question, ensure_ascii=False) == f'"{question}"'
        assert question == question.strip()


def one_step(worker: str, subtask: str) -> Workflow:
    return Workflow((Step(worker, subtask),))


def test_a_sensible_plan_hands_the_question_to_the_generalist_as_it_is() -> None:
    question = "What is the capital of Japan?"
    assert is_direct_plan(one_step(GENERALIST, question), question)
    assert not is_direct_plan(one_step(GENERALIST, "the capital of Japan"), question)
    assert not is_direct_plan(one_step(MISLEADING, question), question)
    assert not any(is_direct_plan(one_step(family, question), question) for family in FAMILIES)
    twice = Workflow((Step(GENERALIST, question), Step(GENERALIST, question, (0,))))
    assert not is_direct_plan(twice, question)


def test_a_specialist_is_sensible_where_it_knows_the_answer() -> None:
    question = "What is 12 plus 5?"
    assert is_direct_plan(one_step("arithmetic", question), question)
    assert is_direct_plan(one_step(GENERALIST, question), question)
    assert not is_direct_plan(one_step("codes", question), question)
