"""Whatever the text, `parse` returns a valid workflow or raises `MalformedPlan`, and soon."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.conductors.plan import parse, write
from podium.core.errors import MalformedPlan
from podium.core.pool import Pool
from podium.core.workflow import Workflow

PIECES = st.sampled_from(
    [
        *("model_id = [", "subtasks = [", "access_list = [", '{"steps": [', "[0]", '["x"]', "[[]]"),
        *("<think>", "</think>", "```", '"', "'", "“", "’", '"""', "\\", "\n", ",", "[", "]", "{"),
        *("}", ":", "=", "#", "all", "None", "0", "9" * 30, "\ud800", "\x00", " ", "**"),
        *('"worker": ', '"subtask": ', '"access": ', "[], "),
    ]
)


WHERES = ("model_id", "subtasks", "access_list", "steps", "plan")


def outcome(text: str, pool: Pool, **options: bool) -> Workflow | MalformedPlan | None:
    try:
        return parse(text, pool, **options).workflow
    except MalformedPlan as problem:
        return problem


def check(text: str, pool: Pool) -> None:
    assert outcome(text, pool) is not None
    assert outcome(text, pool, strict=True) is not None
    for workflow in (outcome(text, pool), outcome(text, pool, may_accept=True)):
        if isinstance(workflow, Workflow):
            workflow.check(pool.names)
            assert all(step.subtask.encode() for step in workflow.steps)
        elif workflow is not None:
            assert workflow.where in WHERES
            assert 0 < len(workflow.reason) < 400


@given(text=st.text())
def test_any_text_is_survived(text: str, pool: Pool) -> None:
    check(text, pool)


@settings(max_examples=300)
@given(pieces=st.lists(PIECES, max_size=30))
def test_any_pieces_of_plans_parse_or_are_refused(pieces: list[str], pool: Pool) -> None:
    check("".join(pieces), pool)


@settings(max_examples=200)
@given(data=st.data())
def test_any_damage_to_a_plan_is_survived(
    data: st.DataObject, workflows: st.SearchStrategy[Workflow], pool: Pool
) -> None:
    text = write(data.draw(workflows), pool)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 8)))
        text = text[:start] + data.draw(PIECES | st.just("")) + text[end:]
    check(text, pool)


def test_characters_that_are_shown_escaped_make_no_long_reason(pool: Pool) -> None:
    hidden = "\U000e0001" * 60
    check(f'{{"steps": [{{"{hidden}" {hidden}', pool)


def test_digits_between_separators_that_only_strip_knows_are_a_number(pool: Pool) -> None:
    text = """{"steps": [{"worker": "\x1c1\x1f", "subtask": "a", "access": []}]}"""
    workflow = parse(text, pool).workflow
    assert workflow is not None
    assert workflow.steps[0].worker == pool.names[1]


@pytest.mark.parametrize("word", ["\ud800", "\x1b", "\x00"])
def test_a_message_about_a_word_that_cannot_be_printed_can_be_written_down(
    word: str, pool: Pool
) -> None:
    with pytest.raises(MalformedPlan) as caught:
        parse(f'{{"steps": [{word}0]}}', pool)
    assert str(caught.value).isprintable()


HOSTILE = {
    "open brackets": "[",
    "open braces": "{",
    "quotes": '"',
    "labels": "access list ",
    "labels with open lists": "model_id = [",
    "nested lists": "model_id = [[[[[[[",
    "backticks": "`",
    "think blocks without end": "<think>",
    "strings without end": 'subtasks = ["',
    "strings without end in two kinds of quotes": "subtasks = ['\"",
    "smart quotes without end": "subtasks = [“",
    "triple quotes without end": "subtasks = ['''\"\"\"",
    "labels hidden in strings": "model_id=[\"a\", \"model_id=['b', '",
    "comments that hide quotes": '"model_id=[" # "\n,',
    "steps within steps": '"steps": [{"steps": [{',
    "steps beside steps": '"steps":[{"a":1,',
    "backslashes": 'subtasks = ["\\',
    "white space after labels": "access" + " " * 50,
    "lists written again": 'subtasks = ["x"]\nmodel_id = [0]\n',
    "whole plans": 'model_id = [0]\nsubtasks = ["x"]\naccess_list = [[]]\n',
}


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_four_times_the_text_takes_about_four_times_as_long(unit: str, pool: Pool) -> None:
    # From small to large, so that a reader gone quadratic fails here and does not hang.
    for size in (16_000, 64_000, 250_000):
        short, long = unit * (size // len(unit)), unit * (4 * size // len(unit))
        assert seconds(long, pool) < 8 * seconds(short, pool) + 0.02


def seconds(text: str, pool: Pool) -> float:
    """CPU time of one reading: what other processes do does not count."""
    started = time.process_time()
    outcome(text, pool)
    return time.process_time() - started
