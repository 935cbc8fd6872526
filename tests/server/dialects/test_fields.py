"""Readers of untrusted JSON: what they take, what they refuse, and that the field is named."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.server.api_error import ApiError
from podium.server.dialects import content
from podium.server.dialects import fields as reading
from podium.server.dialects import request as params_module
from podium.server.dialects.fields import Reader
from support.readers import refusal


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ApiError, match=r"a\.model is required, but it is missing") as caught:
        reading.read_object({}, "a").required("model", reading.text)
    assert caught.value.field == "a.model"


def test_a_null_required_field_is_distinguished_from_a_missing_one() -> None:
    with pytest.raises(ApiError, match="it is null"):
        reading.read_object({"model": None}).required("model", reading.text)


def test_an_optional_field_may_be_null() -> None:
    assert reading.read_object({"model": None}).optional("model", reading.text) is None


def test_an_unknown_field_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ApiError, match="did you mean 'temperature'") as caught:
        reading.read_object({"temprature": 1}, "deep").reject_unknown({"temperature", "top_p"})
    assert caught.value.field == "deep.temprature"


def test_a_very_long_unknown_field_is_cut_in_the_message() -> None:
    with pytest.raises(ApiError) as caught:
        reading.read_object({"x" * 100_000: 1}).reject_unknown({"model"})
    assert len(str(caught.value)) < 500


def test_an_unknown_field_with_half_a_character_can_be_written_in_a_response() -> None:
    with pytest.raises(ApiError) as caught:
        reading.read_object({"\ud800": 1}).reject_unknown({"model"})
    assert str(caught.value).encode()
    assert (caught.value.field or "").encode()


def unknown_keys(value: Any, *known: str, path: str = "") -> list[reading.UnknownKey]:
    unknown = reading.collect_unknown()
    reading.read_object(value, path).note_unknown(frozenset(known))
    return unknown


def test_an_expected_object_may_have_other_keys_which_are_noted() -> None:
    (key,) = unknown_keys({"a": 1, "b": 2}, "a", path="deep")
    assert (key.path, key.name) == ("deep", "b")
    assert str(key.error()) == "unexpected option 'deep.b'; use one of a"


def test_an_unknown_key_without_a_value_is_not_noted() -> None:
    assert unknown_keys({"a": 1, "b": None}, "a") == []


def test_keys_are_noted_only_where_they_are_collected() -> None:
    reading.read_object({"b": 1}).note_unknown(frozenset())
    assert unknown_keys({}) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [[[]]] * 30_000, object()])
def test_an_unknown_value_that_no_response_can_repeat_is_refused(value: object) -> None:
    with pytest.raises(ApiError):
        unknown_keys({"b": value}, "a")


def test_a_body_of_unknown_keys_alone_is_not_collected_whole() -> None:
    found = unknown_keys({f"key{n}": n for n in range(10_000)})
    assert len(found) == reading.MAX_UNKNOWN


def test_a_header_names_the_keys() -> None:
    keys = [*unknown_keys({"x": 1}, path="messages.0"), *unknown_keys({"y": 1, "z": 2})]
    assert reading.format_unknown(keys) == "messages.0.x, y, z"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\r\nSet-Cookie: b=c", "a%0D%0ASet-Cookie%3A%20b%3Dc"),
        ("a, b", "a%2C%20b"),
        ("a.b", "a.b"),
        ("\0", "%00"),
        ("é", "%C3%A9"),
        ("\ud800", "%5Cud800"),
        ("", ""),
    ],
)
def test_a_header_cannot_be_broken_by_a_key(name: str, shown: str) -> None:
    assert reading.format_unknown([reading.UnknownKey("", name, ())]) == shown


@given(st.lists(st.text(), max_size=200, unique=True))
def test_a_header_is_printable_and_short(names: list[str]) -> None:
    header = reading.format_unknown(unknown_keys(dict.fromkeys(names, 1)))
    assert len(header) <= reading.MAX_HEADER_BYTES
    assert header.isascii()
    assert header.isprintable()


def test_a_header_that_is_cut_says_so() -> None:
    header = reading.format_unknown(unknown_keys({f"{n:040}": n for n in range(100)}))
    assert header.endswith(", ...")
    assert len(header) <= reading.MAX_HEADER_BYTES


@pytest.mark.parametrize("body", [None, [], "text", 1, True])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(ApiError, match="the body: expected an object"):
        reading.read_object(body)


@pytest.mark.parametrize("value", [None, 1, ["a"], {}])
def test_a_text_is_nothing_else(value: object) -> None:
    assert "expected a string" in str(refusal(reading.text, value))


def test_half_a_surrogate_pair_is_no_text() -> None:
    assert "surrogate" in str(refusal(reading.text, "a\ud83d"))


def test_a_whole_character_outside_the_first_plane_is_a_text() -> None:
    assert reading.text("😀", "field") == "😀"


def test_a_long_text_is_not_repeated_in_a_message() -> None:
    said = str(refusal(reading.number(0, 1), "secret " * 100))
    assert "secret" not in said
    assert "700 characters" in said


@pytest.mark.parametrize(
    "value", [-0.1, 2.1, float("nan"), float("inf"), 10**400, True, "1", None, [1]]
)
def test_a_number_out_of_its_range_is_refused(value: object) -> None:
    assert "expected a number from 0 to 2" in str(refusal(reading.number(0, 2), value))


@pytest.mark.parametrize("value", [0, 3, 1.5, float("inf"), False, "2", 10**400])
def test_a_whole_number_out_of_its_range_is_refused(value: object) -> None:
    assert "expected an integer from 1 to 2" in str(refusal(reading.integer(1, 2), value))


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert reading.integer(1)(5.0, "field") == 5


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_a_flag_is_true_or_false_and_nothing_else(value: object) -> None:
    assert "true or false" in str(refusal(reading.flag, value))


@pytest.mark.parametrize("value", ["c", [], {}, 1, None])
def test_a_choice_is_one_of_its_words(value: object) -> None:
    assert "expected 'a' or 'b'" in str(refusal(reading.choice(("a", "b")), value))


def test_the_place_in_a_list_is_in_the_path() -> None:
    assert refusal(reading.array(reading.text, most=3), ["a", 1], "stop").field == "stop.1"


@pytest.mark.parametrize("value", [[], ["a"] * 4, "abc", {"a": 1}])
def test_a_list_has_bounds(value: object) -> None:
    assert "a list of 1 to 3" in str(refusal(reading.array(reading.text, 3, 1), value))


def test_a_document_that_is_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"inner": deep}
    assert "deep" in str(refusal(reading.json_object, deep))


def test_a_document_with_too_many_values_is_refused() -> None:
    assert "at most" in str(refusal(reading.json_object, {"all": list(range(100_000))}))


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 10**400, "\udc00", {"\udc00": 1}])
def test_a_document_holds_only_what_can_be_passed_on(value: object) -> None:
    assert refusal(reading.json_object, {"a": [value]}).reason == "invalid"


def test_the_most_effort_that_clients_can_ask_for_is_high() -> None:
    assert reading.effort("xhigh", "f") == "high"
    assert reading.effort("minimal", "f") == "minimal"


ANY_TEXT = st.text(st.characters(exclude_categories=()))
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
READERS: list[Reader[Any]] = [
    reading.text,
    reading.bounded_text(1, 5),
    reading.flag,
    reading.number(0, 2),
    reading.integer(0, 9),
    reading.choice(("a", "b")),
    reading.array(reading.text, most=3),
    reading.json_object,
    content.output_schema,
    content.http_url,
    content.image_url,
    reading.effort,
    content.metadata,
    params_module.read_podium_params,
]


def refused(reader: Reader[Any], value: object) -> ApiError | None:
    try:
        reader(value, "field")
    except ApiError as found:
        return found
    return None


@given(st.sampled_from(READERS), ANY_JSON)
def test_a_reader_reads_or_refuses_and_does_nothing_else(reader: Reader[Any], value: Any) -> None:
    if found := refused(reader, value):
        assert found.field
        assert json.dumps([str(found), found.field], ensure_ascii=False).encode()


def test_reading_stays_quick_when_a_body_is_made_to_be_slow() -> None:
    hostile: list[object] = [
        "a" * 2_000_000,
        "data:" + ";base64" * 300_000,
        "https://" + "[" * 1_000_000,
        [[[]]] * 200_000,
        {"data:" * 200_000: ";" * 200_000},
    ]
    started = time.process_time()
    for reader in READERS:
        for value in hostile:
            refused(reader, value)
    assert time.process_time() - started < 2
