from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.core.errors import UsageError
from podium_lab.evals.tables import NOT_MEASURED, TrainingCost, read_training_cost


def write(directory: Path, seconds: float | None, *steps: object) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "summary.json").write_text(json.dumps({"seconds": seconds}), "utf-8")
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in steps)
    (directory / "metrics.jsonl").write_text(text, "utf-8")


def test_minutes_are_the_wall_time_and_the_rate_is_that_of_the_steps(tmp_path: Path) -> None:
    write(tmp_path, 90.0, *[{"rollouts": 1000, "seconds": 5.0}] * 12)
    figures = read_training_cost([tmp_path])
    assert figures.minutes == 1.5
    assert figures.rollouts_per_second == 200.0


def test_several_trainings_are_taken_together(tmp_path: Path) -> None:
    write(tmp_path / "first", 60.0, {"loss": 0.5, "seconds": 60.0})
    write(tmp_path / "second", 60.0, {"rollouts": 300, "seconds": 3.0})
    figures = read_training_cost([tmp_path / "first", tmp_path / "second"])
    assert figures.minutes == 2.0
    assert figures.rollouts_per_second == 100.0


def test_of_several_trainings_no_time_is_known_where_one_is_not(tmp_path: Path) -> None:
    write(tmp_path / "first", 60.0)
    write(tmp_path / "second", None)
    assert read_training_cost([tmp_path / "first", tmp_path / "second"]).minutes is None


def test_a_line_that_a_crash_cut_off_is_left_out(tmp_path: Path) -> None:
    steps = ({"rollouts": 10, "seconds": 2}, "17", {"step": 3}, '{"rollouts": 10, "sec')
    write(tmp_path, 60.0, *steps)
    assert read_training_cost([tmp_path]).rollouts_per_second == 5.0


def test_unrecorded_steps_are_unknown(tmp_path: Path) -> None:
    assert read_training_cost([]) == NOT_MEASURED
    write(tmp_path, None, {"loss": 1.0})
    assert read_training_cost([tmp_path]) == NOT_MEASURED


def test_of_metrics_alone_the_time_is_that_of_the_steps(tmp_path: Path) -> None:
    write(tmp_path, 90.0, *[{"rollouts": 1000, "seconds": 5.0}] * 12, {"step": 12, "accuracy": 1})
    figures = read_training_cost([tmp_path / "metrics.jsonl"])
    assert figures == TrainingCost(minutes=1.0, rollouts_per_second=200.0)
    (tmp_path / "metrics.jsonl").write_text("nothing of use\n", "utf-8")
    assert read_training_cost([tmp_path / "metrics.jsonl"]) == NOT_MEASURED


def test_a_directory_of_no_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no summary\.json in it"):
        read_training_cost([tmp_path])


def test_a_training_that_is_named_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "run", 60.0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"run is named 2 times; name each training once"):
        read_training_cost([tmp_path / "run", Path("run")])


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"seconds": NaN, "rollouts": NaN}',
        b'{"seconds": Infinity, "rollouts": 1e999}',
        b'{"seconds": "90", "rollouts": 1' + b"0" * 400 + b"}",
        b"\xff\xfe",
        b'{"seconds": ' + b"[" * 100_000,
    ],
    ids=["none", "infinite", "too large", "no text", "deep"],
)
def test_of_figures_that_are_damaged_nothing_is_known(tmp_path: Path, damaged: bytes) -> None:
    for name in ("summary.json", "metrics.jsonl"):
        (tmp_path / name).write_bytes(damaged)
    assert read_training_cost([tmp_path]) == NOT_MEASURED
