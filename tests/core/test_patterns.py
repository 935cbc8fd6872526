"""Patterns of clients run on RE2: ECMA's meaning, linear time, charged to the allowance."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.core import json_schema
from podium.core.errors import UsageError
from podium.core.json_schema import StepsExceeded, compile_pattern, matches

PATTERNS = [
    "",
    "b",
    "^a+b?$",
    "^(a|b)*c$",
    "(a+)+$",
    "^(ab|a)(c|bcd)?$",
    "^[^a-c_]{2,3}$",
    r"^\d{1,3}(\.\d+)?$",
    r"\bab\b",
    r"\B-",
    r"^\w+@\w+\.\S*$",
    r"a.c|\s",
    "^(?:a{2}){0,2}$",
    "a*?b",
    r"^a\z",
    "^[]\\-x]+$",
    r"^[\w-]*[^\d\s]$",
    "^$",
    "(^a|b$)",
]


def search(pattern: str, text: str) -> bool:
    with json_schema._allowance():
        return matches(pattern, text)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(st.text("abcdx01_-@. \n]", max_size=8))
def test_a_search_finds_what_ecma_finds(pattern: str, text: str) -> None:
    in_python = pattern.replace(r"\z", r"\Z").replace("$", r"\Z")
    assert search(pattern, text) == bool(re.search(in_python, text, re.ASCII))


def test_classes_are_ascii_as_in_ecma_and_letters_can_be_escaped() -> None:
    assert not search(r"^\d$", "٣")
    assert not search(r"^\w$", "é")
    assert search(r"^\u00e9$", "é")
    assert search("^.$", "\ud800")


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b", "a*a*a*a*a*a*c"])
def test_a_pattern_that_backtracks_in_python_ends(pattern: str) -> None:
    assert not search(pattern, "a" * 2000 + "!")


def test_searches_share_one_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "MAX_STEPS", 20_000)
    with json_schema._allowance():
        assert not matches("^(a|b)*c", "ab" * 10_000)
        with pytest.raises(StepsExceeded):
            matches("^(a|b)*c", "ab" * 100_000)
        with pytest.raises(StepsExceeded):
            matches("^(a|b)*c", "")


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing"),
        ("(?=a)b", "without lookaround"),
        ("(?<!a)b", "without lookaround"),
        (r"(a)\1", "backreferences"),
        ("(?>a)", "invalid perl operator"),
        ("(a{1000}){1000}", "invalid repetition size"),
        ("a" * 3000, "longer than 2000 characters"),
        ("\ud800", "not supported"),
    ],
)
def test_a_pattern_that_re2_cannot_run_is_rejected(pattern: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        compile_pattern(pattern)
