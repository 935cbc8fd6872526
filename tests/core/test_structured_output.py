from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.core import structured_output as structure
from podium.core.errors import UsageError
from podium.core.structured_output import (
    UnsoundSchema,
    fits,
    misfit,
    misfit_unquoted,
    require_sound,
)

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"$ref": "#/$defs/age"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}


def test_what_fits_has_no_misfit() -> None:
    require_sound(PERSON)
    assert misfit('{"name": "Ann", "age": 3}', PERSON) is None


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
def test_a_misfit_says_where_and_what(text: str, problem: str) -> None:
    assert problem in (misfit(text, PERSON) or "")


def test_a_long_value_does_not_make_a_long_problem() -> None:
    assert len(misfit(f'{{"name": {list(range(1000))}}}', PERSON) or "") < 400


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "number or so"}, "expected a JSON Schema, but at type:"),
        ({"properties": []}, "expected a JSON Schema, but at properties:"),
        ({"$ref": "https://example.org/person.json"}, "which is not in it.*nothing is fetched"),
        ({"$ref": "#/$defs/none"}, "which is not in it"),
        ({"$dynamicRef": "#none"}, "which is not in it"),
        ({"pattern": "("}, "at pattern: '\\(' is not a 'regex'"),
        ({"patternProperties": {"[": {}}}, "is not a 'regex'"),
    ],
)
def test_what_is_no_schema_is_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        require_sound(schema)


def test_a_sound_schema_is_checked_once_and_an_unsound_one_is_refused_every_time() -> None:
    schema = {"type": "object", "title": "checked once"}
    require_sound(schema)
    known = structure._require_sound.cache_info().hits
    require_sound(dict(schema))
    assert structure._require_sound.cache_info().hits == known + 1
    for _ in range(2):
        with pytest.raises(UsageError):
            require_sound({"type": 7})


def test_a_very_long_schema_is_checked_and_not_remembered() -> None:
    before = structure._require_sound.cache_info().currsize
    require_sound({"description": "x" * structure.LONGEST_REMEMBERED})
    assert structure._require_sound.cache_info().currsize == before


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf")])
def test_what_is_not_even_json_is_no_schema(value: object) -> None:
    with pytest.raises(UsageError, match="it is not JSON"):
        require_sound({"enum": [value]})


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
def test_where_a_schema_is_unsound_is_told(schema: dict[str, Any], path: str) -> None:
    with pytest.raises(UnsoundSchema) as caught:
        require_sound(schema)
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
def test_a_misfit_can_be_told_without_a_word_of_the_text(text: str, problem: str) -> None:
    told = misfit_unquoted(text, PERSON) or ""
    assert told.startswith(problem)
    assert "SECRET" not in told


def test_names_that_only_the_text_has_are_not_told_as_a_place() -> None:
    schema = {"properties": {"of": {"items": {"additionalProperties": {"type": "integer"}}}}}
    text = '{"of": [{"SECRET": "SECRET"}]}'
    assert "at of.0.SECRET: 'SECRET' is not" in (misfit(text, schema) or "")
    expected = "at of.0.…: it breaks the rule 'type' of the schema"
    assert misfit_unquoted(text, schema) == expected
    assert misfit_unquoted("1", {"$defs": {"no": False}, "$ref": "#/$defs/no"}) == (
        "at the top: it breaks the rule 'false' of the schema"
    )
    assert misfit_unquoted('{"of": []}', schema) is None


def test_a_schema_that_refers_to_itself_without_end_is_a_misfit_and_no_crash() -> None:
    assert "without end" in (misfit("1", {"$ref": "#"}) or "")


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
def test_whatever_passes_for_a_schema_can_be_held_against_whatever_is_said(
    schema: dict[str, Any], value: object
) -> None:
    try:
        require_sound(schema)
    except UsageError:
        return
    assert misfit(json.dumps(value), schema) != ""


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
def test_a_pattern_that_backtracks_for_ever_blocks_nobody(schema: dict[str, Any]) -> None:
    require_sound(schema)
    word = "a" * 5000 + "!"
    text = json.dumps(word if "pattern" in schema else {word: 1})
    assert misfit(text, schema) is not None


@pytest.mark.parametrize("pattern", ["[[a]", "[a&&b]", "[a||b]"])
def test_a_pattern_that_python_may_read_otherwise_one_day_writes_no_warning(pattern: str) -> None:
    schema = {"type": "object", "properties": {"n": {"pattern": pattern}}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_sound(schema)
        assert fits({"n": "a"}, schema)


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
def test_a_schema_that_takes_too_long_to_be_held_against_blocks_nobody(
    schema: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure, "MOST_STEPS", 200_000)
    require_sound(schema)
    assert "takes too long" in (misfit(text, schema) or "")
    assert not fits(json.loads(text), schema)


@pytest.mark.parametrize("items", [[str(n) for n in range(5000)], [n / 2 for n in range(5000)]])
def test_many_things_that_can_be_sorted_are_found_unlike(items: list[object]) -> None:
    assert misfit(json.dumps(items), {"type": "array", "uniqueItems": True}) is None


def test_a_long_reply_of_a_plain_form_is_not_too_long() -> None:
    item = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10)}}
    schema = {"type": "array", "items": {**item, "required": [f"p{n}" for n in range(10)]}}
    reply = json.dumps([{f"p{n}": "x" for n in range(10)}] * 4_000)
    assert misfit(reply, schema) is None


def test_a_reply_too_long_for_the_patterns_is_a_misfit() -> None:
    schema = {"items": {"pattern": "^(a|b)*$"}}
    words = ["ab" * 10_000] * 100
    assert "too long" in (misfit(json.dumps(words), schema) or "")
    assert not fits(words, schema)


def test_names_may_be_given_by_patterns() -> None:
    schema: dict[str, Any] = {
        "properties": {"id": {"type": "integer"}},
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": {"type": "null"},
    }
    assert misfit('{"id": 1, "x-a": "b", "other": null}', schema) is None
    assert "at x-a: 1 is not of type" in (misfit('{"x-a": 1}', schema) or "")
    assert "at other: 1 is not of type" in (misfit('{"other": 1}', schema) or "")
    closed = schema | {"additionalProperties": False}
    assert "'other' is one" in (misfit('{"other": 1}', closed) or "")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"pattern": "(?=a)b"}, "looking around"),
        ({"patternProperties": {"(?=a)b": {}}}, "looking around"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "not checked together"),
    ],
)
def test_patterns_that_cannot_be_checked_are_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        require_sound(schema)
