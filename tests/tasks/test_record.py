from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.core.errors import ConfigError, StoreError
from podium.tasks import TaskRecord, load_suite, read_records, save_suite

RECORDS = [
    TaskRecord(id="a", question="Which river?", answer="Seine", grader="exact", kind="rivers"),
    TaskRecord(
        id="b", question="How long?", answer="5", grader="number", parameters={"tolerance": 0.1}
    ),
    TaskRecord(
        id="c",
        question="Écho ¶",
        answer="",
        grader="code",
        parameters={"tests": [{"input": "x", "output": "x"}], "tagged": True},
    ),
]


def test_records_come_back_from_a_file_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "new" / "suite.jsonl"
    save_suite(path, RECORDS)
    assert read_records(path) == RECORDS


async def test_a_task_from_a_file_grades_as_its_record_says(tmp_path: Path) -> None:
    path = tmp_path / "suite.jsonl"
    save_suite(path, RECORDS)
    river, length, echo = load_suite(path)
    assert (river.id, river.kind, river.answer) == ("a", "rivers", "Seine")
    assert await river.grader("seine")
    assert await length.grader("5.4")
    assert not await length.grader("5.6")
    assert await echo.grader("<answer>print(input())</answer>")


def test_a_plain_grader_is_written_by_its_name_alone() -> None:
    assert RECORDS[0].to_json()["grader"] == "exact"
    assert RECORDS[1].to_json()["grader"] == {"name": "number", "tolerance": 0.1}
    assert json.loads(json.dumps(RECORDS[2].to_json()))["grader"]["tagged"] is True


def test_a_suite_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        save_suite(tmp_path / "file" / "suite.jsonl", RECORDS)


def test_a_task_needs_a_question() -> None:
    with pytest.raises(ConfigError, match="question is missing"):
        TaskRecord(id="a", question=" ", answer="1", grader="exact").to_task()
