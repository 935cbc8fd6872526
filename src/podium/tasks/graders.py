r"""Graders: each decides whether a reply gives the right answer, and can be named in a file.

    exact        the same words, except for case and spaces
    letter       the right letter of a multiple choice
    number       the right number, within a relative tolerance
    percent      the right percentage, with or without its sign, or as a share
    short        a few words, or a number within 1e-3 (the paper's grading of RLPR)
    contains     as `short`, or with these whole words in it
    patterns     a text in which every pattern occurs, and no forbidden one
    math         the same mathematics, by math-verify
    json-schema  JSON that is valid for a schema
    code         a program that passes every test, run in the sandbox
    judge        the verdict of a model

The answer is in the reply's `<answer>` tags, short ones also in `\boxed{}` or in a last line
"Answer: …". Without these a grader reads the whole reply, unless it is `tagged`: then such a reply
is wrong, except for a short answer of one line. A grader that cannot work raises when it is made.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import warnings
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from podium.core.errors import BadReply, ConfigError, UsageError, install_command
from podium.core.json_schema import check_schema, is_valid
from podium.core.request import Request, user
from podium.core.task import Grader
from podium.core.worker import Worker
from podium.tasks import mathematics
from podium.tasks.answers import (
    MAX_ANSWER_CHARS,
    MAX_JUDGED_CHARS,
    ParsedNumber,
    chosen_letter,
    contains_words,
    extract_answer,
    final_answer,
    is_same_text,
    nearest,
    only_number,
    quote,
    render_prompt,
    stated_number,
    strip_fence,
    whole_number,
)
from podium.workers.sandbox import (
    DEFAULT_LIMITS,
    ProgramLimits,
    require_sandbox,
    run_check,
    run_program,
)

JUDGE: Final = "judge"
_VERDICT: Final = re.compile(r"<verdict>\s*(right|wrong)\s*</verdict>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JudgeGrader:
    """A model's verdict on the answer, by the reference, the rubric, or both.

    A judge that fails or gives no verdict raises: that is no wrong answer.
    """

    question: str
    worker: Worker
    answer: str = ""
    rubric: str = ""
    tagged: bool = False

    def __post_init__(self) -> None:
        if not self.answer.strip() and not self.rubric.strip():
            raise ConfigError(
                "the answer is missing: a judge needs an answer to judge by, or a `rubric`"
            )

    async def __call__(self, answer: str) -> bool:
        """Ask the judge; a reply without an answer is wrong at once."""
        given = extract_answer(answer, tagged=self.tagged)
        if not given or len(given) > MAX_JUDGED_CHARS:
            return False
        right = "\n\n".join(filter(None, (self.answer.strip(), self.rubric.strip())))
        prompt = render_prompt(
            "judge", question=self.question, right=right, given=_remove_tags(given)
        )
        reply = await self.worker.reply(Request((user(prompt),), temperature=0.0))
        verdicts = _VERDICT.findall(reply.text)
        if not verdicts:
            raise BadReply(
                f"the judge {self.worker.profile.name} gave no verdict: expected "
                f"<verdict>right</verdict> or <verdict>wrong</verdict> in its reply"
            )
        return bool(verdicts[-1].lower() == "right")


def _remove_tags(given: str) -> str:
    """Remove tags that could be mistaken for the prompt's own."""
    return re.sub(r"</?\s*(?:given|right|question|verdict)\s*>", "", given, flags=re.IGNORECASE)


STRICT: Final = ConfigDict(extra="forbid")
"""Unknown parameters are errors."""

JSON_SCHEMA: Final = "json-schema"
MAX_JSON_CHARS: Final = 200_000


@dataclass(frozen=True, slots=True)
class JsonSchemaGrader:
    """JSON that is valid for the schema and, if there is an answer, equals it."""

    __pydantic_config__: ClassVar = STRICT

    schema: Mapping[str, Any]
    answer: str = ""
    tagged: bool = False

    def __post_init__(self) -> None:
        try:
            check_schema(self.schema)
        except UsageError as error:
            raise ConfigError(str(error)) from error
        if self.answer.strip():
            self._require_fitting_answer()

    def _require_fitting_answer(self) -> None:
        try:
            wanted = json.loads(self.answer)
        except ValueError as error:
            raise ConfigError(f"the answer must be JSON: {error}") from error
        if not is_valid(wanted, self.schema):
            raise ConfigError("the answer does not fit its own schema")

    async def __call__(self, answer: str) -> bool:
        """Grade a reply with JSON in tags, in a code fence or alone."""
        text = extract_answer(answer, tagged=self.tagged)
        if not text or len(text) > MAX_JSON_CHARS:
            return False
        try:
            given = json.loads(strip_fence(text))
            return is_valid(given, self.schema) and (
                not self.answer.strip() or bool(given == json.loads(self.answer))
            )
        except (ValueError, RecursionError):
            return False


CONTAINS: Final = "contains"
"""The grader for answers of which people do not state the form."""


@dataclass(frozen=True, slots=True)
class AnswerGrader:
    """Compares a short answer with the reference."""

    __pydantic_config__: ClassVar = STRICT
    longest: ClassVar[float] = MAX_ANSWER_CHARS

    answer: str
    tagged: bool = False

    def __post_init__(self) -> None:
        if not self.answer.strip():
            raise ConfigError("the answer is missing: there is nothing to grade replies by")

    async def __call__(self, answer: str) -> bool:
        text = final_answer(answer, tagged=self.tagged)
        return bool(text) and len(str(text)) <= self.longest and await self._accepts(str(text))

    async def _accepts(self, text: str) -> bool:
        raise NotImplementedError


class ExactGrader(AnswerGrader):
    """The same words, except for case, spaces, quotes and the full stop."""

    __slots__ = ()

    async def _accepts(self, text: str) -> bool:
        return is_same_text(text, self.answer)


@dataclass(frozen=True, slots=True)
class LetterGrader(AnswerGrader):
    """The right letter of a multiple choice."""

    longest: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        if len(self.answer) != 1 or not self.answer.isalpha():
            raise ConfigError(
                f"the grader `letter` needs one letter for an answer, not {quote(self.answer)}"
            )

    async def _accepts(self, text: str) -> bool:
        return chosen_letter(text) == self.answer.upper()


@dataclass(frozen=True, slots=True)
class ShortAnswerGrader(AnswerGrader):
    """A few words, or a number within a relative tolerance."""

    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        AnswerGrader.__post_init__(self)
        if not 0 <= self.tolerance < 1:
            raise ConfigError(
                f"the tolerance is a share of the answer, from 0 to below 1, not {self.tolerance:g}"
            )

    async def _accepts(self, text: str) -> bool:
        return is_same_text(text, self.answer) or self._is_close(whole_number(text))

    def _is_close(self, given: ParsedNumber | None) -> bool:
        reference = whole_number(self.answer)
        if given is None or reference is None:
            return False
        return given.is_close(reference, self.tolerance)


class ContainsGrader(ShortAnswerGrader):
    """A few words or a number, alone or within sentences: "The capital of Japan is Tokyo."."""

    __slots__ = ()

    async def _accepts(self, text: str) -> bool:
        return (
            await ShortAnswerGrader._accepts(self, text)
            or contains_words(text, self.answer)
            or self._is_close(only_number(text))
        )


@dataclass(frozen=True, slots=True)
class NumberGrader(ShortAnswerGrader):
    """The right number, within a relative tolerance."""

    needs: ClassVar[str] = "the grader `number` needs a number"

    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if whole_number(self.answer) is None:
            raise ConfigError(f"{self.needs} for an answer, not {quote(self.answer)}")
        ShortAnswerGrader.__post_init__(self)

    async def _accepts(self, text: str) -> bool:
        return self._is_close(stated_number(text))


@dataclass(frozen=True, slots=True)
class PercentGrader(NumberGrader):
    """The right percentage, within a relative tolerance: 12.5 %, 12.5 or 0.125."""

    needs: ClassVar[str] = "the grader `percent` needs a percentage"

    tolerance: float = 1e-3

    def _is_close(self, given: ParsedNumber | None) -> bool:
        reference = whole_number(self.answer)
        assert reference is not None
        wanted = ParsedNumber(reference.value, percent=True)
        return given is not None and given.is_close(wanted, self.tolerance)


@dataclass(frozen=True, slots=True)
class MathGrader(AnswerGrader):
    r"""The same mathematics in any notation: `1/2`, `0.5` and `\frac{1}{2}`."""

    longest: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        AnswerGrader.__post_init__(self)
        if importlib.util.find_spec("math_verify") is None:
            raise ConfigError(
                "the grader `math` needs the package math-verify, which is not installed: "
                f"{install_command('eval')}"
            )

    async def _accepts(self, text: str) -> bool:
        return await mathematics.is_equal(text, self.answer)


@dataclass(frozen=True, slots=True)
class PatternsGrader:
    """A text in which every pattern occurs and none of the forbidden ones.

    It has at most `max_words` words. Patterns are regular expressions that ignore case.
    """

    __pydantic_config__: ClassVar = STRICT

    patterns: tuple[str, ...]
    forbidden: tuple[str, ...] = ()
    max_words: int | None = None
    tagged: bool = False

    def __post_init__(self) -> None:
        for pattern in (*self.patterns, *self.forbidden):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"the pattern {quote(pattern)} is not valid: {error}") from error

    async def __call__(self, answer: str) -> bool:
        text = extract_answer(answer, tagged=self.tagged)
        if not text or len(text) > MAX_JUDGED_CHARS:
            return False
        if self.max_words is not None and len(text.split()) > self.max_words:
            return False
        return all(re.search(one, text, re.IGNORECASE) for one in self.patterns) and not any(
            re.search(one, text, re.IGNORECASE) for one in self.forbidden
        )


MAX_PROGRAM_CHARS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ProgramTest:
    """The input of a program and its expected output.

    For a function, `input` is one JSON value a line, an argument each, and `output` is JSON.
    """

    __pydantic_config__: ClassVar = STRICT

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class CodeGrader:
    """A program that passes every test: one that reads standard input and writes to standard
    output or, where there is a `function`, one that defines it, alone or in a class `Solution`.
    With a `check` instead of tests, one that the check passes; `prelude` is run first, for what a
    program may leave out because the question had it, and `in_process` runs the check in the
    program's own process, for what cannot be checked from another.

    As in LiveCodeBench, lines are compared without the space around them, and numbers by value
    but without tolerance.
    """

    __pydantic_config__: ClassVar = STRICT

    tests: tuple[ProgramTest, ...] = ()
    function: str | None = None
    check: str = ""
    prelude: str = ""
    in_process: bool = False
    limits: ProgramLimits = DEFAULT_LIMITS
    tagged: bool = False

    def __post_init__(self) -> None:
        if bool(self.tests) == bool(self.check.strip()):
            raise ConfigError("the grader `code` needs at least one test in `tests`, or a `check`")
        if self.check and self.function is not None:
            raise ConfigError("a `check` calls what it needs by itself: leave `function` out")
        if (self.prelude or self.in_process) and not self.check:
            raise ConfigError("`prelude` and `in_process` go with a `check`, not with `tests`")
        if self.check:
            _require_python(self.check)
        if self.function is not None:
            for test in self.tests:
                _require_json(test.output)
        require_sandbox()

    async def __call__(self, answer: str) -> bool:
        return await self.problem_with(answer) is None

    async def problem_with(self, answer: str) -> str | None:
        """Return why the program in the reply fails; None if it passes."""
        text = extract_answer(answer, tagged=self.tagged)
        program = None if text is None else strip_fence(text)
        if not program:
            return "there is no program"
        if len(program) > MAX_PROGRAM_CHARS:
            return "the program is too long"
        if not self.check:
            return await self._problem_in_tests(program)
        outcome = await run_check(
            program,
            self.check,
            prelude=self.prelude,
            in_process=self.in_process,
            limits=self.limits,
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


_FORMS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "exact": ExactGrader,
        "letter": LetterGrader,
        "number": NumberGrader,
        "percent": PercentGrader,
        "short": ShortAnswerGrader,
        CONTAINS: ContainsGrader,
        "patterns": PatternsGrader,
        "math": MathGrader,
        JSON_SCHEMA: JsonSchemaGrader,
        "code": CodeGrader,
    }
)
_ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = MappingProxyType(
    {name: TypeAdapter(form) for name, form in _FORMS.items()}
)
_JUDGE_TAKES: Final = frozenset({"rubric", "tagged"})

GRADERS: Final = (*_FORMS, JUDGE)


def make_grader(
    name: str,
    answer: str,
    parameters: Mapping[str, Any],
    *,
    question: str = "",
    judge: Worker | None = None,
) -> Grader:
    """Make a grader for an answer; only a judge needs a worker and the question."""
    if name == JUDGE:
        return _make_judge(answer, parameters, question, judge)
    form = _FORMS.get(name)
    if form is None:
        raise ConfigError(f"unknown grader {quote(name)}; {nearest(name, GRADERS, '`{}`')}")
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


def _make_judge(
    answer: str, parameters: Mapping[str, Any], question: str, worker: Worker | None
) -> JudgeGrader:
    unknown = sorted(set(parameters) - _JUDGE_TAKES)
    if unknown:
        raise ConfigError(
            f"the grader `{JUDGE}` takes {' and '.join(sorted(_JUDGE_TAKES))}, not {unknown[0]!r}"
        )
    if worker is None:
        raise ConfigError(
            f"the grader `{JUDGE}` needs a worker that judges, and none was named; "
            "podium eval run takes its name by --judge"
        )
    rubric, tagged = parameters.get("rubric", ""), parameters.get("tagged", False)
    if not isinstance(rubric, str) or not isinstance(tagged, bool):
        raise ConfigError(f"the grader `{JUDGE}`: `rubric` is a text and `tagged` true or false")
    return JudgeGrader(question, worker, answer, rubric, tagged)
