from __future__ import annotations

import sys
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.tasks.answers import strip_fence
from podium.tasks.graders import make_grader, same_output

ECHO: dict[str, Any] = {
    "tests": [{"input": "a\n", "output": "a\n"}, {"input": "b\n", "output": "b\n"}]
}


async def is_right(reply: str, grader: str, answer: str = "", **parameters: Any) -> bool:
    return await make_grader(grader, answer, parameters)(reply)


async def test_exact_ignores_case_spaces_and_wrapping_and_nothing_else() -> None:
    assert await is_right(" the  Seine. ", "exact", "The Seine")
    assert await is_right("I think so. <answer>The Seine</answer>", "exact", "The Seine")
    assert not await is_right("The Seine river", "exact", "The Seine")


@pytest.mark.parametrize("name", ["exact", "number", "short", "contains", "math", "letter"])
async def test_a_tagged_grader_requires_marks_and_a_plain_one_does_not(name: str) -> None:
    answer = "C" if name == "letter" else "7"
    assert await is_right(answer, name, answer)
    assert await is_right(answer, name, answer, tagged=True)
    for marked in (f"So \\boxed{{{answer}}}.\nDone.", f"So.\n**Answer: {answer}**"):
        assert await is_right(marked, name, answer, tagged=True), marked
    assert not await is_right(f"First\n{answer}", name, answer, tagged=True)
    assert await is_right(f"<idea>…</idea><answer>{answer}</answer>", name, answer, tagged=True)


@pytest.mark.parametrize("name", ["exact", "number", "short", "contains", "math", "letter"])
@pytest.mark.parametrize("reply", ["", "<answer></answer>", "<answer> \n</answer>", "7" * 100_000])
async def test_an_empty_or_endless_reply_is_wrong_and_no_error(name: str, reply: str) -> None:
    assert not await is_right(reply, name, "C" if name == "letter" else "7")


async def test_a_number_may_have_words_around_it_and_be_off_by_its_tolerance() -> None:
    assert await is_right("<answer>$70,000 in all</answer>", "number", "70000")
    assert await is_right("101", "number", "100", tolerance=0.02)
    assert not await is_right("101", "number", "100")


async def test_short_takes_words_percentages_and_numbers_within_a_thousandth() -> None:
    assert await is_right("carbon dioxide", "short", "Carbon dioxide")
    assert await is_right("0.03", "short", "3%")
    assert await is_right("3.1416", "short", "3.14159")
    assert not await is_right("3.15", "short", "3.14159")


async def test_short_does_not_take_a_number_out_of_words() -> None:
    assert not await is_right("London 1900", "short", "Paris 1900")


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("The capital of Japan is Tokyo.", "Tokyo"),
        ("It is **tokyo**, of course.", "Tokyo"),
        ("It is _Tokyo_.", "Tokyo"),
        ("Twice 21 is 42.", "42"),
        ("That is 70,000 dollars.", "70000"),
        ("0.03", "3%"),
        ("No, it is not.", "no"),
        ("The answer is B.", "B"),
        ("I thought of Kyoto. <answer>It is Tokyo.</answer>", "Tokyo"),
    ],
)
async def test_contains_finds_the_answer_within_sentences(reply: str, answer: str) -> None:
    assert await is_right(reply, "contains", answer)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("The capital is Kyoto.", "Tokyo"),
        ("The Tokyoites live there.", "Tokyo"),
        ("Between 40 and 42.5 of 1,042.", "42"),
        ("From 1 to -42.", "42"),
        ("From 1/42 to 3.", "42"),
        ("Yes, there is no doubt of it.", "no"),
        ("A rose is a rose.", "A"),
        ("Tokyo? <answer>Kyoto</answer>", "Tokyo"),
        (f"Tokyo, and so on{' and on' * 500}", "Tokyo"),
        ("...", "..."),
    ],
)
async def test_contains_takes_no_part_of_a_word_or_number(reply: str, answer: str) -> None:
    assert await is_right(reply, "contains", answer) == (reply == answer)


@pytest.mark.parametrize(
    "reply", ["12.5%", "12.5 percent", "12.5", "0.125", "<answer>12.5 %</answer>"]
)
@pytest.mark.parametrize("answer", ["12.5%", "12.5"])
async def test_a_percentage_may_leave_its_sign_out_or_be_a_share(reply: str, answer: str) -> None:
    assert await is_right(reply, "percent", answer)


@pytest.mark.parametrize("reply", ["0.125%", "13%", "1250", "12.5 or 13", "much", ""])
async def test_another_percentage_is_wrong(reply: str) -> None:
    assert not await is_right(reply, "percent", "12.5%")


async def test_a_percentage_is_compared_within_its_tolerance() -> None:
    assert await is_right("33.3 %", "percent", "33.33")
    assert not await is_right("33.3 %", "percent", "33.33", tolerance=1e-4)


async def test_mathematics_is_compared_by_meaning() -> None:
    assert await is_right("<answer>0.5</answer>", "math", "\\frac{1}{2}", tagged=True)
    assert not await is_right("<answer>0.6</answer>", "math", "\\frac{1}{2}", tagged=True)


def test_without_math_verify_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ConfigError, match=r"math-verify.*\[eval\]"):
        make_grader("math", "7", {})


async def test_a_program_must_pass_every_test() -> None:
    assert await is_right("print(input())", "code", **ECHO)
    assert not await is_right("print('a')", "code", **ECHO)


async def test_a_program_is_taken_from_the_tags_and_from_a_code_fence() -> None:
    reply = "<idea>echo</idea><answer>\n```python\nprint(input())\n```\n</answer>"
    assert await is_right(reply, "code", **ECHO, tagged=True)
    assert not await is_right("print(input())", "code", **ECHO, tagged=True)


async def test_a_program_may_have_a_code_fence_in_its_words() -> None:
    program = 'def f():\n    """\n    ```\n    as here\n    ```\n    """\nprint(input())'
    assert await is_right(program, "code", **ECHO)


async def test_a_function_is_graded_by_what_it_returns() -> None:
    tests: dict[str, Any] = {
        "tests": [{"input": "[1, 2]\n3", "output": "[1, 2, 3]"}],
        "function": "append",
    }
    method = (
        "class Solution:\n  def append(self, values: List[int], value): return values + [value]"
    )
    alone = "def append(values, value):\n  print('noise')\n  return (*values, value)"
    assert await is_right(method, "code", **tests)
    assert await is_right(alone, "code", **tests)
    assert not await is_right("def append(values, value): return values", "code", **tests)
    assert not await is_right("def other(): pass", "code", **tests)


CHECK: dict[str, Any] = {"check": "assert double(2) == 4\nassert double('a') == 'aa'"}


async def test_a_check_runs_after_the_program_and_sees_its_names() -> None:
    assert await is_right("def double(x): return x + x", "code", **CHECK)
    assert not await is_right("def double(x): return x * x", "code", **CHECK)
    assert not await is_right("def triple(x): return x + x + x", "code", **CHECK)
    assert not await is_right("def double(x): return x +", "code", **CHECK)


@pytest.mark.parametrize(
    "program",
    ["raise SystemExit(0)", "import os\nos._exit(0)", "def double(x): raise SystemExit(0)"],
)
async def test_a_program_that_ends_before_its_check_has_not_passed_it(program: str) -> None:
    assert not await is_right(program, "code", **CHECK)


async def test_a_checked_program_is_no_script_and_may_name_what_a_script_may() -> None:
    program = (
        "from __future__ import annotations\n"
        "def double(x: List[int]): return Solution().double(x)\n"
        "class Solution:\n  def double(self, x): return x + x\n"
        "if __name__ == '__main__': double(int(input()))"
    )
    assert await is_right(program, "code", **CHECK, prelude="import math")


async def test_a_program_that_fails_after_the_right_output_is_wrong() -> None:
    assert not await is_right("print(input())\nraise SystemExit(3)", "code", **ECHO)


@pytest.mark.parametrize("reply", ["", "this is not Python", "x" * 200_000])
async def test_non_programs_are_wrong_without_an_error(reply: str) -> None:
    assert not await is_right(reply, "code", **ECHO)


def test_outputs_are_compared_line_by_line_and_numbers_by_value() -> None:
    assert same_output("1 2 \nyes\n\n", "1 2\nyes")
    assert same_output("0.50", "0.5")
    assert not same_output("1\n2", "1 2")
    assert not same_output("Yes", "yes")
    assert not same_output("0.501", "0.5")


def test_a_program_without_a_fence_is_left_alone() -> None:
    assert strip_fence("print('```')") == "print('```')"
    assert strip_fence("Here:\n```\nprint(1)\n```\nDone.") == "print(1)\n"


@pytest.mark.parametrize(
    ("name", "answer", "parameters", "said"),
    [
        ("exat", "a", {}, "unknown grader 'exat'; did you mean `exact`"),
        ("opinion", "a", {}, "unknown grader 'opinion'; there are exact, letter"),
        ("numeric", "a", {}, "did you mean `number`"),
        ("percent", "many", {}, "needs a percentage"),
        ("exact", " ", {}, "answer is missing"),
        ("letter", "Paris", {}, "needs one letter"),
        ("number", "many", {}, "needs a number"),
        ("number", "1", {"tolerance": 2}, "tolerance is a share"),
        ("number", "1", {"tolerance": "wide"}, "tolerance"),
        ("number", "1", {"tolerence": 0.1}, "tolerence"),
        ("code", "", {}, "tests"),
        ("code", "", {"tests": []}, "at least one test"),
        ("code", "", {**ECHO, "limits": {"seconds": 3}}, "limits.seconds"),
        ("code", "", {**ECHO, "limits": {"cpu_seconds": 0}}, "cpu_seconds must be more than 0"),
        ("code", "", {"tests": [{"input": "1"}]}, "tests.0.output"),
        ("code", "", {"tests": [{"input": "1", "output": "a"}], "function": "f"}, "JSON"),
        ("code", "", {**ECHO, "check": "assert True"}, "`tests`, or a `check`"),
        ("code", "", {"check": "assert", "function": "f"}, "leave `function` out"),
        ("code", "", {**ECHO, "prelude": "x = 1"}, "go with a `check`, not with `tests`"),
        ("code", "", {"check": "assert ("}, "not valid Python"),
    ],
)
def test_a_grader_that_could_not_grade_is_an_error_when_it_is_made(
    name: str, answer: str, parameters: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make_grader(name, answer, parameters)
