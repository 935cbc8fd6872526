from __future__ import annotations

import json

from podium.conductors import plan
from podium.core.pool import Pool, WorkerProfile
from podium_lab.etudes import FAMILIES, EtudeShape
from podium_lab.etudes.etude import Etude

NAMES = tuple(FAMILIES)


def test_in_a_row_every_subtask_is_a_piece_of_the_question_in_order(etudes: list[Etude]) -> None:
    rows = [etude for etude in etudes if etude.style == "sequence"]
    assert rows
    for etude in rows:
        position = 0
        for step in etude.steps:
            found = etude.question.find(step.subtask, position)
            assert found >= 0, (etude.question, step.subtask)
            position = found + len(step.subtask)


def test_innermost_nested_phrases_are_pieces_of_the_question(
    etudes: list[Etude],
) -> None:
    nested = [etude for etude in etudes if etude.style == "nested"]
    assert {etude.shape for etude in nested} >= {
        EtudeShape.CHAIN_2,
        EtudeShape.CHAIN_3,
        EtudeShape.JOIN_2,
        EtudeShape.JOIN_3,
        EtudeShape.JOIN_STEP,
        EtudeShape.CHAIN_JOIN,
    }
    for etude in nested:
        for step in etude.steps:
            assert ("result" in step.subtask) is bool(step.reads), step.subtask
            if not step.reads:
                assert step.subtask.casefold() in etude.question.casefold()


def test_nested_phrases_come_with_and_without_brackets(etudes: list[Etude]) -> None:
    questions = [etude.question for etude in etudes if etude.style == "nested"]
    bracketed = sum("(" in question or "[" in question for question in questions)
    assert 0.2 < bracketed / len(questions) < 0.9


def test_questions_need_no_escapes_in_a_plan(etudes: list[Etude]) -> None:
    for etude in etudes:
        for step in etude.steps:
            assert json.dumps(step.subtask, ensure_ascii=False) == f'"{step.subtask}"'


def test_ideal_plans_are_well_formed_and_short(etudes: list[Etude]) -> None:
    pool = Pool(tuple(WorkerProfile(name=name) for name in NAMES))
    for etude in etudes:
        text = plan.write(etude.own_plan, pool)
        assert plan.parse(text, pool, strict=True).workflow == etude.own_plan
        assert len(text) < 550, text


def test_questions_begin_with_a_capital_a_figure_or_a_name(etudes: list[Etude]) -> None:
    for etude in etudes:
        assert not etude.question[0].islower(), etude.question
