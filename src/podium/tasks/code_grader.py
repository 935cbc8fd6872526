"""The grader of programs, which runs them against tests in the sandbox.

`tests` are inputs with their outputs. A `check` is Python that uses the program's names and raises
if it is wrong, or has `unittest` cases, as in HumanEval, MBPP and BigCodeBench.
"""

from __future__ import annotations

import json
import warnings
from contextlib import aclosing
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import ClassVar, Final

from pydantic import ConfigDict

from podium.core.errors import ConfigError
from podium.tasks.answers import extract_answer, quote, strip_fence
from podium.workers.sandbox import (
    DEFAULT_LIMITS,
    ProgramLimits,
    require_sandbox,
    run_check,
    run_program,
)

LONGEST_PROGRAM: Final = 100_000
"""Characters of a program that is run."""

_STRICT: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class ProgramTest:
    """The input of a program and its expected output.

    For a function, `input` is one JSON value a line, an argument each, and `output` is JSON.
    """

    __pydantic_config__: ClassVar = _STRICT

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class CodeGrader:
    """A program that passes every test: one that reads standard input and writes to standard
    output or, where there is a `function`, one that defines it, alone or in a class `Solution`.
    With a `check` instead of tests, one that the check passes; `before` is run first, for what a
    program may leave out because the question had it, and `together` runs the check in the
    program's own process, for what cannot be checked from another.

    As in LiveCodeBench, lines are compared without the space around them, and numbers by value
    but without tolerance.
    """

    __pydantic_config__: ClassVar = _STRICT

    tests: tuple[ProgramTest, ...] = ()
    function: str | None = None
    check: str = ""
    before: str = ""
    together: bool = False
    limits: ProgramLimits = DEFAULT_LIMITS
    tagged: bool = False

    def __post_init__(self) -> None:
        if bool(self.tests) == bool(self.check.strip()):
            raise ConfigError("the grader `code` needs at least one test in `tests`, or a `check`")
        if self.check and self.function is not None:
            raise ConfigError("a `check` calls what it needs by itself: leave `function` out")
        if (self.before or self.together) and not self.check:
            raise ConfigError("`before` and `together` go with a `check`, not with `tests`")
        if self.check:
            _require_python(self.check)
        if self.function is not None:
            for test in self.tests:
                _require_json(test.output)
        require_sandbox()

    async def __call__(self, answer: str) -> bool:
        """Run the program in the reply until the first failure."""
        return await self.problem_with(answer) is None

    async def problem_with(self, answer: str) -> str | None:
        """Return why the program in the reply fails; None if it passes."""
        text = extract_answer(answer, tagged=self.tagged)
        program = None if text is None else strip_fence(text)
        if not program:
            return "there is no program"
        if len(program) > LONGEST_PROGRAM:
            return "the program is too long"
        if not self.check:
            return await self._problem_in_tests(program)
        outcome = await run_check(
            program, self.check, before=self.before, together=self.together, limits=self.limits
        )
        return outcome.problem

    async def _problem_in_tests(self, program: str) -> str | None:
        inputs = [test.input for test in self.tests]
        passed = 0
        async with aclosing(
            run_program(program, inputs, function=self.function, limits=self.limits)
        ) as outcomes:
            async for outcome in outcomes:
                if outcome.problem is not None:
                    return outcome.problem
                if not self._is_right(outcome.output, self.tests[passed].output):
                    return f"another output than that of test {passed + 1} was expected"
                passed += 1
        return None if passed == len(self.tests) else "it was not tested to the end"

    def _is_right(self, output: str, wanted: str) -> bool:
        if self.function is None:
            return same_output(output, wanted)
        try:
            return bool(json.loads(output) == json.loads(wanted))
        except (ValueError, RecursionError):
            return False


def same_output(output: str, wanted: str) -> bool:
    """True if two outputs are equal line by line."""
    mine, theirs = _lines(output), _lines(wanted)
    return len(mine) == len(theirs) and all(
        one == other or _same_numbers(one, other) for one, other in zip(mine, theirs, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _same_numbers(line: str, wanted: str) -> bool:
    mine, theirs = line.split(), wanted.split()
    try:
        return len(mine) == len(theirs) and all(
            Decimal(one) == Decimal(other) for one, other in zip(mine, theirs, strict=True)
        )
    except InvalidOperation:
        return False


def _require_python(check: str) -> None:
    try:
        with warnings.catch_warnings():  # about old ways of writing, which are not ours to change
            warnings.simplefilter("ignore")
            compile(check, "check.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"the `check` is not valid Python: {error}") from error


def _require_json(text: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"what a function must return is written as JSON, and {quote(text)} is not"
        ) from error
