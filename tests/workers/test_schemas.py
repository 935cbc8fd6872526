import copy
from typing import Any

import pytest

from podium.workers.translation import is_strict, to_strict_schema

POINT: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["x", "tags"],
    "additionalProperties": False,
}


def test_a_closed_schema_is_strict() -> None:
    assert is_strict(POINT)
    assert is_strict({"type": "array", "items": POINT})
    assert is_strict({"anyOf": [POINT, {"type": "null"}], "$defs": {"point": POINT}})


@pytest.mark.parametrize(
    "change",
    [
        {"additionalProperties": True},
        {"required": ["x"]},
        {"properties": {"x": {"type": "object"}, "tags": {}}},
        {"properties": {"x": {"type": "string", "minLength": 3}, "tags": {}}},
        {"oneOf": [POINT]},
    ],
)
def test_a_schema_that_leaves_something_open_is_not_strict(change: dict[str, Any]) -> None:
    assert not is_strict(POINT | change)


def test_a_property_may_be_named_like_a_keyword() -> None:
    schema = {
        "type": "object",
        "properties": {"type": {"type": "string"}, "properties": {"type": "string"}},
        "required": ["type", "properties"],
        "additionalProperties": False,
    }
    assert is_strict(schema)
    assert to_strict_schema(schema) == schema


def test_closing_a_schema_allows_no_other_members_at_any_depth() -> None:
    inner = {"type": "object", "properties": {"x": {"type": "number"}}}
    schema = {
        "type": "object",
        "properties": {"a": inner, "b": {"type": "array", "items": inner, "minItems": 1}},
        "oneOf": [inner],
        "$defs": {"c": inner},
        "additionalProperties": True,
    }
    shut = inner | {"additionalProperties": False}
    assert to_strict_schema(schema) == {
        "type": "object",
        "properties": {"a": shut, "b": {"type": "array", "items": shut, "minItems": 1}},
        "anyOf": [shut],
        "$defs": {"c": shut},
        "additionalProperties": False,
    }


def test_unenforceable_keywords_are_named_in_the_description() -> None:
    schema = {"type": "integer", "minimum": 1, "maximum": 9, "description": "a digit"}
    assert to_strict_schema(schema) == {
        "type": "integer",
        "description": "a digit\n(minimum: 1, maximum: 9)",
    }
    assert to_strict_schema({"type": "array", "minItems": 3})["description"] == "(minItems: 3)"


def test_the_schema_that_was_given_stays_as_it_was() -> None:
    before = copy.deepcopy(POINT)
    to_strict_schema(POINT)
    assert before == POINT
