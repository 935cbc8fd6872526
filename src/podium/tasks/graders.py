"""The graders: each tells whether a reply gives the right answer, and can be named in a file.

    exact     the same words, case and spaces aside
    letter    the right letter of a multiple choice
    number    the right number, within a relative tolerance; percentages are understood
    short     a few words or a number: exact, else within 1e-3 (the paper's grading of RLPR)
    math      the same mathematics, by math-verify
    code      a program that passes every test

A grader takes its answer from the reply's `<answer>` tags. Where there are none it reads the
whole reply, unless it is `tagged`: then the question demanded the tags, and a reply without
them is wrong. A grader that cannot do its work says so when it is made, not when it grades.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from podium.errors import ConfigError
from podium.task import Grader
from podium.tasks import mathematics
from podium.tasks.answers import (
    LONGEST_ANSWER,
    chosen_letter,
    final_answer,
    only_number,
    same_words,
    whole_number,
)
from podium.tasks.sandbox import USUAL_LIMITS, Limits, require_sandbox, run_program

STRICT: Final = ConfigDict(extra="forbid")
"""Parameters that a grader does not have are errors."""

LONGEST_PROGRAM: Final = 100_000
"""Characters of a program that is still tried."""

_FENCED: Final = re.compile(
    r"^[ \t]*```\w*[ \t]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Exact:
    """The same words, whatever the case, the spaces, the quotes and the full stop."""

    __pydantic_config__: ClassVar = STRICT

    answer: str
    tagged: bool = False

    def __post_init__(self) -> None:
        _require_answer(self.answer)

    async def __call__(self, answer: str) -> bool:
        """Whether the reply gives these words."""
        text = _short_answer(answer, self.tagged)
        return text is not None and same_words(text, self.answer)


@dataclass(frozen=True, slots=True)
class Letter:
    """The right letter of a multiple choice."""

    __pydantic_config__: ClassVar = STRICT

    answer: str
    tagged: bool = False

    def __post_init__(self) -> None:
        if len(self.answer) != 1 or not self.answer.isalpha():
            raise ConfigError(
                f"the grader `letter` needs one letter for an answer, not {_shown(self.answer)}"
            )

    async def __call__(self, answer: str) -> bool:
        """Whether the reply chooses this letter."""
        text = final_answer(answer, tagged=self.tagged)
        return text is not None and chosen_letter(text) == self.answer.upper()


@dataclass(frozen=True, slots=True)
class Number:
    """The right number, within a tolerance that is a share of it."""

    __pydantic_config__: ClassVar = STRICT

    answer: str
    tolerance: float = 1e-6
    tagged: bool = False

    def __post_init__(self) -> None:
        if whole_number(self.answer) is None:
            raise ConfigError(
                f"the grader `number` needs a number for an answer, not {_shown(self.answer)}"
            )
        _require_tolerance(self.tolerance)

    async def __call__(self, answer: str) -> bool:
        """Whether the reply gives this number."""
        text = _short_answer(answer, self.tagged)
        reference = whole_number(self.answer)
        assert reference is not None
        given = None if text is None else only_number(text)
        return given is not None and given.is_close(reference, self.tolerance)


@dataclass(frozen=True, slots=True)
class Short:
    """A few words, or a number within a tolerance that is a share of it."""

    __pydantic_config__: ClassVar = STRICT

    answer: str
    tolerance: float = 1e-3
    tagged: bool = False

    def __post_init__(self) -> None:
        _require_answer(self.answer)
        _require_tolerance(self.tolerance)

    async def __call__(self, answer: str) -> bool:
        """Whether the reply gives these words, or is this number."""
        text = _short_answer(answer, self.tagged)
        if text is None:
            return False
        if same_words(text, self.answer):
            return True
        given, reference = whole_number(text), whole_number(self.answer)
        return (
            given is not None
            and reference is not None
            and given.is_close(reference, self.tolerance)
        )


@dataclass(frozen=True, slots=True)
class Mathematics:
    r"""The same mathematics, however it is written: `1/2`, `0.5` and `\frac{1}{2}`."""

    __pydantic_config__: ClassVar = STRICT

    answer: str
    tagged: bool = False

    def __post_init__(self) -> None:
        _require_answer(self.answer)
        if importlib.util.find_spec("math_verify") is None:
            raise ConfigError(
                "the grader `math` needs the package math-verify, which is not installed: "
                "pip install 'podium-conductor[eval]'"
            )

    async def __call__(self, answer: str) -> bool:
        """Whether the reply is equal to the answer."""
        text = final_answer(answer, tagged=self.tagged)
        return bool(text) and await mathematics.is_equal(str(text), self.answer)


@dataclass(frozen=True, slots=True)
class ProgramTest:
    """What goes into a program and what must come out.

    For a function, `input` is one JSON value a line, an argument each, and `output` is JSON.
    """

    __pydantic_config__: ClassVar = STRICT

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class Code:
    """A program that passes every test: one that reads standard input and writes to standard
    output or, where there is a `function`, one that defines it, alone or in a class `Solution`.

    As in LiveCodeBench, lines are compared without the space around them, and numbers by value
    but without tolerance.
    """

    __pydantic_config__: ClassVar = STRICT

    tests: tuple[ProgramTest, ...]
    function: str | None = None
    limits: Limits = USUAL_LIMITS
    tagged: bool = False

    def __post_init__(self) -> None:
        if not self.tests:
            raise ConfigError("the grader `code` needs at least one test, and has none")
        if self.function is not None:
            for test in self.tests:
                _require_json(test.output)
        require_sandbox()

    async def __call__(self, answer: str) -> bool:
        """Whether the program in the reply passes. It is stopped at the first failure."""
        text = final_answer(answer, tagged=self.tagged)
        program = None if text is None else program_in(text)
        if not program or len(program) > LONGEST_PROGRAM:
            return False
        inputs = [test.input for test in self.tests]
        passed = 0
        async with aclosing(
            run_program(program, inputs, function=self.function, limits=self.limits)
        ) as outcomes:
            async for outcome in outcomes:
                if outcome.problem or not self._is_right(outcome.output, self.tests[passed].output):
                    return False
                passed += 1
        return passed == len(self.tests)

    def _is_right(self, output: str, wanted: str) -> bool:
        if self.function is None:
            return same_output(output, wanted)
        try:
            return bool(json.loads(output) == json.loads(wanted))
        except (ValueError, RecursionError):
            return False


def program_in(text: str) -> str:
    """The program itself, without the code fence that models like to put around it."""
    fenced = _FENCED.search(text)
    return fenced[1] if fenced else text


def same_output(output: str, wanted: str) -> bool:
    """Whether two outputs are the same, line by line."""
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


GRADERS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "exact": Exact,
        "letter": Letter,
        "number": Number,
        "short": Short,
        "math": Mathematics,
        "code": Code,
    }
)
"""Every grader that a file can name."""


def make_grader(name: str, answer: str, parameters: Mapping[str, Any]) -> Grader:
    """The grader of that name, for that answer."""
    form = GRADERS.get(name)
    if form is None:
        raise ConfigError(f"there is no grader {_shown(name)}{_hint(name)}")
    described = {**parameters}
    if any(field.name == "answer" for field in fields(form)):
        described["answer"] = answer
    try:
        made: Grader = _ADAPTERS[name].validate_python(described)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"the grader `{name}`: {where}: {first['msg']}") from error
    return made


_ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = MappingProxyType(
    {name: TypeAdapter(form) for name, form in GRADERS.items()}
)


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, GRADERS, n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; there are {', '.join(GRADERS)}"


def _short_answer(reply: str, tagged: bool) -> str | None:
    text = final_answer(reply, tagged=tagged)
    return text if text and len(text) <= LONGEST_ANSWER else None


def _require_answer(answer: str) -> None:
    if not answer.strip():
        raise ConfigError("the answer is missing: there is nothing to grade replies by")


def _require_tolerance(tolerance: float) -> None:
    if not 0 <= tolerance < 1:
        raise ConfigError(
            f"the tolerance is a share of the answer, from 0 to below 1, not {tolerance:g}"
        )


def _require_json(text: str) -> None:
    try:
        json.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"what a function must return is written as JSON, and {_shown(text)} is not"
        ) from error


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:39]}…")
