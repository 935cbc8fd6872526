"""Grader agreement: what graders say of answers about which nobody need be asked.

    reference            the reference answer itself: right
    rewritten            the same mathematics in other ways (`rewriting`): right
    another's            another task's answer: wrong
    near misses          mathematics that differs a little (`rewriting`): wrong
    reference solution   the benchmark's own program: right
    emptied solution     the same with nothing in its functions: wrong

A mistake of a grader is named with the answer. Programs that need a package which is not
installed are not run, and are counted as such.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from podium.core.task import Task
from podium.tasks.graders import Mathematics
from podium.tasks.mix import rank
from podium.tasks.programs import Code
from podium.tasks.rewriting import near_misses, rewritings

AT_ONCE: Final = 32
"""Graders wait for processes of their own, of which there are fewer."""

MOST_TOLD: Final = 300
"""Characters of an answer, or of a reason, in a document."""

Watch = Callable[[int, int], None]
"""Told how many answers of how many have been graded."""


class Trial(NamedTuple):
    """One answer for a grader, and whether it is right."""

    task: Task
    what: str
    given: str
    right: bool


@dataclass(frozen=True, slots=True)
class Mistake:
    """An answer that a grader took for the contrary of what it is; with the reason, where the
    grader has one."""

    task: str
    given: str
    reference: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """What came of one kind of answers. `missing` counts the answers that were not run by the
    package that they lack."""

    suite: str
    what: str
    right: bool
    graded: int
    mistakes: tuple[Mistake, ...] = ()
    missing: tuple[tuple[str, int], ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON has it; of programs the beginning alone, since the suite has them whole."""
        mistakes = [
            {
                name: value if value is None else value[:MOST_TOLD]
                for name, value in asdict(mistake).items()
            }
            for mistake in self.mistakes
        ]
        return {**asdict(self), "mistakes": mistakes, "missing": dict(self.missing)}


async def agreement(
    suite: str, tasks: Sequence[Task], *, seed: int = 0, watch: Watch | None = None
) -> list[Agreement]:
    """Grade what can be told of these tasks, a row for each kind of answers."""
    lacking = {task.id: package for task in tasks if (package := _lacking(task)) is not None}
    trials = list(_trials(tasks, seed))
    verdicts = await _graded([trial for trial in trials if trial.task.id not in lacking], watch)
    kinds = {trial.what: trial.right for trial in trials}
    return [
        Agreement(
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


class Verdict(NamedTuple):
    """What a grader said of a trial, and why, where it says why."""

    trial: Trial
    right: bool
    reason: str | None

    @property
    def mistake(self) -> Mistake | None:
        """The mistake that it is, if it is one."""
        trial = self.trial
        if self.right == trial.right:
            return None
        return Mistake(trial.task.id, trial.given, trial.task.answer, self.reason)


async def _graded(trials: Sequence[Trial], watch: Watch | None) -> list[Verdict]:
    gate = asyncio.Semaphore(AT_ONCE)
    done = 0

    async def grade(trial: Trial) -> Verdict:
        nonlocal done
        async with gate:
            verdict = await _verdict(trial)
        done += 1
        if watch is not None:
            watch(done, len(trials))
        return verdict

    return list(await asyncio.gather(*map(grade, trials)))


async def _verdict(trial: Trial) -> Verdict:
    answer = f"<answer>{trial.given}</answer>"
    if isinstance(trial.task.grader, Code):
        problem = await trial.task.grader.problem_with(answer)
        return Verdict(trial, problem is None, problem)
    return Verdict(trial, await trial.task.grader(answer), None)


def _trials(tasks: Sequence[Task], seed: int) -> Iterator[Trial]:
    ordered = sorted(tasks, key=lambda task: rank(task.id, seed))
    for place, task in enumerate(ordered):
        if not task.answer.strip():
            continue
        if isinstance(task.grader, Code):
            yield Trial(task, "reference solution", task.answer, right=True)
            yield Trial(task, "emptied solution", emptied(task.answer), right=False)
            continue
        yield Trial(task, "reference", task.answer, right=True)
        if isinstance(task.grader, Mathematics):
            for how, text in rewritings(task.answer):
                yield Trial(task, f"rewritten: {how}", text, right=True)
            for _, text in near_misses(task.answer):
                yield Trial(task, "near misses", text, right=False)
        other = _others_answer(ordered, place)
        if other is not None:
            yield Trial(task, "another's", other, right=False)


def _others_answer(tasks: Sequence[Task], place: int) -> str | None:
    """The answer of the next task that has another one. Answers of the same digits are passed
    over: they may be the same, as x = 5, 5 and 5 degrees are."""
    mine = _value(tasks[place].answer)
    following = (*tasks[place + 1 :], *tasks[:place])
    return next(
        (task.answer for task in following if task.answer and _value(task.answer) != mine), None
    )


def _value(answer: str) -> str:
    """The answer's digits with their signs or, where it has none, its words."""
    digits = "".join(character for character in answer if character in "0123456789-.")
    return digits if any(character.isdigit() for character in digits) else answer.strip()


def emptied(program: str) -> str:
    """The program with nothing in its functions: all there, and nothing done."""
    with warnings.catch_warnings():  # about old ways of writing, which are not ours to change
        warnings.simplefilter("ignore")
        return ast.unparse(_Emptied().visit(ast.parse(program)))


class _Emptied(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [ast.Pass()]
        return node


def _lacking(task: Task) -> str | None:
    """The first package that the task's program or its check needs and that is not installed."""
    if not isinstance(task.grader, Code):
        return None
    for name in imported(f"{task.answer}\n{task.grader.check}"):
        if importlib.util.find_spec(name) is None:
            return name
    return None


def imported(program: str) -> Iterable[str]:
    """The packages that a program imports, in alphabetical order."""
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
