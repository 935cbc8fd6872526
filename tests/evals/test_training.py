from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.errors import UsageError
from podium.evals.training import NOT_MEASURED, read_training


def write(directory: Path, *lines: object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (directory / "metrics.jsonl").write_text(text, "utf-8")


def test_stretches_of_one_training_are_added_up(tmp_path: Path) -> None:
    write(tmp_path / "sft", {"loss": 0.5, "seconds": 60.0})
    write(tmp_path / "grpo", *[{"rollouts": 1000, "seconds": 5.0}] * 12)
    figures = read_training(tmp_path)
    assert figures.minutes == 2.0
    assert figures.rollouts_per_second == 200.0


def test_a_line_that_a_crash_cut_off_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"rollouts": 10, "seconds": 2}, "17", {"step": 3}, '{"rollouts": 10, "sec')
    assert read_training(tmp_path).rollouts_per_second == 5.0


def test_without_a_directory_nothing_is_known(tmp_path: Path) -> None:
    assert read_training(None) == NOT_MEASURED
    write(tmp_path, {"loss": 1.0})
    assert read_training(tmp_path) == NOT_MEASURED


def test_a_directory_of_no_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no metrics.jsonl in it"):
        read_training(tmp_path)
