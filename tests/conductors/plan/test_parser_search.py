from __future__ import annotations

import pytest

from podium.conductors.plan.parser import find
from podium.core.errors import MalformedPlan

DRAFT = 'model_id = [0]\nsubtasks = ["draft"]\naccess_list = [[]]\n'
FINAL = 'model_id = [1]\nsubtasks = ["final"]\naccess_list = [[]]\n'
SUBTASKS_FIRST = 'subtasks = ["final"]\nmodel_id = [1]\naccess_list = [[]]\n'
JSON = '{"steps": [{"worker": 1, "subtask": "json", "access": []}]}\n'

LISTS_OF_FINAL = {"model_id": [1], "subtasks": ["final"], "access_list": [[]]}
STEPS_OF_JSON = {"steps": [{"worker": 1, "subtask": "json", "access": []}]}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(DRAFT + "No, better so:\n" + FINAL, id="a draft before it"),
        pytest.param(JSON + FINAL, id="a draft in JSON before it"),
        pytest.param("The access list: [] or [0]?\n" + FINAL, id="a label in the thoughts"),
        pytest.param("access_list = [[]]\n" + FINAL, id="a list out of place before it"),
        pytest.param("model_id = [0]\n" + FINAL, id="a first version of its first list"),
        pytest.param('model_id = [0]\nsubtasks = ["x"]\n' + FINAL, id="half a draft"),
        pytest.param(DRAFT + SUBTASKS_FIRST, id="a draft in the other order"),
        pytest.param("model_id = [0]\n" + SUBTASKS_FIRST, id="ids before the subtasks"),
        pytest.param(SUBTASKS_FIRST + "model_id = [0]\n", id="ids once more after it"),
        pytest.param('subtasks = ["I give up\n' + FINAL, id="a string that never ends"),
        pytest.param("model_id = [0, [1, (\n" + FINAL, id="a list that never ends"),
        pytest.param(FINAL + "access_list = [[0]]\n", id="a last list once more"),
        pytest.param(FINAL + 'model_id = [0]\nsubtasks = ["x', id="a plan cut short after it"),
        pytest.param(f"<think>{DRAFT}</think>{FINAL}", id="a draft in a think block"),
        pytest.param(f"{FINAL}<think>{DRAFT}</think>", id="a think block after it"),
        pytest.param(f"<THINKING>{DRAFT}</Thinking>{FINAL}", id="thinking in capitals"),
        pytest.param(f"<think>{DRAFT}<think>{FINAL}", id="think blocks that never end"),
    ],
)
def test_the_plan_is_the_last_complete_one(text: str) -> None:
    assert find(text).lists == LISTS_OF_FINAL


@pytest.mark.parametrize(
    "text",
    [
        'model_id = [1]\nsubtasks = ["x"]\nsubtasks = ["final"]\naccess_list = [[]]',
        'model_id = [0]\nsubtasks = ["final"]\nmodel_id = [1]\naccess_list = [[]]',
        'subtasks = ["x"]\nmodel_id = [1]\nsubtasks = ["final"]\naccess_list = [[]]',
        'subtasks = ["x\nsubtasks = ["final"]\nNow who?\nmodel_id = [1]\naccess_list = [[]]',
    ],
)
def test_a_list_written_again_replaces_its_earlier_version(text: str) -> None:
    assert find(text).lists == LISTS_OF_FINAL


def test_a_broken_list_discards_its_earlier_version() -> None:
    with pytest.raises(MalformedPlan) as caught:
        find('model_id = [1]\nsubtasks = ["draft"]\nmodel_id = [1, (\naccess_list = [[]]')
    assert caught.value.where == "model_id"


def test_the_json_form_wins_where_it_comes_last() -> None:
    assert find(DRAFT + JSON).lists == STEPS_OF_JSON


def test_subtask_text_is_never_parsed_as_a_plan() -> None:
    quoted = DRAFT.replace('"', '\\"')
    found = find(f'model_id = [1]\nsubtasks = ["{quoted} <think> {{"]\naccess_list = [[]]')
    assert found.lists["model_id"] == [1]
    assert found.lists["subtasks"] == [f"{DRAFT} <think> {{"]


def test_the_end_is_where_the_plan_ends() -> None:
    assert find(FINAL + "more").end == len(FINAL.rstrip())


@pytest.mark.parametrize(
    "text",
    [
        FINAL.replace("model_id", "my_model_id"),
        FINAL.replace("model_id", "model_identity"),
        FINAL.replace("model_id =", "model_id are"),
        JSON.replace('"steps"', "steps"),
    ],
)
def test_a_word_that_only_resembles_a_label_is_none(text: str) -> None:
    with pytest.raises(MalformedPlan):
        find(text)


def test_a_broken_list_is_named_before_the_lists_inside_it() -> None:
    with pytest.raises(MalformedPlan) as caught:
        find('{"steps": [{"worker": 0 "access": []}]}')
    assert caught.value.where == "steps"
