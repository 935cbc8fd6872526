from __future__ import annotations

import os
from pathlib import Path

import pytest

from podium.core.task import Task
from podium.tasks import load_records, load_suite
from podium.tasks.graders import make_grader
from tasks.agreement import (
    GraderAgreement,
    empty_functions,
    imported_packages,
    measure_agreement,
)

REAL = os.environ.get("PODIUM_TEST_DATA", "")


def tasks_of(name: str, data: Path) -> list[Task]:
    return [record.to_task() for record in load_records(name, data=data)]


def by_kind(rows: list[GraderAgreement]) -> dict[str, GraderAgreement]:
    return {row.what: row for row in rows}


async def test_mathematics_is_tried_with_right_and_with_wrong_answers(data: Path) -> None:
    rows = by_kind(await measure_agreement("math500", tasks_of("math500", data)))
    assert rows["reference"].graded == rows["another's"].graded == 5
    assert {"rewritten: spacing", "rewritten: units", "rewritten: wrapping"} < rows.keys()
    assert not any(row.mistakes for row in rows.values())


@pytest.mark.skipif(not REAL, reason="PODIUM_TEST_DATA names no directory of real benchmarks")
@pytest.mark.parametrize(
    "name", ["math500", "humaneval", "mbpp", "mbpp:validation", "mbpp:train", "mbpp:prompt"]
)
async def test_graders_make_no_mistake_on_the_real_files(name: str) -> None:
    rows = await measure_agreement(name, load_suite(name, data=REAL))
    assert rows
    assert not [mistake for row in rows for mistake in row.mistakes]
    assert not [row for row in rows if row.missing]


async def test_programs_are_tried_whole_and_emptied(data: Path) -> None:
    rows = by_kind(await measure_agreement("humaneval", tasks_of("humaneval", data)))
    assert [(row.graded, row.mistakes) for row in rows.values()] == [(2, ()), (2, ())]
    assert rows["reference solution"].right
    assert not rows["emptied solution"].right


async def test_a_mistake_names_the_answer_and_the_reason() -> None:
    wrong = Task(
        id="two",
        question="?",
        answer="def two(): return 3",
        grader=make_grader("code", "", {"check": "assert two() == 2, 'it is not two'"}),
    )
    rows = by_kind(await measure_agreement("own", [wrong]))
    (mistake,) = rows["reference solution"].mistakes
    assert (mistake.task, mistake.given) == ("two", "def two(): return 3")
    assert "it is not two" in str(mistake.reason)


async def test_commands_with_missing_packages_are_skipped() -> None:
    lacking = Task(
        id="absent",
        question="?",
        answer="import no_such_package_anywhere",
        grader=make_grader("code", "", {"check": "import json"}),
    )
    row = by_kind(await measure_agreement("own", [lacking]))["reference solution"]
    assert (row.graded, dict(row.missing)) == (0, {"no_such_package_anywhere": 1})


async def test_another_task_with_the_same_answer_is_passed_over() -> None:
    tasks = [
        Task(id=name, question="?", answer=answer, grader=make_grader("math", answer, {}))
        for name, answer in (("a", "5"), ("b", "x = 5"), ("c", "7"))
    ]
    rows = by_kind(await measure_agreement("own", tasks))
    assert (rows["another's"].graded, rows["another's"].mistakes) == (3, ())


def test_an_emptied_program_keeps_its_names() -> None:
    program = (
        "import os\n\ndef f(x):\n    return x\n\nclass C:\n    def g(self):\n        return 1\n"
    )
    empty = "import os\n\ndef f(x):\n    pass\n\nclass C:\n\n    def g(self):\n        pass"
    assert empty_functions(program) == empty


def test_imports_are_found_wherever_they_stand() -> None:
    program = "import os.path\ndef f():\n  from json import loads\n  from . import here"
    assert list(imported_packages(program)) == ["json", "os"]
