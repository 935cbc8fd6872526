from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.conductors.plan import PlanLayout, grammar, parse, write, write_acceptance
from podium.core.pool import Pool, WorkerProfile
from podium.core.workflow import Condition, Step, Workflow

LAYOUTS: tuple[PlanLayout, ...] = get_args(PlanLayout)

TOKEN = re.compile(
    r'"(?P<literal>(?:[^"\\]|\\.)*)"|(?P<characters>\[(?:[^\]\\]|\\.)*\])'
    r"|(?P<rule>[a-z][a-z0-9-]*)|(?P<operator>\{\d+,\d+\}|[()|])|\s+"
)


def as_regex(gbnf: str) -> str:
    """The grammar as a regular expression: no rule leads back to itself, so there is one."""
    rules = dict(line.split(" ::= ", 1) for line in gbnf.splitlines())
    return expanded(rules["root"], rules)


def expanded(body: str, rules: dict[str, str]) -> str:
    parts: list[str] = []
    position = 0
    while position < len(body):
        token = TOKEN.match(body, position)
        assert token is not None, f"not GBNF from here on: {body[position:]}"
        position = token.end()
        if token["literal"] is not None:
            parts.append(re.escape(json.loads(token[0])))
        elif token["rule"]:
            parts.append(expanded(rules[token["rule"]], rules))
        elif token["characters"] or token["operator"]:
            parts.append(token[0].replace("(", "(?:"))
    return f"(?:{''.join(parts)})"


@pytest.fixture(scope="session")
def sentences(pool: Pool) -> st.SearchStrategy[str]:
    patterns = [as_regex(grammar(pool, max_subtask_chars=9, layout=layout)) for layout in LAYOUTS]
    return st.one_of([st.from_regex(pattern, fullmatch=True) for pattern in patterns])


@settings(max_examples=300)
@given(data=st.data())
def test_whatever_the_grammar_allows_is_a_well_formed_plan(
    data: st.DataObject, sentences: st.SearchStrategy[str], pool: Pool
) -> None:
    parsed = parse(data.draw(sentences), pool, strict=True)
    assert parsed.workflow is not None
    assert parsed.warnings == ()
    assert all(len(step.subtask) <= 9 for step in parsed.workflow.steps)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "subtask", ["Why?", 'a "quoted" \\ word', "two\nlines\tand\x01more", "日本 [1]"]
)
def test_with_a_given_subtask_every_step_does_just_that(
    pool: Pool, subtask: str, layout: PlanLayout
) -> None:
    pattern = as_regex(grammar(pool, 2, subtask=subtask, layout=layout))
    twice = Workflow((Step(pool.names[0], subtask), Step(pool.names[1], subtask, (0,))))
    lists = write(twice, pool, layout=layout)
    other = write(Workflow((Step(pool.names[0], f"{subtask}!"),)), pool, layout=layout)
    assert re.fullmatch(pattern, lists)
    assert not re.fullmatch(pattern, other)
    assert parse(lists, pool, strict=True).workflow is not None


@given(data=st.data())
def test_every_plan_in_plain_words_is_allowed(
    data: st.DataObject, workflows: st.SearchStrategy[Workflow], pool: Pool
) -> None:
    steps = data.draw(workflows).steps
    plain = Workflow(tuple(replace(step, subtask='"Do" [it], \n速く') for step in steps))
    for layout in LAYOUTS:
        pattern = as_regex(grammar(pool, may_accept=True, max_subtask_chars=20, layout=layout))
        assert re.fullmatch(pattern, write(plain, pool, layout=layout))


def test_the_grammar_holds_to_one_order(pool: Pool) -> None:
    workflow = Workflow((Step(pool.names[2], "Plan"), Step(pool.names[0], "Do it", "all")))
    for layout in LAYOUTS:
        pattern = as_regex(grammar(pool, layout=layout))
        matching = [o for o in LAYOUTS if re.fullmatch(pattern, write(workflow, pool, layout=o))]
        assert matching == [layout]


def test_step_by_step_all_else_is_refused_as_before(pool: Pool) -> None:
    pattern = as_regex(grammar(pool, layout="step-by-step"))
    text = (
        '{"steps": [{"subtask": "Plan", "worker": 2, "access": []}, '
        '{"subtask": "Do it", "worker": 0, "access": [0]}]}'
    )
    assert re.fullmatch(pattern, text)
    for right, wrong in ((" 2,", " 4,"), (' "worker": 2,', ""), ("[0]", "[1]"), ("Plan", "")):
        assert not re.fullmatch(pattern, text.replace(right, wrong))


PLAN = 'model_id = [2, 0]\nsubtasks = ["Plan", "Do it"]\naccess_list = [[], ["all"]]'


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        pytest.param(PLAN, True, id="a plan"),
        pytest.param(PLAN.replace('["all"]', "[0]"), True, id="an earlier step"),
        pytest.param(PLAN.replace("Plan", "x" * 200), True, id="a long subtask"),
        pytest.param(PLAN.replace("Plan", "x" * 201), False, id="too long a subtask"),
        pytest.param(PLAN.replace("Plan", ""), False, id="an empty subtask"),
        pytest.param(PLAN.replace("Plan", " "), False, id="a blank subtask"),
        pytest.param(PLAN.replace("Plan", "\u3000"), False, id="a wide blank subtask"),
        pytest.param(PLAN.replace("Plan", "\\n"), False, id="a subtask that is a newline"),
        pytest.param(PLAN.replace("[2, 0]", "[4, 0]"), False, id="an id outside the pool"),
        pytest.param(PLAN.replace("[2, 0]", "[2]"), False, id="too few ids"),
        pytest.param(PLAN.replace('["all"]', "[1]"), False, id="access to itself"),
        pytest.param(PLAN.replace('["all"]', "[0, 0]"), False, id="access twice"),
        pytest.param(PLAN.replace("[[]", '[["all"]'), False, id="access of the first step"),
        pytest.param(PLAN + "\n", False, id="anything after the lists"),
        pytest.param("model_id = []\nsubtasks = []\naccess_list = []", False, id="an empty plan"),
    ],
)
def test_the_grammar_allows_plans_and_nothing_else(text: str, allowed: bool, pool: Pool) -> None:
    assert bool(re.fullmatch(as_regex(grammar(pool)), text)) == allowed


def test_accepting_is_allowed_only_where_there_is_an_answer(pool: Pool) -> None:
    for layout in LAYOUTS:
        acceptance = write_acceptance(layout)
        assert re.fullmatch(as_regex(grammar(pool, may_accept=True, layout=layout)), acceptance)
        assert not re.fullmatch(as_regex(grammar(pool, layout=layout)), acceptance)
    pattern = as_regex(grammar(pool, may_accept=True))
    assert re.fullmatch(pattern, 'model_id = [0]\nsubtasks = ["Check"]\naccess_list = [["all"]]')


def test_the_number_of_steps_is_bounded(pool: Pool) -> None:
    three = 'model_id = [0, 0, 0]\nsubtasks = ["a", "b", "c"]\naccess_list = [[], [], [0, 1]]'
    assert re.fullmatch(as_regex(grammar(pool, max_steps=3)), three)
    assert not re.fullmatch(as_regex(grammar(pool, max_steps=2)), three)


def test_every_worker_of_a_large_pool_has_an_id() -> None:
    pool = Pool(tuple(WorkerProfile(name=f"worker {index}") for index in range(12)))
    pattern = as_regex(grammar(pool))
    for index, allowed in ((0, True), (9, True), (11, True), (12, False)):
        text = f'model_id = [{index}]\nsubtasks = ["a"]\naccess_list = [[]]'
        assert bool(re.fullmatch(pattern, text)) == allowed


def test_conditions_are_allowed_step_by_step_and_only_on_earlier_steps(pool: Pool) -> None:
    pattern = as_regex(grammar(pool, 3, layout="step-by-step"))
    first, second = Step(pool.names[0], "a"), Step(pool.names[1], "b")
    for condition in (Condition("failed", (0,)), Condition("differs", (0, 1))):
        third = replace(first, subtask="c", condition=condition)
        text = write(Workflow((first, second, third)), pool, layout="step-by-step")
        assert re.fullmatch(pattern, text)
        later = str(condition).replace("0", "2")
        assert not re.fullmatch(pattern, text.replace(str(condition), later))
    assert re.fullmatch(pattern, text.replace("differs 0 1", "failed 1"))
    assert '"if' not in grammar(pool, 3)
