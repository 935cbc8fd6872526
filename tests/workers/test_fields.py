from types import MappingProxyType

import pytest

from podium.workers import fields
from podium.workers.fields import MalformedReply


def test_missing_and_null_fields_read_as_none() -> None:
    for document in ({}, {"key": None}):
        assert fields.get_text(document, "key") == ""
        assert fields.get_object(document, "key") == {}
        assert fields.get_objects(document, "key") == []
        assert fields.get_count(document, "key") is None


def test_values_of_another_type_are_named() -> None:
    document = {"key": 3.5}
    for read in (fields.get_text, fields.get_object, fields.get_objects, fields.get_count):
        with pytest.raises(MalformedReply, match="as key, got float '3.5'"):
            read(document, "key")


def test_half_a_character_becomes_a_replacement_mark() -> None:
    document = fields.parse_object(b'{"key": "a\\ud83d b\\ud83d\\ude00 c\\ude00 \xc3\xa9"}')
    read = fields.get_text(document, "key")
    assert read == "a\ufffd b\U0001f600 c\ufffd é"
    assert read.encode().decode() == read


@pytest.mark.parametrize("number", [-1, 10**13, True])
def test_a_count_can_be_reckoned_with(number: int) -> None:
    with pytest.raises(MalformedReply, match="expected a count"):
        fields.get_count({"key": number}, "key")


def test_any_kind_of_mapping_is_written() -> None:
    document = {
        "schema": MappingProxyType({"type": "object", "required": ("a",)}),
        "text": "é\ud800",
    }
    written = b'{"schema":{"type":"object","required":["a"]},"text":"\\u00e9\\ud800"}'
    assert fields.dump_json(document) == written
