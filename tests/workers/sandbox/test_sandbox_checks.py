"""Checks of programs: apart from the program by default, and together where they must be."""

from __future__ import annotations

import pytest

from podium.workers.sandbox import ProgramLimits, run_check

WAYS = pytest.mark.parametrize("in_process", [False, True], ids=["separate", "in_process"])

CASES = """
import unittest
class TestCases(unittest.TestCase):
    def test_double(self):
        self.assertEqual(double(2), {answer})
"""


async def problem(
    program: str, check: str, *, in_process: bool = False, prelude: str = ""
) -> str | None:
    outcome = await run_check(program, check, in_process=in_process, prelude=prelude)
    assert outcome.output == ""
    return outcome.problem


@WAYS
async def test_a_check_passes_or_says_what_is_wrong(in_process: bool) -> None:
    program = "def double(number): return 2 * number"
    assert await problem(program, "assert double(2) == 4", in_process=in_process) is None
    wrong = await problem(program, "assert double(2) == 5, 'not five'", in_process=in_process)
    assert wrong == "AssertionError: not five"
    assert "NameError" in str(
        await problem(program, "assert triple(2) == 6", in_process=in_process)
    )


@WAYS
async def test_cases_of_unittest_are_run(in_process: bool) -> None:
    program = "def double(number): return 2 * number"
    assert await problem(program, CASES.format(answer=4), in_process=in_process) is None
    wrong = await problem(program, CASES.format(answer=5), in_process=in_process)
    assert "test_double" in str(wrong)
    assert "4 != 5" in str(wrong)


@WAYS
async def test_prelude_is_visible_to_program_and_check(in_process: bool) -> None:
    check = "assert double(two()) == 4"
    program = "def double(number): return number * two()"
    assert (
        await problem(program, check, in_process=in_process, prelude="def two(): return 2") is None
    )


@WAYS
async def test_main_block_of_a_program_is_skipped(in_process: bool) -> None:
    program = "def one(): return 1\nif __name__ == '__main__': raise SystemExit(1)"
    assert await problem(program, "assert one() == 1", in_process=in_process) is None


@WAYS
async def test_a_program_that_fails_to_load_has_the_reason_as_its_problem(in_process: bool) -> None:
    wrong = await problem("import no_such_module", "assert f() == 1", in_process=in_process)
    assert "no_such_module" in str(wrong)
    assert "ModuleNotFoundError" in str(wrong)
    assert "not valid Python" in str(await problem("def (", "assert f()", in_process=in_process))


@WAYS
async def test_a_check_that_takes_too_long_is_ended(in_process: bool) -> None:
    limits = ProgramLimits(cpu_seconds=1, wall_seconds=0.5)
    program = "import time\ndef wait(): time.sleep(600)"
    outcome = await run_check(program, "wait()", in_process=in_process, limits=limits)
    assert outcome.problem == "timed out"


async def test_a_program_that_computes_too_long_gets_the_blame_and_not_its_check() -> None:
    limits = ProgramLimits(cpu_seconds=1, wall_seconds=20)
    program = "def work():\n    while True: pass"
    outcome = await run_check(program, "work()", limits=limits)
    assert outcome.problem == "exceeded the CPU time limit"


@pytest.mark.parametrize(
    "value",
    [
        "None",
        "True",
        "-0.5",
        "float('inf')",
        "2 ** 20000",
        "'text \\u00e9 \\ud800'",
        "b'bytes'",
        "1 + 2j",
        "[1, (2, [3]), {4: {5}}]",
        "frozenset({1})",
        "{(1, 2): ['a'], None: 3}",
        "__import__('decimal').Decimal('1.10')",
        "__import__('fractions').Fraction(1, 3)",
        "__import__('datetime').datetime(2024, 2, 29, 1, 2)",
        "__import__('datetime').date(2024, 2, 29)",
    ],
)
async def test_values_cross_both_ways_and_stay_what_they_are(value: str) -> None:
    program = f"def given(value): return (value == {value}, value)"
    check = f"wanted = {value}\nassert given(wanted) == (True, wanted)\n"
    check += "assert type(given(wanted)[1]) is type(wanted)"
    assert await problem(program, check) is None


async def test_objects_of_the_program_stay_there_and_can_be_used() -> None:
    program = """
class Node:
    def __init__(self, value): self.value, self.next = value, None
    def __len__(self): return 1
    def __iter__(self): return iter([self.value])
    def __getitem__(self, key): return key * 2
    def __str__(self): return f"node {self.value}"
def second(node): return node.next
"""
    check = """
first, other = Node(1), Node(value=2)
first.next = other
assert second(first) == other and second(first) != first
assert second(first).value == 2
assert len(first) == 1 and list(first) == [1] and first[4] == 8 and str(first) == "node 1"
assert {first: 1}[first] == 1
"""
    assert await problem(program, check) is None


async def test_functions_of_the_check_cannot_be_handed_over() -> None:
    program = "def apply(function): return function(2)"
    wrong = await problem(program, "def twice(n): return 2 * n\nassert apply(twice) == 4")
    assert "cannot be passed to the program" in str(wrong)
    assert await problem(program, "assert apply(str) == '2'") is None


async def test_errors_of_the_program_are_errors_of_the_check() -> None:
    program = """
class Own(Exception): pass
def fail(form): raise {"value": ValueError, "own": Own}[form]("so it is")
"""
    check = """
try:
    fail("value")
except ValueError as error:
    assert str(error) == "so it is"
else:
    assert False
fail("own")
"""
    assert await problem(program, check) == "ProgramError: Own: so it is"


async def test_a_check_about_a_function_that_is_called_like_a_built_in_one_calls_the_program() -> (
    None
):
    assert await problem("def sum(a, b): return a * b", "assert sum(2, 5) == 10") is None
    assert "AssertionError" in str(
        await problem("def sum(items): return 3\ndef f(): return [1]", "assert sum(f()) == 3")
    )


async def test_a_check_that_ends_early_has_not_passed() -> None:
    assert "SystemExit" in str(await problem("def one(): return 1", "raise SystemExit(0)"))


async def test_a_check_may_replace_parts_of_modules_where_it_is_together() -> None:
    program = "import os\ndef where(): return os.getcwd()"
    check = """
from unittest.mock import patch
with patch("os.getcwd", return_value="nowhere"):
    assert where() == "nowhere"
"""
    assert await problem(program, check, in_process=True) is None


async def test_parts_that_a_check_skips_are_skipped() -> None:
    check = (
        CASES.format(answer=4)
        + """
    @unittest.skip("another day")
    def test_triple(self):
        self.assertEqual(triple(2), 6)
"""
    )
    assert await problem("def double(number): return 2 * number", check, in_process=True) is None
