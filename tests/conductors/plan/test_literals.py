from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.conductors.plan.literals import MAX_DEPTH, BrokenLiteral, Word, scan_list

JSON_VALUES = st.recursive(
    st.none() | st.integers(-999_999_999, 999_999_999) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return depth(list(value.values()))
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(values=st.lists(JSON_VALUES).filter(lambda values: depth(values) <= MAX_DEPTH))
def test_every_json_list_is_read_as_json_reads_it(values: list[object]) -> None:
    for text in (json.dumps(values), json.dumps(values, ensure_ascii=False, indent=1)):
        assert scan_list(text, 0) == (values, len(text))


@given(values=st.lists(st.text() | st.integers(0, 99), max_size=5))
def test_every_python_list_is_read_as_python_reads_it(values: list[object]) -> None:
    assert scan_list(repr(values), 0).values == values


def test_scanning_ends_with_the_list() -> None:
    assert scan_list("x = [1, 2] and more", 4) == ([1, 2], 10)


def test_a_word_without_quotes_is_marked_as_one() -> None:
    values = scan_list("[all, Qwen 3, `7`, None, null, True]", 0).values
    assert values == ["all", "Qwen 3", 7, None, None, "True"]
    assert isinstance(values[0], Word)
    assert not isinstance(scan_list('["all"]', 0).values[0], Word)


def test_overlong_numbers_stay_text() -> None:
    assert scan_list(f"[{'9' * 5000}]", 0).values == [Word("9" * 5000)]


def test_half_a_surrogate_pair_becomes_a_character_that_can_be_sent() -> None:
    values = scan_list(r'["\ud83d\ude00 \ud83d \ude00"]', 0).values
    assert values == ["😀 \ufffd \ufffd"]


def test_an_escape_beyond_unicode_is_kept_as_it_is() -> None:
    assert scan_list(r'["\U0001F600 \UFFFFFFFF"]', 0).values == [r"😀 \UFFFFFFFF"]


def test_comments_are_skipped() -> None:
    assert scan_list("[1, # one\n 2 # two\n]", 0).values == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        *("[", "[1", "[1 2", "[1,", "[1,,2]", "[,]", "[=]", "[" * (MAX_DEPTH + 1), "[1, # [2]\n]"),
        *('["', '["a', '["a" "b"]', "['a", "[“a", '["""a""]', '["\\"]'),
        *("[{]", "[}]", '[{"a"}]', '[{"a": }]', '[{"a": 1', '[{"a": 1 "b": 2}]', "[{a: 1}]"),
    ],
)
def test_invalid_literals_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(BrokenLiteral) as caught:
        scan_list(text, 0)
    assert caught.value.reason


def test_a_million_brackets_do_not_exhaust_the_stack() -> None:
    with pytest.raises(BrokenLiteral, match="nested more than"):
        scan_list("[" * 1_000_000, 0)
