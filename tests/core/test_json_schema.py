"""What is a JSON Schema, and what only looks like one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from podium.core.json_schema import Flaw, flaw


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
def test_a_schema_has_no_flaw(schema: dict[str, Any]) -> None:
    assert flaw(schema) is None


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
def test_what_keeps_it_from_being_a_schema_is_named(schema: dict[str, Any], path: str) -> None:
    found = flaw(schema)
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
def test_a_schema_that_leads_back_to_itself_without_end_is_flawed(schema: dict[str, Any]) -> None:
    assert isinstance(flaw(schema), Flaw)


def test_what_a_reference_points_at_is_a_schema_too() -> None:
    assert flaw({"$ref": "#/aside", "aside": {"type": "text"}}) is not None


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
def test_anything_is_judged_and_nothing_is_raised(schema: dict[str, Any]) -> None:
    found = flaw(schema)
    assert found is None or (found.reason and isinstance(found.path, str))


def test_a_large_schema_of_references_is_judged_quickly() -> None:
    chain = {f"n{i}": {"allOf": [{"$ref": f"#/$defs/n{i + 1}"}]} for i in range(5000)}
    started = time.process_time()
    assert flaw({"$ref": "#/$defs/n0", "$defs": {**chain, "n5000": {}}}) is None
    assert flaw({"$ref": "#/$defs/n0", "$defs": {**chain, "n5000": {"$ref": "#"}}}) is not None
    assert time.process_time() - started < 2
