from __future__ import annotations

import json
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.tasks.graders import make_grader

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"$ref": "#/$defs/years"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"years": {"type": "integer", "minimum": 0}},
}


async def is_right(reply: str, answer: str = "", **parameters: Any) -> bool:
    return await make_grader("json-schema", answer, {"schema": PERSON, **parameters})(reply)


@pytest.mark.parametrize(
    "reply",
    [
        '{"name": "Ada", "age": 36}',
        'Here it is:\n```json\n{"name": "Ada"}\n```',
        '<answer>{"name": "Ada"}</answer>',
    ],
)
async def test_json_that_fits_is_right(reply: str) -> None:
    assert await is_right(reply)


@pytest.mark.parametrize(
    "reply",
    ['{"age": 36}', '{"name": "Ada", "age": -1}', '{"name": "Ada"', "Ada", "", "[" * 100_000],
)
async def test_invalid_json_and_mismatches_are_wrong(reply: str) -> None:
    assert not await is_right(reply)


async def test_with_an_answer_it_must_be_the_same_value_in_any_order() -> None:
    answer = json.dumps({"name": "Ada", "age": 36})
    assert await is_right('{"age": 36, "name": "Ada"}', answer)
    assert not await is_right('{"age": 37, "name": "Ada"}', answer)


async def test_a_tagged_grader_requires_tags() -> None:
    assert not await is_right('{"name": "Ada"}', tagged=True)


@pytest.mark.parametrize(
    ("schema", "answer", "said"),
    [
        ({"type": "thing"}, "", "expected a JSON Schema"),
        ({"$ref": "#/$defs/nothing"}, "", "refers to .*nothing.*, which is not in it"),
        (
            {"items": [{"$ref": "http://127.0.0.1:9/x"}]},
            "",
            "JSON Schema|nothing is fetched",
        ),
        ({"allOf": [{"$ref": "http://127.0.0.1:9/x"}]}, "", "nothing is fetched"),
        ({"type": "string"}, "Ada", "the answer must be JSON"),
        ({"type": "string"}, "3", "does not fit its own schema"),
    ],
)
def test_a_schema_that_cannot_grade_is_an_error_when_it_is_made(
    schema: dict[str, Any], answer: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make_grader("json-schema", answer, {"schema": schema})
