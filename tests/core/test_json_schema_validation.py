from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.core import json_schema
from podium.core.errors import UsageError
from podium.core.json_schema import (
    InvalidSchema,
    check_schema,
    find_mismatch,
    is_valid,
)

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"$ref": "#/$defs/age"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}


def test_text_that_fits_has_no_mismatch() -> None:
    check_schema(PERSON)
    assert find_mismatch('{"name": "Ann", "age": 3}', PERSON) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Ann", "it is not JSON"),
        ('```json\n{"name": "Ann"}\n```', "it is not JSON"),
        ('{"name": "Ann", "age": NaN}', "NaN is no JSON number"),
        ('{"age": 3}', "at the top: 'name' is a required property"),
        ('{"name": "Ann", "age": -1}', "at age: -1 is less than the minimum of 0"),
        ('{"name": "Ann", "job": "x"}', "at the top: Additional properties are not allowed"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_a_mismatch_names_location_and_rule(text: str, problem: str) -> None:
    assert problem in (find_mismatch(text, PERSON) or "")


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(find_mismatch(f'{{"name": {list(range(1000))}}}', PERSON) or "") < 400


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "number or so"}, "expected a JSON Schema, but at type:"),
        ({"properties": []}, "expected a JSON Schema, but at properties:"),
        ({"$ref": "https://example.org/person.json"}, "which is not in it.*nothing is fetched"),
        ({"$ref": "#/$defs/none"}, "which is not in it"),
        ({"$dynamicRef": "#none"}, "which is not in it"),
        ({"pattern": "("}, "the pattern '\\(' is not supported: missing \\)"),
        ({"patternProperties": {"[": {}}}, "the pattern '\\[' is not supported"),
    ],
)
def test_an_invalid_schema_is_rejected(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        check_schema(schema)


def test_a_valid_schema_is_cached_and_an_invalid_one_rejected_each_time() -> None:
    schema = {"type": "object", "title": "checked once"}
    check_schema(schema)
    known = json_schema._check_schema.cache_info().hits
    check_schema(dict(schema))
    assert json_schema._check_schema.cache_info().hits == known + 1
    for _ in range(2):
        with pytest.raises(UsageError):
            check_schema({"type": 7})


def test_a_very_long_schema_is_not_cached() -> None:
    before = json_schema._check_schema.cache_info().currsize
    check_schema({"description": "x" * json_schema.MAX_CACHED_CHARS})
    assert json_schema._check_schema.cache_info().currsize == before


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf")])
def test_a_schema_that_is_not_json_is_rejected(value: object) -> None:
    with pytest.raises(UsageError, match="it is not JSON"):
        check_schema({"enum": [value]})


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"$id": 7}, "$id"),
        ({"$schema": 5}, "$schema"),
        ({"properties": {"a": {"type": "text"}}}, "properties.a.type"),
        ({"dependentRequired": {"a": 1}}, "dependentRequired.a"),
        ({"$ref": "#"}, ""),
    ],
)
def test_an_invalid_schema_names_the_location(schema: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        check_schema(schema)
    assert caught.value.path == path
    assert caught.value.reason


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "Ann", "age": "SECRET"}', "at age: it breaks the rule 'type' of the schema"),
        ('"SECRET"', "at the top: it breaks the rule 'type' of the schema"),
        ('{"SECRET": 1}', "at the top: it breaks the rule 'required' of the schema"),
        ("{SECRET", "it is not JSON: Expecting property name enclosed in double quotes"),
    ],
)
def test_an_unquoted_mismatch_repeats_nothing_of_the_text(text: str, problem: str) -> None:
    result = find_mismatch(text, PERSON, quotes=False) or ""
    assert result.startswith(problem)
    assert "SECRET" not in result


def test_an_unquoted_mismatch_hides_property_names_of_the_text() -> None:
    schema = {"properties": {"of": {"items": {"additionalProperties": {"type": "integer"}}}}}
    text = '{"of": [{"SECRET": "SECRET"}]}'
    assert "at of.0.SECRET: 'SECRET' is not" in (find_mismatch(text, schema) or "")
    expected = "at of.0.…: it breaks the rule 'type' of the schema"
    assert find_mismatch(text, schema, quotes=False) == expected
    assert find_mismatch("1", {"$defs": {"no": False}, "$ref": "#/$defs/no"}, quotes=False) == (
        "at the top: it breaks the rule 'false' of the schema"
    )
    assert find_mismatch('{"of": []}', schema, quotes=False) is None


def test_a_looping_schema_is_a_mismatch_and_no_crash() -> None:
    assert "without end" in (find_mismatch("1", {"$ref": "#"}) or "")


KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "$ref",
        "anyOf",
        "not",
        "pattern",
        "multipleOf",
        "enum",
        "const",
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers()
    | st.sampled_from(["object", "string", "#", "#/properties", "a*", "("]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS | st.text(max_size=2), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(KEYWORDS, VALUES, max_size=4), VALUES)
@settings(max_examples=200, deadline=None)
def test_any_accepted_schema_validates_any_value_without_raising(
    schema: dict[str, Any], value: object
) -> None:
    try:
        check_schema(schema)
    except UsageError:
        return
    assert find_mismatch(json.dumps(value), schema) != ""


MEAN = "^(a+)+$"


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": MEAN},
        {"propertyNames": {"pattern": MEAN}, "minProperties": 9},
        {"patternProperties": {MEAN: False}, "minProperties": 9},
        {"patternProperties": {MEAN: {}}, "additionalProperties": False},
    ],
)
def test_a_pattern_that_backtracks_in_python_ends_at_once(schema: dict[str, Any]) -> None:
    check_schema(schema)
    word = "a" * 5000 + "!"
    text = json.dumps(word if "pattern" in schema else {word: 1})
    assert find_mismatch(text, schema) is not None


@pytest.mark.parametrize("pattern", ["[[a]", "[a&&b]", "[a||b]"])
def test_a_pattern_python_would_warn_about_gives_no_warning(pattern: str) -> None:
    schema = {"type": "object", "properties": {"n": {"pattern": pattern}}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_schema(schema)
        assert is_valid({"n": "a"}, schema)


def doubling(depth: int) -> dict[str, Any]:
    """A short schema that is gone through two to the power of its depth times."""
    return {
        "$ref": "#/$defs/d0",
        "$defs": {
            **{f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)},
            f"d{depth}": {"type": "integer"},
        },
    }


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (doubling(40), '"x"'),
        ({"type": "array", "items": {"enum": list(range(1000))}}, json.dumps([-1] * 1000)),
        ({"type": "array", "items": {"oneOf": [{}] * 1000}}, json.dumps([0] * 1000)),
        ({"type": "array", "uniqueItems": True}, json.dumps([{"n": n} for n in range(1000)])),
        (
            {"type": "array", "items": {"properties": {f"p{n}": {} for n in range(1000)}}},
            json.dumps([{}] * 1000),
        ),
    ],
    ids=["references that double", "long choices", "many alternatives", "unlike things", "names"],
)
def test_a_schema_that_takes_too_long_is_stopped(
    schema: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schema, "MAX_STEPS", 200_000)
    check_schema(schema)
    assert "takes too long" in (find_mismatch(text, schema) or "")
    assert not is_valid(json.loads(text), schema)


@pytest.mark.parametrize("items", [[str(n) for n in range(5000)], [n / 2 for n in range(5000)]])
def test_many_sortable_items_are_checked_for_uniqueness(items: list[object]) -> None:
    assert find_mismatch(json.dumps(items), {"type": "array", "uniqueItems": True}) is None


def test_a_long_reply_to_a_plain_schema_is_validated() -> None:
    item = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10)}}
    schema = {"type": "array", "items": {**item, "required": [f"p{n}" for n in range(10)]}}
    reply = json.dumps([{f"p{n}": "x" for n in range(10)}] * 4_000)
    assert find_mismatch(reply, schema) is None


def test_a_reply_too_long_for_the_patterns_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"items": {"pattern": "^(a|b)*$"}}
    words = ["ab" * 10_000] * 100
    assert find_mismatch(json.dumps(words), schema) is None
    monkeypatch.setattr(json_schema, "MAX_STEPS", 200_000)
    assert "too long" in (find_mismatch(json.dumps(words), schema) or "")
    assert not is_valid(words, schema)


def test_pattern_properties_apply_by_name() -> None:
    schema: dict[str, Any] = {
        "properties": {"id": {"type": "integer"}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": {"type": "null"},
    }
    assert find_mismatch('{"id": 1, "x-a": "b", "other": null}', schema) is None
    assert "at x-a: 1 is not of type" in (find_mismatch('{"x-a": 1}', schema) or "")
    assert "at other: 1 is not of type" in (find_mismatch('{"other": 1}', schema) or "")
    closed = schema | {"additionalProperties": False}
    assert "'other' is one" in (find_mismatch('{"other": 1}', closed) or "")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"pattern": "(?=a)b"}, "without lookaround"),
        ({"patternProperties": {"(?=a)b": {}}}, "without lookaround"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "not checked together"),
    ],
)
def test_unsupported_patterns_are_rejected(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        check_schema(schema)
