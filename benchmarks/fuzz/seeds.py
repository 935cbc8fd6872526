"""What the fuzzer of plans starts from: plans of every form, and the quirks that are known."""

from __future__ import annotations

from typing import Final

from podium.conductors.plan import write, write_acceptance
from podium.core.pool import Pool, WorkerProfile
from podium.core.workflow import Step, Workflow

POOL: Final = Pool(
    tuple(
        WorkerProfile(name=name)
        for name in ("gemini-2.5-pro", "claude-sonnet-4", "gpt-5", "qwen3-32b")
    )
)

_WORKFLOWS: Final = (
    Workflow((Step("gpt-5", "Answer."),)),
    Workflow((Step("gpt-5", "Plan the algorithm"), Step("gemini-2.5-pro", "Write it", "all"))),
    Workflow(
        (
            Step("gpt-5", 'Say "yes" or \\ no'),
            Step("qwen3-32b", "Two\nlines, [brackets] and model_id = [1]"),
            Step("claude-sonnet-4", "Don’t guess", (0,)),
            Step("gpt-5", "Join.", (0, 1, 2)),
        )
    ),
)

_QUIRKS: Final = (
    '<think>A draft: model_id = [1] subtasks = ["x"] access_list = [[]]</think>\n'
    'model_id = [2, 0]\nsubtasks = ["a", "b"]\naccess_list = [[], ["all"]]',
    '```python\nmodel_id = [2]\nsubtasks = ["""a"""]\naccess_list = [[]]\n```\n',
    "**model_id**: [2, 0]\n**subtasks:** [“a”, ‘b’]\n**access_list = [[], [“all”]]**",
    "Model IDs: ['2', `0`]\nSub-Task: ['a', 'b',]\nACCESS-LIST：[None, [ALL]]",
    'model_id = [\n 2, # the planner\n 0,\n]\nsubtasks = ["a",\n"b"]\naccess = [[], "all"]\nDone.',
    r"model\_ids = [2]" + "\n" + r'subtasks = ["\u00e9\ud83d\ude00\x41\q"]' + "\naccess=[null]",
    '{"model_id": [2], "subtasks": ["a"], "access_list": [[]]}',
    "{'steps': [{'worker': 'gpt-5', 'subtask': 'a', 'access': None}, "
    "{'access': ['all', 0], 'worker': '0', 'subtask': 'b', 'id': {'x': [1]}}]}",
    '{"reasoning": "\\"steps\\": [two]", "plan": {"steps": '
    '[{"worker": 2, "subtask": "a", "access": []}]}}',
    'subtasks = ["a"]\nmodel_id = [0]\nsubtasks = ["b]\naccess_list = [[]]',
    "I would ask the second model.",
    "",
)

SEEDS: Final = (
    *(write(workflow, POOL) for workflow in _WORKFLOWS),
    *(write(workflow, POOL, order="step-by-step") for workflow in _WORKFLOWS),
    write_acceptance(),
    write_acceptance("step-by-step"),
    *_QUIRKS,
)

UNITS: Final = (
    *("[", "{", '"', "`", "\\", " ", "<think>", "access list ", "access" + " " * 50, "}\n"),
    *("model_id = [", "model_id = [[[[[[[", 'subtasks = ["', "subtasks = ['\"", "subtasks = [“"),
    *("subtasks = ['''\"\"\"", "model_id=[\"a\", \"model_id=['b', '", '"model_id=[" # "\n,'),
    *('"steps": [{"steps": [{', '"steps":[{"a":1,', 'subtasks = ["\\'),
    *('subtasks = ["x"]\nmodel_id = [0]\n', 'model_id=[0] subtasks=["x"] access=[[]]\n'),
)
"""What is repeated without end to see how time grows, beside whatever the fuzzer comes upon."""
