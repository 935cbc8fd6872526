"""The graders: each tells whether a reply gives the right answer, and can be named in a file.

    exact        the same words, case and spaces aside
    letter       the right letter of a multiple choice
    number       the right number, within a relative tolerance; percentages are understood
    percent      the right percentage, with or without its sign, or as a share of one
    short        a few words or a number: exact, else within 1e-3 (the paper's grading of RLPR)
    contains     as `short`, or with these words somewhere in it, whole
    math         the same mathematics, by math-verify
    json-schema  JSON that fits a schema (`structured`)
    code         a program that passes every test (`programs`)
    judge        what a model thinks of it (`judge`)

A grader takes its answer from the reply's `<answer>` tags. Where there are none it reads the
whole reply, unless it is `tagged`: then the question demanded the tags, and a reply without
them is wrong. A grader that cannot do its work says so when it is made, not when it grades.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError

from podium.core.errors import ConfigError, UsageError, install_command
from podium.core.json_schema import check_schema, is_valid
from podium.core.task import Grader
from podium.core.worker import Worker
from podium.tasks import answers, mathematics
from podium.tasks.answers import (
    LONGEST_ANSWER,
    chosen_letter,
    final_answer,
    has_words,
    only_number,
    same_words,
    shown,
    whole_number,
    without_fence,
)
from podium.tasks.judge import JUDGE, Judge
from podium.tasks.programs import Code

JSON_SCHEMA: Final = "json-schema"
"""The name of the grader."""

LONGEST_JSON: Final = 200_000
"""Characters of an answer that is still read."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that fits the schema and, where there is an answer, is the same value."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

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
        """Whether the reply gives such JSON, in its tags, in a code fence or by itself."""
        text = final_answer(answer, tagged=self.tagged)
        if not text or len(text) > LONGEST_JSON:
            return False
        try:
            given = json.loads(without_fence(text))
            return is_valid(given, self.schema) and (
                not self.answer.strip() or bool(given == json.loads(self.answer))
            )
        except (ValueError, RecursionError):
            return False


STRICT: Final = ConfigDict(extra="forbid")
"""Parameters that a grader does not have are errors."""

CONTAINS: Final = "contains"
"""The grader of what people say is right, who do not say in which words it is to be told."""


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
                f"the grader `letter` needs one letter for an answer, not {shown(self.answer)}"
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
                f"the grader `number` needs a number for an answer, not {shown(self.answer)}"
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
class Percent:
    """The right percentage, within a tolerance that is a share of it. Answer and reply may leave
    the sign out; a reply without it may also be the share: 12.5 %, 12.5 and 0.125."""

    __pydantic_config__: ClassVar = STRICT

    answer: str
    tolerance: float = 1e-3
    tagged: bool = False

    def __post_init__(self) -> None:
        if whole_number(self.answer) is None:
            raise ConfigError(
                f"the grader `percent` needs a percentage for an answer, not {shown(self.answer)}"
            )
        _require_tolerance(self.tolerance)

    async def __call__(self, answer: str) -> bool:
        """Whether the reply gives this percentage."""
        text = _short_answer(answer, self.tagged)
        reference = whole_number(self.answer)
        assert reference is not None
        wanted = answers.Number(reference.value, percent=True)
        given = None if text is None else only_number(text)
        return given is not None and given.is_close(wanted, self.tolerance)


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
        return text is not None and _is_short(text, self.answer, self.tolerance)


@dataclass(frozen=True, slots=True)
class Contains(Short):
    """A few words or a number, alone or within sentences: "The capital of Japan is Tokyo."."""

    async def __call__(self, answer: str) -> bool:
        """Whether the reply gives these words or this number, or mentions it."""
        text = _short_answer(answer, self.tagged)
        if text is None:
            return False
        if _is_short(text, self.answer, self.tolerance) or has_words(text, self.answer):
            return True
        given, reference = only_number(text), whole_number(self.answer)
        return _is_close(given, reference, self.tolerance)


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
                f"{install_command('eval')}"
            )

    async def __call__(self, answer: str) -> bool:
        """Whether the reply is equal to the answer."""
        text = final_answer(answer, tagged=self.tagged)
        return bool(text) and await mathematics.is_equal(str(text), self.answer)


_FORMS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "exact": Exact,
        "letter": Letter,
        "number": Number,
        "percent": Percent,
        "short": Short,
        CONTAINS: Contains,
        "math": Mathematics,
        JSON_SCHEMA: JsonSchema,
        "code": Code,
    }
)
_ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = MappingProxyType(
    {name: TypeAdapter(form) for name, form in _FORMS.items()}
)
_JUDGE_TAKES: Final = frozenset({"rubric", "tagged"})

GRADERS: Final = (*_FORMS, JUDGE)
"""Every grader that a file can name."""


def make_grader(
    name: str,
    answer: str,
    parameters: Mapping[str, Any],
    *,
    question: str = "",
    judge: Worker | None = None,
) -> Grader:
    """The grader of that name, for that answer; only a judge needs a worker and the question."""
    if name == JUDGE:
        return _make_judge(answer, parameters, question, judge)
    form = _FORMS.get(name)
    if form is None:
        raise ConfigError(f"there is no grader {shown(name)}{_hint(name)}")
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
) -> Judge:
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
    return Judge(question, worker, answer, rubric, tagged)


def _hint(name: str) -> str:
    near = difflib.get_close_matches(name, GRADERS, n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; there are {', '.join(GRADERS)}"


def _short_answer(reply: str, tagged: bool) -> str | None:
    text = final_answer(reply, tagged=tagged)
    return text if text and len(text) <= LONGEST_ANSWER else None


def _is_short(text: str, answer: str, tolerance: float) -> bool:
    if same_words(text, answer):
        return True
    return _is_close(whole_number(text), whole_number(answer), tolerance)


def _is_close(
    given: answers.Number | None, reference: answers.Number | None, tolerance: float
) -> bool:
    return given is not None and reference is not None and given.is_close(reference, tolerance)


def _require_answer(answer: str) -> None:
    if not answer.strip():
        raise ConfigError("the answer is missing: there is nothing to grade replies by")


def _require_tolerance(tolerance: float) -> None:
    if not 0 <= tolerance < 1:
        raise ConfigError(
            f"the tolerance is a share of the answer, from 0 to below 1, not {tolerance:g}"
        )
