from __future__ import annotations

import pytest

from podium.conductors.plan import parse
from podium.core.errors import MalformedPlan
from podium.core.pool import Pool
from podium.core.workflow import Step, Workflow

THE_FIGURE = """\
The question needs a plan first and an implementation after it.

model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [[], ["all"]]"""

TWO_STEPS = Workflow(
    (
        Step("gpt-5", "Plan the algorithm"),
        Step("gemini-2.5-pro", "Implement the plan", access="all"),
    )
)


def test_the_figure_of_the_paper_is_a_plan(pool: Pool) -> None:
    parsed = parse(THE_FIGURE, pool, strict=True)
    assert parsed.workflow == TWO_STEPS
    assert parsed.warnings == ()


def test_the_subtasks_may_come_before_the_ids(pool: Pool) -> None:
    thoughts, ids, subtasks, access = THE_FIGURE.rsplit("\n", 3)
    parsed = parse("\n".join((thoughts, subtasks, ids, access)), pool, strict=True)
    assert parsed.workflow == TWO_STEPS
    assert parsed.warnings == ()


QUIRKS = {
    "a code fence": """\
```python
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [[], ["all"]]
```
""",
    "a fence around each list": """\
```
model_id = [2, 0]
```
```
subtasks = ["Plan the algorithm", "Implement the plan"]
```
```
access_list = [[], ["all"]]
```""",
    "backticks": """\
`model_id` = `[2, 0]`
`subtasks = ["Plan the algorithm", "Implement the plan"]`
`access_list = [[], ["all"]]`""",
    "bullets": """\
- model_id = [2, 0]
* subtasks = ["Plan the algorithm", "Implement the plan"]
3. access_list = [[], ["all"]]""",
    "bold labels": """\
**model_id**: [2, 0]
**subtasks:** ["Plan the algorithm", "Implement the plan"]
**access_list = [[], ["all"]]**""",
    "smart quotes": """\
model_id = [2, 0]
subtasks = [“Plan the algorithm”, ‘Implement the plan’]
access_list = [[], [“all”]]""",
    "single quotes": """\
model_id = [2, 0]
subtasks = ['Plan the algorithm', 'Implement the plan']
access_list = [[], ['all']]""",
    "triple quotes": '''\
model_id = [2, 0]
subtasks = ["""Plan the algorithm""", \'\'\'Implement the plan\'\'\']
access_list = [[], ["all"]]''',
    "string ids": """\
model_id = ["2", '0']
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [[], ["all"]]""",
    "a think block": """\
<think>First I draft: model_id = [1] subtasks = ["x"] access_list = [[]]</think>
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [[], ["all"]]""",
    "a think block that is not closed": """\
<think>It needs two steps.
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [[], ["all"]]""",
    "a think block that was opened by the prompt": """\
Perhaps model_id = [1], subtasks = ["x"], access_list = [[]]? No.</think>
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [[], ["all"]]""",
    "dotted labels": """\
model.id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access.list = [[], ["all"]]""",
    "labels in words": """\
Model IDs: [2, 0]
Subtask: ["Plan the algorithm", "Implement the plan"]
Access: [[], ["all"]]""",
    "hyphens and escaped underscores": r"""
model\_ids = [2, 0]
Sub-Tasks = ["Plan the algorithm", "Implement the plan"]
ACCESS-LIST = [[], ["all"]]""",
    "the lists as keys of an object": """\
{"model_id": [2, 0],
 "subtasks": ["Plan the algorithm", "Implement the plan"],
 "access_list": [[], ["all"]]}""",
    "lists over several lines, trailing commas, comments": """\
model_id = [
    2,  # the planner
    0,
]
subtasks = [
    "Plan the algorithm",
    "Implement the plan",
]
access_list = [
    [],
    ["all",],
]""",
    "all without its brackets": """\
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [[], "all"]""",
    "all without its quotes": """\
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [[], [ALL]]""",
    "None for no access": """\
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [None, "All"]""",
    "null for no access": """\
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [null, ["all"]]""",
    "all for the first step": """\
model_id = [2, 0]
subtasks = ["Plan the algorithm", "Implement the plan"]
access_list = [["all"], ["all"]]""",
    "carriage returns": (
        "model_id = [\r\n2,\r\n0\r\n]\r\n"
        'subtasks = ["Plan the algorithm",\r\n"Implement the plan"]\r\n'
        'access_list = [[],\r\n["all"]\r\n]\r\n'
    ),
    "wide colons": """\
model_id：[2, 0]
subtasks：["Plan the algorithm", "Implement the plan"]
access_list：[[], ["all"]]""",
    "everything on one line": (
        'model_id=[2,0] subtasks=["Plan the algorithm","Implement the plan"] access=[[],["all"]]'
    ),
    "the JSON form with names": """\
{"reasoning": "It needs two \\"steps\\": [a plan, code].",
 "steps": [
    {"worker": "gpt-5", "subtask": "Plan the algorithm", "access": []},
    {"worker": "gemini-2.5-pro", "subtask": "Implement the plan", "access": "all"}
]}""",
    "the JSON form with ids, fenced, after thoughts": """\
Two steps will do.
```json
{"steps": [{"worker": 2, "subtask": "Plan the algorithm", "access": []},
           {"access": ["all"], "worker": "0", "subtask": "Implement the plan"}]}
```
""",
    "the JSON form as Python writes it": (
        "{'steps': [{'worker': 'gpt-5', 'subtask': 'Plan the algorithm', 'access': None},"
        " {'worker': 'gemini-2.5-pro', 'subtask': 'Implement the plan', 'access': 'all'}]}"
    ),
    "the JSON form inside another object": (
        '{"plan": {"steps": [{"worker": 2, "subtask": "Plan the algorithm", "access": []},'
        ' {"worker": 0, "subtask": "Implement the plan", "access": "all"}]}}'
    ),
}


@pytest.mark.parametrize("text", QUIRKS.values(), ids=QUIRKS.keys())
def test_harmless_quirks_are_tolerated_even_in_training(text: str, pool: Pool) -> None:
    parsed = parse(text, pool, strict=True)
    assert parsed.workflow == TWO_STEPS
    assert parsed.warnings == ()


def test_strings_may_hold_apostrophes_newlines_and_escapes(pool: Pool) -> None:
    text = (
        "model_id = [0, 0, 0]\n"
        'subtasks = ["Don\'t guess", "Two\nlines", \'It\\\'s \\"so\\"\\u0021\\n\\t\\x41\\q\']\n'
        "access_list = [[], [], []]"
    )
    workflow = parse(text, pool).workflow
    assert workflow is not None
    assert [step.subtask for step in workflow.steps] == [
        "Don't guess",
        "Two\nlines",
        'It\'s "so"!\n\tA\\q',
    ]


def test_indices_of_earlier_steps_are_read_as_numbers_or_digits(pool: Pool) -> None:
    text = plan(ids="[0, 1, 2]", subtasks='["a", "b", "c"]', access='[[], [0], ["0", 1]]')
    workflow = parse(text, pool, strict=True).workflow
    assert workflow is not None
    assert [step.access for step in workflow.steps] == [(), (0,), (0, 1)]


@pytest.mark.parametrize(
    ("access", "understood", "warning"),
    [
        (
            "[1, 0]",
            (0, 1),
            "access_list: entry 2 is [1, 0], and steps belong there once, in ascending order; "
            "it was read as [0, 1]",
        ),
        (
            "[0, 0]",
            (0,),
            "access_list: entry 2 is [0, 0], and steps belong there once, in ascending order; "
            "it was read as [0]",
        ),
        (
            '["all", 0]',
            "all",
            "access_list: entry 2 is ['all', 0], and 'all' already includes every earlier step; "
            "it was read as all",
        ),
    ],
)
def test_untidy_access_is_tidied_with_a_warning(
    access: str, understood: object, warning: str, pool: Pool
) -> None:
    text = plan(ids="[0, 1, 2]", subtasks='["a", "b", "c"]', access=f"[[], [], {access}]")
    parsed = parse(text, pool, strict=True)
    assert parsed.workflow is not None
    assert parsed.workflow.steps[2].access == understood
    assert parsed.warnings == (warning,)


@pytest.mark.parametrize("ids", ['["gpt-5"]', "[gpt-5]", "[`gpt-5`]"])
def test_a_worker_may_be_named_instead_of_numbered_with_a_warning(ids: str, pool: Pool) -> None:
    parsed = parse(plan(ids=ids, subtasks='["a"]', access="[[]]"), pool, strict=True)
    assert parsed.workflow == Workflow((Step("gpt-5", "a"),))
    assert len(parsed.warnings) == 1
    assert parsed.warnings[0].startswith("model_id: entry 0 is the name ")
    assert parsed.warnings[0].endswith("and ids belong there; it was read as 2")


def test_unknown_keys_of_a_json_step_are_ignored_with_a_warning(pool: Pool) -> None:
    text = '{"steps": [{"id": 7, "worker": 1, "subtask": "a", "access": []}]}'
    parsed = parse(text, pool, strict=True)
    assert parsed.workflow == Workflow((Step("claude-sonnet-4", "a"),))
    assert parsed.warnings == (
        "steps: step 0 has a key 'id', and a step has only worker, subtask, access, if; "
        "it was ignored",
    )


def plan(ids: str = "[0]", subtasks: str = '["Answer"]', access: str = "[[]]") -> str:
    return f"model_id = {ids}\nsubtasks = {subtasks}\naccess_list = {access}"


MALFORMED = {
    "no plan at all": (
        "I would ask the second model.",
        "plan: no plan was found; end with the three lists, each on its own line: "
        "model_id = [...], subtasks = [...], access_list = [...]",
    ),
    "nothing": (
        "",
        "plan: no plan was found; end with the three lists, each on its own line: "
        "model_id = [...], subtasks = [...], access_list = [...]",
    ),
    "only a draft inside a think block": (
        f"<think>{plan()}</think> I am done.",
        "plan: no plan was found; end with the three lists, each on its own line: "
        "model_id = [...], subtasks = [...], access_list = [...]",
    ),
    "a list is missing": (
        'model_id = [0]\nsubtasks = ["a"]',
        "access_list: the list is missing; write access_list = [...] with one entry for each step",
    ),
    "the lists are out of order": (
        'subtasks = ["a"]\naccess_list = [[]]\nmodel_id = [0]',
        "access_list: the list is out of place; write it last, after model_id and subtasks",
    ),
    "the ids are missing after the subtasks": (
        'subtasks = ["a"]\naccess_list = [[]]',
        "model_id: the list is missing; write model_id = [...] with one entry for each step",
    ),
    "a list is written again and broken": (
        'subtasks = ["a"]\nmodel_id = [0]\nsubtasks = ["b]\naccess_list = [[]]',
        "subtasks: the string '\"b]' does not end; close its quotes",
    ),
    "the lengths differ after the subtasks": (
        'subtasks = ["a", "b"]\nmodel_id = [0]\naccess_list = [[], []]',
        "model_id: the lists differ in length: model_id has 1, subtasks has 2, access_list has 2; "
        "give each of them one entry for each step",
    ),
    "a list has no end": (
        'model_id = [0]\nsubtasks = ["a"]\naccess_list = [[]',
        "access_list: the list does not end; close it with ]",
    ),
    "a string has no end": (
        'model_id = [0]\nsubtasks = ["a]\naccess_list = [[]]',
        "subtasks: the string '\"a]' does not end; close its quotes",
    ),
    "a quote inside a string is not escaped": (
        plan(subtasks='["Say "yes" or no"]'),
        "subtasks: a comma or ] was expected after entry 0, and then came "
        '\'yes" or no"]\'; write a quote inside a string as \\"',
    ),
    "a comma too many": (
        plan(ids="[0,,1]"),
        "model_id: a value was expected, and then came ',1]'",
    ),
    "an id outside the pool": (
        plan(ids="[4]"),
        "model_id: entry 0 is 4; write the id of a worker, a whole number from 0 to 3",
    ),
    "a negative id": (
        plan(ids="[-1]"),
        "model_id: entry 0 is -1; write the id of a worker, a whole number from 0 to 3",
    ),
    "a gigantic id": (
        plan(ids=f"[{'9' * 10_000}]"),
        f"model_id: entry 0 is {'9' * 40}…; write the id of a worker, a whole number from 0 to 3",
    ),
    "an id that is no whole number": (
        plan(ids="[1.0]"),
        "model_id: entry 0 is 1.0; write the id of a worker, a whole number from 0 to 3",
    ),
    "an id that is True": (
        plan(ids="[True]"),
        "model_id: entry 0 is True; write the id of a worker, a whole number from 0 to 3",
    ),
    "a name that nobody has": (
        plan(ids='["gpt-4"]'),
        "model_id: entry 0 is 'gpt-4'; write the id of a worker, a whole number from 0 to 3",
    ),
    "one list is too short": (
        plan(ids="[0, 1]", subtasks='["a", "b"]', access="[[]]"),
        "access_list: the lists differ in length: model_id has 2, subtasks has 2, "
        "access_list has 1; give each of them one entry for each step",
    ),
    "all lists differ in length": (
        plan(ids="[0, 1, 2]", subtasks='["a", "b"]', access="[[]]"),
        "plan: the lists differ in length: model_id has 3, subtasks has 2, "
        "access_list has 1; give each of them one entry for each step",
    ),
    "one list is empty": (
        plan(subtasks="[]"),
        "subtasks: the lists differ in length: model_id has 1, subtasks has 0, "
        "access_list has 1; give each of them one entry for each step",
    ),
    "all lists are empty": (
        plan("[]", "[]", "[]"),
        "plan: it has no steps; write at least one, there is no answer yet",
    ),
    "too many steps": (
        plan(str([0] * 6), str(["a"] * 6), str([[]] * 6)),
        "plan: it has 6 steps; write at most 5, joining some of them",
    ),
    "an empty subtask": (
        plan(subtasks='["  "]'),
        "subtasks: entry 0 is '  '; say in words what the worker must do",
    ),
    "a subtask without quotes": (
        plan(subtasks="[Solve it]"),
        "subtasks: entry 0 is Solve it; write every subtask as a text in double quotes",
    ),
    "a subtask that is a number": (
        plan(subtasks="[1]"),
        "subtasks: entry 0 is 1; write every subtask as a text in double quotes",
    ),
    "access to the step itself": (
        plan("[0, 1]", '["a", "b"]', "[[], [1]]"),
        "access_list: entry 1 is [1]; step 1 may read only earlier steps: write [] for none of "
        'them, ["all"] for all of them, or [0]',
    ),
    "access to a later step": (
        plan("[0, 1, 2]", '["a", "b", "c"]', "[[], [], [3]]"),
        "access_list: entry 2 is [3]; step 2 may read only earlier steps: write [] for none of "
        'them, ["all"] for all of them, or numbers from 0 to 1 as in [0, 1]',
    ),
    "access of the first step": (
        plan(access="[[0]]"),
        "access_list: entry 0 is [0]; the first step has no earlier ones to read: write []",
    ),
    "access that is a bare number": (
        plan("[0, 1]", '["a", "b"]', "[0, 1]"),
        "access_list: entry 0 is 0; the first step has no earlier ones to read: write []",
    ),
    "access that is a word": (
        plan("[0, 1]", '["a", "b"]', '[[], ["some"]]'),
        "access_list: entry 1 is ['some']; step 1 may read only earlier steps: write [] for none "
        'of them, ["all"] for all of them, or [0]',
    ),
    "a JSON step that is no object": (
        '{"steps": ["solve"]}',
        "steps: step 0 is 'solve'; a step is an object with worker, subtask, access",
    ),
    "a JSON step without access": (
        '{"steps": [{"worker": 0, "subtask": "a"}]}',
        "steps: step 0 has no 'access'; a step needs worker, subtask, access",
    ),
    "a JSON step with an unknown worker": (
        '{"steps": [{"worker": "gpt-4", "subtask": "a", "access": []}]}',
        "steps: the worker of step 0 is 'gpt-4'; write the id of a worker, a whole number from 0 "
        "to 3, or a name: gemini-2.5-pro, claude-sonnet-4, gpt-5, qwen3-32b",
    ),
    "a JSON step with a key twice": (
        '{"steps": [{"worker": 0, "worker": 1, "subtask": "a", "access": []}]}',
        "steps: the key 'worker' appears twice in one object; keep one",
    ),
    "JSON without its end": (
        '{"steps": [{"worker": 0, "subtask": "a", "access": []}',
        "steps: the list does not end; close it with ]",
    ),
    "JSON with no steps": (
        '{"steps": []}',
        "plan: it has no steps; write at least one, there is no answer yet",
    ),
}


@pytest.mark.parametrize(("text", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_plan_names_the_list_and_what_to_write(
    text: str, message: str, pool: Pool
) -> None:
    with pytest.raises(MalformedPlan) as caught:
        parse(text, pool)
    assert str(caught.value) == message
    assert caught.value.where == message.split(":")[0]


def test_names_that_are_masked_do_not_appear_in_errors(pool: Pool) -> None:
    masked = Pool(pool.workers, mask_names=True)
    with pytest.raises(MalformedPlan) as caught:
        parse('{"steps": [{"worker": "gpt-4", "subtask": "a", "access": []}]}', masked)
    assert "gemini" not in str(caught.value)


def test_the_number_of_steps_is_the_callers_to_limit(pool: Pool) -> None:
    six = plan(str([0] * 6), str(["a"] * 6), str([[]] * 6))
    workflow = parse(six, pool, max_steps=6).workflow
    assert workflow is not None
    assert len(workflow) == 6
    with pytest.raises(MalformedPlan, match="at most 1"):
        parse(THE_FIGURE, pool, max_steps=1)


@pytest.mark.parametrize(
    "text",
    [
        plan("[]", "[]", "[]"),
        "subtasks = []\nmodel_id = []\naccess_list = []",
        '```json\n{"steps": []}\n```',
    ],
)
def test_an_empty_plan_accepts_the_answer_of_the_round_before(text: str, pool: Pool) -> None:
    parsed = parse(text, pool, strict=True, may_accept=True)
    assert parsed.workflow is None
    assert parsed.warnings == ()


def test_a_half_empty_plan_accepts_nothing(pool: Pool) -> None:
    with pytest.raises(MalformedPlan, match="differ in length"):
        parse(plan(access="[]"), pool, may_accept=True)


def test_all_in_the_first_step_means_the_round_before_where_there_was_one(pool: Pool) -> None:
    text = plan(access='[["all"]]')
    assert parse(text, pool).workflow == Workflow((Step("gemini-2.5-pro", "Answer"),))
    assert parse(text, pool, may_accept=True).workflow == Workflow(
        (Step("gemini-2.5-pro", "Answer", access="all"),)
    )


@pytest.mark.parametrize(
    "rest",
    [
        " This plan is good.",
        "\naccess_list = [[]]",
        "\n```\n```",
        "```" * 10,
        "}" * 10,
        "]",
        "\n<think></think>",
        '\nmodel_id = [0]\nsubtasks = ["unfinished',
    ],
)
def test_text_after_the_plan_is_ignored_when_serving_and_malformed_in_training(
    rest: str, pool: Pool
) -> None:
    parsed = parse(plan() + rest, pool)
    assert parsed.workflow == Workflow((Step("gemini-2.5-pro", "Answer"),))
    length = len(rest.strip())
    assert parsed.warnings == (
        f"plan: {length} characters of text follow the plan, which must end the reply; "
        "they were ignored",
    )
    with pytest.raises(MalformedPlan) as caught:
        parse(plan() + rest, pool, strict=True)
    assert caught.value.where == "plan"
    assert "write nothing after it" in caught.value.reason


@pytest.mark.parametrize("rest", ["", " \n\t\n", "\n```\n", "\n~~~", "`", "**", "}", " } } \n```"])
def test_the_end_of_a_fence_or_of_json_is_not_text(rest: str, pool: Pool) -> None:
    assert parse(plan() + rest, pool, strict=True).warnings == ()
