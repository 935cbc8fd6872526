"""Grader agreement: graders tested on answers whose correctness is known.

    reference            the reference answer: right
    rewritten            the same mathematics in another notation: right
    another's            another task's answer: wrong
    near misses          mathematics that differs a little: wrong
    reference solution   the benchmark's own program: right
    emptied solution     the same with empty functions: wrong

Programs that need a package which is not installed are not run, and counted.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Final, NamedTuple

from podium.core.task import Task
from podium.tasks.graders import CodeGrader, MathGrader
from podium.tasks.suites import seeded_rank

_GROUP: Final = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_FRACTION: Final = re.compile(rf"\\[dt]?frac\s*(?:{_GROUP}|(\d))\s*(?:{_GROUP}|(\d))")
_SLASH: Final = re.compile(r"(?<![\w/])(\d+)/(\d+)(?![\w/])")
_WHOLE_FRACTION: Final = re.compile(rf"-?{_FRACTION.pattern}")
_NUMBER: Final = re.compile(r"-?(?:\d+(?:\.\d+)?|\.\d+)")
_INTEGER: Final = re.compile(r"-?\d+")
_GROUPED: Final = re.compile(r"(?<=\d),\\! ?(?=\d{3})")
_UNIT: Final = re.compile(r"\s*\\(?:text|mbox)\{\s*(inches|cm|cents|degrees)\s*\}(\^2)?$")
_WORDS: Final = re.compile(r"\\text\{([^{}]*)\}")
_BASE: Final = re.compile(r"(\d+)_\{?(\d+)\}?")
_PLUS_MINUS: Final = re.compile(r"([^\\]+?)\s*\\pm\s*(.+)")
_SPACE: Final = re.compile(r"(?P<command>\\[a-zA-Z]+)?\s+(?=(?P<next>.))")
_OPERATOR: Final = re.compile(r"(?<=[\w})])\s*([-+=,])\s*(?=[\w\\(])(?!\\!)")
_ONE_THING: Final = re.compile(r"[(\[$]|,\\!|\{,\}|\\text|^\d{1,3}(?:,\d{3})+$")
"""Texts with commas that are no lists: points, money, thousands, words."""
_BRACKETS: Final = re.compile(r"[(\[](.+),(.+)[)\]]")


class Rewriting(NamedTuple):
    """A text, and how it was made."""

    how: str
    text: str


def rewrite_answer(answer: str) -> list[Rewriting]:
    """Return other notations of the answer."""
    found: dict[str, Rewriting] = {}
    for way in chain(
        _fractions(answer), _spacing(answer), _units(answer), _orders(answer), _wrapping(answer)
    ):
        if way.text != answer:
            found.setdefault(way.text, way)
    return list(found.values())


def _fractions(answer: str) -> Iterator[Rewriting]:
    if _FRACTION.search(answer):
        yield Rewriting("fractions", _FRACTION.sub(_as(r"\dfrac{%s}{%s}"), answer))
        yield Rewriting("fractions", _FRACTION.sub(_as(r"\tfrac{%s}{%s}"), answer))
        yield Rewriting("fractions", _FRACTION.sub(_as(r"\frac {%s} {%s}"), answer))
        if _WHOLE_FRACTION.fullmatch(answer):
            yield Rewriting("fractions", _FRACTION.sub(_divided, answer))
    if _SLASH.search(answer):
        yield Rewriting("fractions", _SLASH.sub(r"\\frac{\1}{\2}", answer))
    if decimal := _as_decimal(answer):
        yield Rewriting("fractions", decimal)


def _as(form: str) -> Callable[[re.Match[str]], str]:
    return lambda found: form % _parts(found)


def _divided(found: re.Match[str]) -> str:
    return "/".join(part if part.isalnum() else f"({part})" for part in _parts(found))


def _upside_down(found: re.Match[str]) -> str:
    top, bottom = _parts(found)
    return f"\\frac{{{bottom}}}{{{top}}}"


def _parts(found: re.Match[str]) -> tuple[str, str]:
    return found[1] or found[2], found[3] or found[4]


def _as_decimal(answer: str) -> str | None:
    """Return a fraction of integers as a finite decimal."""
    if not _WHOLE_FRACTION.fullmatch(answer):
        return None
    found = _FRACTION.search(answer)
    assert found is not None
    top, bottom = _parts(found)
    if not top.isdigit() or not bottom.isdigit():
        return None
    value = Fraction(int(top), int(bottom))
    places = next((n for n in range(8) if value.denominator and 10**n % value.denominator == 0), 0)
    if not places:
        return None
    return f"{'-' if answer.startswith('-') else ''}{float(value):.{places}f}"


def _spacing(answer: str) -> Iterator[Rewriting]:
    yield Rewriting("spacing", _SPACE.sub(_closed, answer))
    if "\\text" not in answer:
        yield Rewriting("spacing", _OPERATOR.sub(r" \1 ", answer))
        yield Rewriting("spacing", _OPERATOR.sub(r"\\, \1 \\,", answer))
    yield Rewriting("spacing", f" {answer}\n")
    if _GROUPED.search(answer):
        yield Rewriting("spacing", _GROUPED.sub("", answer))
        yield Rewriting("spacing", _GROUPED.sub(",", answer))


def _closed(found: re.Match[str]) -> str:
    """Remove a space unless it ends a command."""
    command = found["command"] or ""
    return f"{command} " if command and found["next"].isalpha() else command


def _units(answer: str) -> Iterator[Rewriting]:
    if answer.endswith("^\\circ") and answer.count("\\circ") == 1:
        number = answer.removesuffix("^\\circ")
        for written in ("", "^{\\circ}", "°", " degrees", "\\text{ degrees}"):
            yield Rewriting("units", f"{number}{written}")
    elif answer.startswith("\\$"):
        amount = _GROUPED.sub(",", answer.removeprefix("\\$"))
        for written in ("${}", "{}", "{} dollars", "{}\\text{{ dollars}}"):
            yield Rewriting("units", written.format(amount))
    elif unit := _UNIT.search(answer):
        number = answer[: unit.start()]
        yield Rewriting("units", number)
        yield Rewriting("units", f"{number}\\text{{ {unit[1]}}}{unit[2] or ''}")
        yield Rewriting("units", f"{number}\\ \\mathrm{{{unit[1]}}}{unit[2] or ''}")
    elif _NUMBER.fullmatch(answer):
        for written in ("\\text{ units}", "\\text{ cm}", "\\text{ cm}^2", " cm", "\\ \\mathrm{m}"):
            yield Rewriting("units", f"{answer}{written}")


def _orders(answer: str) -> Iterator[Rewriting]:
    inside = answer.removeprefix("\\{").removesuffix("\\}")
    braced = inside != answer
    if "\\pm" in inside:
        if both := _PLUS_MINUS.fullmatch(inside):
            yield Rewriting("ordering", f"{both[1]}-{both[2]}, {both[1]}+{both[2]}")
    elif "," in inside and not _ONE_THING.search(inside):
        members = [member.strip() for member in inside.split(",")]
        turned = ", ".join(reversed(members))
        yield Rewriting("ordering", f"\\{{{turned}\\}}" if braced else turned)
        yield Rewriting("ordering", turned if braced else f"\\{{{turned}\\}}")
    if "\\cup" in answer:
        yield Rewriting("ordering", "\\cup".join(reversed(answer.split("\\cup"))))
    if braced and "," in inside and "\\pm" in inside:
        yield Rewriting("ordering", "\\{" + ",".join(reversed(inside.split(","))) + "\\}")


def _wrapping(answer: str) -> Iterator[Rewriting]:
    """Yield notations that wrap the answer."""
    yield Rewriting("wrapping", f"${answer}$")
    yield Rewriting("wrapping", f"\\boxed{{{answer}}}")
    yield Rewriting("wrapping", f"{answer}.")
    if words := _WORDS.fullmatch(answer):
        yield Rewriting("wrapping", words[1])
        yield Rewriting("wrapping", words[1].strip("()"))
    if "\\left" in answer:
        yield Rewriting("wrapping", answer.replace("\\left", "").replace("\\right", ""))
    elif answer[0] in "([" and answer[-1] in ")]" and "\\cup" not in answer:
        yield Rewriting("wrapping", f"\\left{answer[:-1]}\\right{answer[-1]}")
    if _BASE.fullmatch(answer):
        yield Rewriting("wrapping", _BASE.sub(r"\1_{\2}", answer))
        yield Rewriting("wrapping", _BASE.sub(r"\1_\2", answer))
    if "pmatrix" in answer:
        yield Rewriting("wrapping", answer.replace("pmatrix", "bmatrix"))
    if _NUMBER.fullmatch(answer):
        yield Rewriting("wrapping", f"x = {answer}")


def near_misses(answer: str) -> list[Rewriting]:
    """Return wrong answers that look like the right one."""
    found: dict[str, Rewriting] = {}
    for miss in _near_misses(answer):
        if miss.text != answer:
            found.setdefault(miss.text, miss)
    return list(found.values())


def _near_misses(answer: str) -> Iterator[Rewriting]:
    if _INTEGER.fullmatch(answer):
        yield Rewriting("one more", str(int(answer) + 1))
        if int(answer):
            yield Rewriting("other sign", str(-int(answer)))
            yield Rewriting("ten times", f"{answer}0")
    elif _NUMBER.fullmatch(answer):
        yield Rewriting("one more", str(float(answer) + 1))
        yield Rewriting("rounded", f"{float(answer) * 1.05:.6g}")
    if _WHOLE_FRACTION.fullmatch(answer):
        yield Rewriting("upside down", _FRACTION.sub(_upside_down, answer))
        yield Rewriting("other sign", answer[1:] if answer.startswith("-") else f"-{answer}")
    if "\\sqrt" in answer:
        yield Rewriting("no root", answer.replace("\\sqrt", ""))
    bare = answer.replace("\\left", "").replace("\\right", "")
    if pair := _BRACKETS.fullmatch(bare):
        if "\\cup" not in bare and bare.count(",") == 1 and pair[1].strip() != pair[2].strip():
            yield Rewriting(
                "other order", f"{bare[0]}{pair[2].strip()},{pair[1].strip()}{bare[-1]}"
            )
        if "\\infty" not in bare and ("[" in bare or "]" in bare):
            other = str.maketrans("([)]", "[(])")
            yield Rewriting("other brackets", bare.translate(other))
    if base := _BASE.fullmatch(answer):
        yield Rewriting("other base", f"{base[1]}_{{{int(base[2]) + 1}}}")
    if answer.endswith("i") and "+" in answer:
        yield Rewriting("conjugate", answer.replace("+", "-"))


AT_ONCE: Final = 32
"""Concurrent gradings; graders have fewer processes."""


class GraderCase(NamedTuple):
    """An answer for a grader, and whether it is right."""

    task: Task
    what: str
    given: str
    right: bool


@dataclass(frozen=True, slots=True)
class GraderMistake:
    """A wrong verdict of a grader, with its reason if it has one."""

    task: str
    given: str
    reference: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class GraderAgreement:
    """The results of one kind of answer; `missing` counts answers by the package they lack."""

    suite: str
    what: str
    right: bool
    graded: int
    mistakes: tuple[GraderMistake, ...] = ()
    missing: tuple[tuple[str, int], ...] = ()


async def measure_agreement(
    suite: str, tasks: Sequence[Task], *, seed: int = 0
) -> list[GraderAgreement]:
    """Grade the known answers of these tasks; return a row per kind of answer."""
    lacking = {task.id: package for task in tasks if (package := _lacking(task)) is not None}
    trials = list(_trials(tasks, seed))
    verdicts = await _graded([trial for trial in trials if trial.task.id not in lacking])
    kinds = {trial.what: trial.right for trial in trials}
    return [
        GraderAgreement(
            suite,
            what,
            right,
            graded=sum(verdict.trial.what == what for verdict in verdicts),
            mistakes=tuple(
                verdict.mistake
                for verdict in verdicts
                if verdict.trial.what == what and verdict.mistake is not None
            ),
            missing=tuple(
                sorted(
                    Counter(
                        lacking[trial.task.id]
                        for trial in trials
                        if trial.what == what and trial.task.id in lacking
                    ).items()
                )
            ),
        )
        for what, right in sorted(kinds.items(), key=lambda kind: (not kind[1], kind[0]))
    ]


class GraderVerdict(NamedTuple):
    """A grader's verdict on a case, with its reason if it has one."""

    trial: GraderCase
    right: bool
    reason: str | None

    @property
    def mistake(self) -> GraderMistake | None:
        """The mistake, if the verdict is wrong."""
        trial = self.trial
        if self.right == trial.right:
            return None
        return GraderMistake(trial.task.id, trial.given, trial.task.answer, self.reason)


async def _graded(trials: Sequence[GraderCase]) -> list[GraderVerdict]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def grade(trial: GraderCase) -> GraderVerdict:
        async with slots:
            return await _verdict(trial)

    return list(await asyncio.gather(*map(grade, trials)))


async def _verdict(trial: GraderCase) -> GraderVerdict:
    answer = f"<answer>{trial.given}</answer>"
    if isinstance(trial.task.grader, CodeGrader):
        problem = await trial.task.grader.problem_with(answer)
        return GraderVerdict(trial, problem is None, problem)
    return GraderVerdict(trial, await trial.task.grader(answer), None)


def _trials(tasks: Sequence[Task], seed: int) -> Iterator[GraderCase]:
    ordered = sorted(tasks, key=lambda task: seeded_rank(task.id, seed))
    for position, task in enumerate(ordered):
        if not task.answer.strip():
            continue
        if isinstance(task.grader, CodeGrader):
            yield GraderCase(task, "reference solution", task.answer, right=True)
            yield GraderCase(task, "emptied solution", empty_functions(task.answer), right=False)
            continue
        yield GraderCase(task, "reference", task.answer, right=True)
        if isinstance(task.grader, MathGrader):
            for how, text in rewrite_answer(task.answer):
                yield GraderCase(task, f"rewritten: {how}", text, right=True)
            for _, text in near_misses(task.answer):
                yield GraderCase(task, "near misses", text, right=False)
        other = _others_answer(ordered, position)
        if other is not None:
            yield GraderCase(task, "another's", other, right=False)


def _others_answer(tasks: Sequence[Task], position: int) -> str | None:
    """Return the next task's different answer; equal digits may mean the same, as in x = 5."""
    mine = _value(tasks[position].answer)
    following = (*tasks[position + 1 :], *tasks[:position])
    return next(
        (task.answer for task in following if task.answer and _value(task.answer) != mine), None
    )


def _value(answer: str) -> str:
    """Return the answer's digits with signs, or its words."""
    digits = "".join(character for character in answer if character in "0123456789-.")
    return digits if any(character.isdigit() for character in digits) else answer.strip()


def empty_functions(program: str) -> str:
    """Return the program with empty functions."""
    with warnings.catch_warnings():  # about old syntax in benchmarks
        warnings.simplefilter("ignore")
        return ast.unparse(_Emptied().visit(ast.parse(program)))


class _Emptied(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [ast.Pass()]
        return node


def _lacking(task: Task) -> str | None:
    """Return the first missing package of the task's program or check."""
    if not isinstance(task.grader, CodeGrader):
        return None
    for name in imported_packages(f"{task.answer}\n{task.grader.check}"):
        if importlib.util.find_spec(name) is None:
            return name
    return None


def imported_packages(program: str) -> Iterable[str]:
    """Return the packages that a program imports, sorted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(program)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return sorted(found)
