from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.core.errors import UsageError
from podium.core.patterns import MOST_STEPS, Patience, PatienceLost, compiled

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
    r"^a\Z",
    "^[]\\-x]+$",
    r"^[\w-]*[^\d\s]$",
    "^$",
    "(^a|b$)",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(st.text("abcdx01_-@. \n]é٣", max_size=8))
def test_a_search_finds_what_python_finds(pattern: str, text: str) -> None:
    assert compiled(pattern).search(text, Patience()) == bool(re.search(pattern, text))


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a*)*b", "a*a*a*a*a*a*c"])
def test_what_would_keep_python_busy_for_ever_ends(pattern: str) -> None:
    patience = Patience()
    assert not compiled(pattern).search("a" * 2000 + "!", patience)
    assert patience.steps > 0


def test_patience_is_lost_in_the_end_and_shared() -> None:
    patience = Patience(MOST_STEPS)
    pattern = compiled("^(a|b)*c")
    assert not pattern.search("ab" * 10_000, patience)
    with pytest.raises(PatienceLost):
        pattern.search("ab" * 100_000, patience)
    with pytest.raises(PatienceLost):
        pattern.search("", patience)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "is not a regular expression"),
        ("(?=a)b", "looking around"),
        ("(?<!a)b", "looking around"),
        (r"(a)\1", "back references"),
        ("(?>a)", "atomic groups"),
        ("(?i)a", "flags"),
        ("(?i:a)", "flags"),
        ("(a{1000}){1000}", "too large"),
        ("a" * 3000, "too large"),
        (f"[{''.join(chr(n) + '-' + chr(n + 1) for n in range(300, 600, 3))}]", "too large"),
    ],
)
def test_what_cannot_be_searched_for_in_bounded_time_is_refused(pattern: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        compiled(pattern)
