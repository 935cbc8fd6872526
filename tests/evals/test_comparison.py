from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from podium.errors import UsageError
from podium.evals.comparison import compared

RIGHT = "42"


def written(directory: Path, answers: Mapping[str, str], strategy: str = "conductor") -> Path:
    """Samples as an evaluation leaves them; the one right answer is 42."""
    directory.mkdir(exist_ok=True)
    lines = (
        json.dumps({"task": task, "right": answer == RIGHT, "run": {"answer": answer}})
        for task, answer in answers.items()
    )
    (directory / f"{strategy}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return directory


def test_tasks_are_matched_by_their_ids_in_whatever_order_they_ended(tmp_path: Path) -> None:
    first = written(tmp_path / "a", {"x": RIGHT, "y": "1", "z": RIGHT, "w": "2"})
    second = written(tmp_path / "b", {"w": "3", "z": "4", "y": RIGHT, "x": RIGHT})
    document = compared(first, second, "conductor").document()
    assert document["n"] == 4
    assert document["first"]["value"] == document["second"]["value"] == 0.5
    assert (document["difference"]["gained"], document["difference"]["lost"]) == (1, 1)
    assert document["same_answers"]["value"] == 0.25


def test_exactly_two_points_are_within_two_points_in_either_direction(tmp_path: Path) -> None:
    """In floating point, 0.9 less 0.88 is a little more than 0.02."""
    first = written(tmp_path / "a", {str(n): RIGHT if n < 90 else "1" for n in range(100)})
    second = written(tmp_path / "b", {str(n): RIGHT if n < 88 else "1" for n in range(100)})
    for one, other in ((first, second), (second, first)):
        comparison = compared(one, other, "conductor")
        assert comparison.is_within(0.02)
        assert not comparison.is_within(0.019)
    assert compared(first, second, "conductor").difference.share.value == -0.02


def test_different_tasks_cannot_be_compared(tmp_path: Path) -> None:
    first = written(tmp_path / "a", {"x": RIGHT, "y": "1"})
    second = written(tmp_path / "b", {"x": RIGHT, "z": "1"})
    with pytest.raises(UsageError, match="2 tasks are in one of .* alone; measure both with"):
        compared(first, second, "conductor")


def test_who_has_no_such_samples_is_told_which_there_are(tmp_path: Path) -> None:
    first = written(tmp_path / "a", {"x": RIGHT}, "moa")
    with pytest.raises(UsageError, match="has samples of moa: podium eval run --output"):
        compared(first, first, "conductor")
    with pytest.raises(UsageError, match="has samples of no strategy"):
        compared(tmp_path / "nowhere", first, "conductor")


@pytest.mark.parametrize("line", ['{"task": "x", "right": tr', '{"task": "x"}', "[]"])
def test_a_line_that_was_cut_off_is_named(tmp_path: Path, line: str) -> None:
    directory = written(tmp_path / "a", {"x": RIGHT})
    file = directory / "conductor.jsonl"
    file.write_text(file.read_text("utf-8") + line, "utf-8")
    with pytest.raises(UsageError, match=r"conductor.jsonl, line 2: expected a sample"):
        compared(directory, directory, "conductor")
