from __future__ import annotations

import time

import pytest

from podium.engine.execution import short_answer

CODE = "def double(n):\n    return 2 * n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The answer is 42.", "42"),
        ("So she pays 1,200 dollars.\n#### 1200", "1200.0"),
        (r"Hence \boxed{\frac{1}{2}}.", "0.5"),
        ("<answer>B</answer>", "The answer is (B)."),
        ("I think so.\n\n**Answer:** Paris", "paris"),
        ("It is -3", "**-3**"),
        ("It prints\n```\n42\n```", "42"),
        (f"```python\n{CODE}\n```", f"Here it is:\n\n```py\n{CODE}\n```\n"),
    ],
)
def test_the_same_answer_in_other_words_is_the_same(first: str, second: str) -> None:
    assert short_answer(first) == short_answer(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *[("42", "43"), ("3", "-3"), ("Paris", "London"), ("", "42"), ("1/2", "1/3"), ("A", "B")],
        (f"```python\n{CODE}\n```", f"```python\n{CODE} + 1\n```"),
        (f"The answer:\n```python\n{CODE}\n```", f"The answer:\n```python\n{CODE} + 1\n```"),
        ("```python\n#### a\nanswer: int = 0\n```", "```python\n#### a\nanswer: int = 0 + 1\n```"),
        ("```py\nf = lambda x: x + 1\n```", "```py\nf = lambda x: x * 1\n```"),
    ],
)
def test_other_answers_differ(first: str, second: str) -> None:
    assert short_answer(first) != short_answer(second)


def test_a_division_by_zero_equals_no_number() -> None:
    assert short_answer("1/0") == "nan"


@pytest.mark.parametrize("piece", ["\\boxed{", "<answer>", "answer is ", "1,", "{", "#### "])
def test_a_hostile_reply_is_read_in_little_time(piece: str) -> None:
    began = time.process_time()
    short_answer(piece * 100_000)
    assert time.process_time() - began < 1.0
