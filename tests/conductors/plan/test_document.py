from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.conductors.plan import parse, read_workflow, workflow_document, write
from podium.core.errors import InvalidWorkflow, MalformedPlan
from podium.core.pool import Pool
from podium.core.workflow import Condition, Step, Workflow

DOCUMENT = {
    "steps": [
        {"worker": "gpt-5", "subtask": "Plan", "access": []},
        {"worker": "qwen3-32b", "subtask": "Check", "access": [0]},
        {"worker": "gpt-5", "subtask": "Write", "access": "all"},
    ]
}
WORKFLOW = Workflow(
    (
        Step("gpt-5", "Plan"),
        Step("qwen3-32b", "Check", access=(0,)),
        Step("gpt-5", "Write", access="all"),
    )
)


def test_a_workflow_file_names_its_workers() -> None:
    assert read_workflow(DOCUMENT) == WORKFLOW
    assert workflow_document(WORKFLOW) == DOCUMENT


def test_a_workflow_file_may_give_ids_where_there_is_a_pool(pool: Pool) -> None:
    document = {"steps": [{"worker": 2, "subtask": "Plan", "access": []}]}
    assert read_workflow(document, pool) == Workflow((Step("gpt-5", "Plan"),))
    with pytest.raises(MalformedPlan, match="without a pool there are no ids: name the worker"):
        read_workflow(document)


def test_a_pool_that_masks_names_is_shown_ids(pool: Pool) -> None:
    masked = replace(pool, mask_names=True)
    document = workflow_document(WORKFLOW, masked)
    assert [step["worker"] for step in document["steps"]] == [2, 3, 2]
    assert read_workflow(document, masked) == WORKFLOW


@given(data=st.data())
def test_every_workflow_survives_its_document(
    data: st.DataObject, workflows: st.SearchStrategy[Workflow], pool: Pool
) -> None:
    workflow = data.draw(workflows)
    text = json.dumps(workflow_document(workflow))
    assert read_workflow(json.loads(text)) == workflow
    assert parse(text, pool, strict=True, may_accept=True).workflow == workflow


def test_a_name_is_preferred_to_an_id_that_looks_like_it(pool: Pool) -> None:
    renamed = Pool((replace(pool.workers[0], name="1"), *pool.workers[1:]))
    document = {"steps": [{"worker": "1", "subtask": "Plan", "access": []}]}
    assert read_workflow(document, renamed) == Workflow((Step("1", "Plan"),))


def step(**changes: object) -> dict[str, object]:
    return {"steps": [{"worker": "gpt-5", "subtask": "Plan", "access": [], **changes}]}


REFUSED: dict[str, tuple[object, str]] = {
    "a list": ([], 'plan: a workflow is an object {"steps": [...]}; write one'),
    "a misspelt key": (
        {**DOCUMENT, "stepz": []},
        "plan: there is no key 'stepz' in a workflow; it has question, routing, reasoning, steps",
    ),
    "no steps": ({}, 'steps: the list of steps is missing; write "steps": [...]'),
    "steps in words": (
        {"steps": "all"},
        'steps: the list of steps is missing; write "steps": [...]',
    ),
    "an empty list of steps": ({"steps": []}, "steps: the list is empty; write at least one step"),
    "an unknown worker": (
        step(worker="gpt-4"),
        "steps: the worker of step 0 is 'gpt-4'; write the id of a worker, a whole number from 0 "
        "to 3, or a name: gemini-2.5-pro, claude-sonnet-4, gpt-5, qwen3-32b",
    ),
    "a worker that is true": (
        step(worker=True),
        "steps: the worker of step 0 is True; write the id of a worker, a whole number from 0 "
        "to 3, or a name: gemini-2.5-pro, claude-sonnet-4, gpt-5, qwen3-32b",
    ),
    "an empty subtask": (
        step(subtask=""),
        "steps: the subtask of step 0 is ''; say in words what the worker must do",
    ),
    "forward access": (
        step(access=[1]),
        "steps: the access of step 0 is [1]; the first step has no earlier ones to read: write []",
    ),
    "a key too many": (
        step(note="x"),
        "steps: step 0 has a key 'note', and a step has only worker, subtask, access, if",
    ),
}


@pytest.mark.parametrize(("document", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_document_that_is_no_workflow_is_refused(
    document: object, message: str, pool: Pool
) -> None:
    with pytest.raises(MalformedPlan) as caught:
        read_workflow(document, pool)
    assert str(caught.value) == message


def test_a_file_is_not_tidied_behind_its_authors_back() -> None:
    steps = [{"worker": "a", "subtask": "s", "access": access} for access in ([], [], [1, 0])]
    with pytest.raises(MalformedPlan, match="in ascending order"):
        read_workflow({"steps": steps})


def test_reasoning_may_stand_beside_the_steps() -> None:
    assert read_workflow({"reasoning": "Because.", **DOCUMENT}) == WORKFLOW


def test_a_condition_is_read_and_written(pool: Pool) -> None:
    workflow = Workflow(
        (Step("gpt-5", "a"), Step("claude-sonnet-4", "b", (), Condition("failed", (0,))))
    )
    document = workflow_document(workflow)
    assert document["steps"][1]["if"] == "failed 0"
    assert read_workflow(document, pool) == workflow
    text = write(workflow, pool, layout="step-by-step")
    assert parse(text, pool, strict=True).workflow == workflow


def test_the_three_lists_have_no_place_for_a_condition(pool: Pool) -> None:
    workflow = Workflow((Step("gpt-5", "a"), Step("gpt-5", "b", (), Condition("failed", (0,)))))
    with pytest.raises(InvalidWorkflow, match="write step by step"):
        write(workflow, pool)


@pytest.mark.parametrize("condition", ["failed 1", "differs 0", 0, ["failed", 0], "always"])
def test_a_condition_of_another_form_is_refused(condition: object, pool: Pool) -> None:
    steps = [
        {"worker": 0, "subtask": "a", "access": []},
        {"worker": 0, "subtask": "b", "access": [], "if": condition},
    ]
    with pytest.raises(MalformedPlan, match="the condition of step 1 is .*write"):
        read_workflow({"steps": steps}, pool)
