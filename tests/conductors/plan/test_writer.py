from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.conductors.plan import PlanLayout, parse, write, write_acceptance
from podium.core.errors import UnknownWorker
from podium.core.pool import Pool
from podium.core.workflow import Step, Workflow


def test_a_plan_is_written_as_three_lists_one_on_each_line(pool: Pool) -> None:
    workflow = Workflow(
        (
            Step("gpt-5", 'Plan the "proof"'),
            Step("gemini-2.5-pro", "Prüfe\nalles", access="all"),
            Step("gpt-5", "Join", access=(0, 1)),
        )
    )
    assert write(workflow, pool) == (
        "model_id = [2, 0, 2]\n"
        'subtasks = ["Plan the \\"proof\\"", "Prüfe\\nalles", "Join"]\n'
        'access_list = [[], ["all"], [0, 1]]'
    )


def test_in_the_step_form_the_worker_follows_the_subtask(pool: Pool) -> None:
    workflow = Workflow((Step("gpt-5", "Plan"), Step("gemini-2.5-pro", "Do it", access="all")))
    assert write(workflow, pool, layout="step-by-step") == (
        '{"steps": [{"subtask": "Plan", "worker": 2, "access": []}, '
        '{"subtask": "Do it", "worker": 0, "access": ["all"]}]}'
    )


def test_acceptance_is_a_plan_without_steps(pool: Pool) -> None:
    assert write_acceptance() == "model_id = []\nsubtasks = []\naccess_list = []"
    assert write_acceptance("step-by-step") == '{"steps": []}'
    for text in (write_acceptance(), write_acceptance("step-by-step")):
        assert parse(text, pool, strict=True, may_accept=True).workflow is None


@settings(max_examples=300)
@given(data=st.data())
def test_written_records_are_read_back(
    data: st.DataObject, workflows: st.SearchStrategy[Workflow], pool: Pool
) -> None:
    workflow = data.draw(workflows)
    thoughts = data.draw(st.sampled_from(["", 'It\'s a "hard" one [1].\n', "<think>hm</think>\n"]))
    written = write(workflow, pool, layout=data.draw(st.sampled_from(get_args(PlanLayout))))
    parsed = parse(thoughts + written, pool, strict=True, may_accept=True)
    assert parsed.workflow == workflow
    assert parsed.warnings == ()


def test_a_worker_outside_the_pool_cannot_be_written(pool: Pool) -> None:
    with pytest.raises(UnknownWorker):
        write(Workflow((Step("nobody", "Answer"),)), pool)
