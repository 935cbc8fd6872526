"""What is a JSON Schema, and what only looks like one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from podium.core.json_schema import SchemaProblem, find_schema_error


class Leaf(BaseModel):
    size: int
    names: list[str] | None = None


class Tree(BaseModel):
    left: Tree | None
    right: Tree | None
    leaves: dict[str, Leaf]


SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "object"},
    {"type": ["string", "null"], "enum": ["a", None]},
    {"type": "array", "items": {"type": "string"}, "minItems": 1},
    {"prefixItems": [True, {"type": "integer"}], "items": False},
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"minimum": 0.5}}},
    {"anyOf": [{"$ref": "#/anyOf/1"}, {"const": 3}]},
    {"$ref": "#leaf", "$defs": {"a": {"$anchor": "leaf"}}},
    {"$id": "https://example.org/tree", "$ref": "#/$defs/a", "$defs": {"a": {}}},
    {"properties": {"$id": {"type": "string"}, "a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}},
    {"an unknown word": {"type": "unheard of"}},
    Tree.model_json_schema(),
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_a_valid_schema_has_no_error(schema: dict[str, Any]) -> None:
    assert find_schema_error(schema) is None


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "text"}, "type"),
        ({"type": []}, "type"),
        ({"type": {"a": 1}}, "type"),
        ({"properties": ["a"]}, "properties"),
        ({"properties": {"a": "string"}}, "properties.a"),
        ({"properties": {"a": {"type": "str"}}}, "properties.a.type"),
        ({"required": "a"}, "required"),
        ({"required": [1]}, "required"),
        ({"enum": []}, "enum"),
        ({"anyOf": []}, "anyOf"),
        ({"anyOf": {"a": 1}}, "anyOf"),
        ({"allOf": [1]}, "allOf.0"),
        ({"items": "string"}, "items"),
        ({"items": [{"type": 1}]}, "items.0.type"),
        ({"additionalProperties": "no"}, "additionalProperties"),
        ({"minLength": -1}, "minLength"),
        ({"maxItems": 1.5}, "maxItems"),
        ({"minimum": True}, "minimum"),
        ({"multipleOf": 0}, "multipleOf"),
        ({"pattern": 1}, "pattern"),
        ({"$ref": "https://example.org/schema"}, "$ref"),
        ({"$ref": "#/$defs/nowhere"}, "$ref"),
        ({"$ref": "#/enum/9", "enum": [1]}, "$ref"),
        ({"$ref": "#/enum/0", "enum": [1]}, "$ref"),
        ({"not": None}, "not"),
        ({"$id": 7}, "$id"),
        ({"$id": "https://["}, "$id"),
        ({"$schema": 5}, "$schema"),
        ({"$schema": []}, "$schema"),
        ({"$ref": "#leaf"}, "$ref"),
        (
            {"$defs": {"a": {}}, "items": {"$id": "https://a.org", "$ref": "#/$defs/a"}},
            "items.$id",
        ),
    ],
)
def test_a_malformed_keyword_is_located(schema: dict[str, Any], path: str) -> None:
    found = find_schema_error(schema)
    assert found is not None
    assert found.path == path


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"$ref": "#"}}},
        {"$ref": "#/aside", "aside": {"$ref": "#/aside"}},
        {"$anchor": "here", "$ref": "#here"},
    ],
)
def test_a_looping_schema_is_an_error(schema: dict[str, Any]) -> None:
    assert isinstance(find_schema_error(schema), SchemaProblem)


def test_the_target_of_a_reference_is_checked_too() -> None:
    assert find_schema_error({"$ref": "#/aside", "aside": {"type": "text"}}) is not None


KEYWORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "$ref", "$defs", "required", "enum", "not", "pattern"]
)
VALUES = st.recursive(
    st.sampled_from(["object", "#", "#/$defs/a", "#/items"]) | st.integers() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | st.just("a"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(KEYWORDS, VALUES, max_size=4))
def test_no_input_raises(schema: dict[str, Any]) -> None:
    found = find_schema_error(schema)
    assert found is None or (found.reason and isinstance(found.path, str))


def test_a_large_schema_of_references_is_checked_quickly() -> None:
    chain = {f"n{i}": {"allOf": [{"$ref": f"#/$defs/n{i + 1}"}]} for i in range(5000)}
    started = time.process_time()
    assert find_schema_error({"$ref": "#/$defs/n0", "$defs": {**chain, "n5000": {}}}) is None
    assert (
        find_schema_error({"$ref": "#/$defs/n0", "$defs": {**chain, "n5000": {"$ref": "#"}}})
        is not None
    )
    assert time.process_time() - started < 2
