from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.train.curves import read_histories


def step(number: int, **more: float) -> dict[str, float]:
    """A line of a training that learns from reward."""
    return {"step": number, "seconds": 4.0, "rollouts": 8.0, "reward": number / 10, **more}


def write_metrics(directory: Path, *lines: dict[str, float] | str) -> Path:
    directory.mkdir(exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
    (directory / "metrics.jsonl").write_text("".join(texts), "utf-8")
    return directory


def test_a_training_is_called_as_its_directory_and_a_file_by_its_own_name(tmp_path: Path) -> None:
    directory = write_metrics(tmp_path / "one", step(1))
    copy = tmp_path / "trial.jsonl"
    copy.write_text(json.dumps(step(1)), "utf-8")
    read = read_histories([directory, copy])
    assert [each.name for each in read] == ["one", "trial"]
    assert [each.name for each in read_histories([directory / "metrics.jsonl"])] == ["one"]


def test_two_trainings_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    both = [write_metrics(tmp_path / place / "out", step(1)) for place in ("x", "y")]
    assert [each.name for each in read_histories(both)] == [str(path) for path in both]


def test_a_line_that_is_being_written_is_left_out_and_counted(tmp_path: Path) -> None:
    directory = write_metrics(tmp_path / "a", step(1), step(2), '{"step": 3, "rew')
    (read,) = read_histories([directory])
    assert read.series["reward"] == {1: 0.1, 2: 0.2}
    assert read.left_out == 1


def test_steps_repeated_after_a_crash_replace_all_that_was_lost(tmp_path: Path) -> None:
    lost = [step(n, reward=9.0) for n in (3, 4, 5)]
    measured = {"step": 2, "held_out/reward": 0.7}, {"step": 4, "held_out/reward": 9.0}
    directory = write_metrics(
        tmp_path / "a", step(1), step(2), measured[0], *lost, measured[1], step(3), step(4)
    )
    (read,) = read_histories([directory])
    assert read.series["reward"] == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
    assert read.series["held_out/reward"] == {2: 0.7}


def test_a_line_behind_a_half_written_one_counts(tmp_path: Path) -> None:
    directory = write_metrics(tmp_path / "a", step(1), '{"step": 2, "sec', step(2))
    (read,) = read_histories([directory])
    assert read.series["reward"] == {1: 0.1, 2: 0.2}
    assert read.left_out == 1


@pytest.mark.parametrize("line", ["[1, 2]", '{"reward": 1}', '{"step": "x"}', "no JSON"])
def test_what_is_no_step_is_left_out(tmp_path: Path, line: str) -> None:
    (read,) = read_histories([write_metrics(tmp_path / "a", f"{line}\n", step(1))])
    assert (read.series["reward"], read.left_out) == ({1: 0.1}, 1)


def test_what_is_no_finite_number_is_left_out(tmp_path: Path) -> None:
    line = '{"step": 2, "reward": NaN, "loss": 1e999, "shape": "chain", "accuracy": 0.5}\n'
    (read,) = read_histories([write_metrics(tmp_path / "a", step(1), line)])
    assert read.series["reward"] == {1: 0.1}
    assert "loss" not in read.series
    assert "shape" not in read.series
    assert read.series["accuracy"] == {2: 0.5}


def test_seconds_since_the_beginning_are_no_seconds_of_a_step(tmp_path: Path) -> None:
    trained = {"step": 10, "loss": 0.5, "seconds": 99.0}
    recited = {"step": 10, "seconds": 101.0, "eval/words": 0.25}
    (read,) = read_histories([write_metrics(tmp_path / "a", trained, recited)])
    assert read.series == {"loss": {10: 0.5}, "eval/words": {10: 0.25}}


@pytest.mark.parametrize("text", ["", "nothing"])
def test_a_training_without_a_step_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="holds no step of a training yet"):
        read_histories([write_metrics(tmp_path / "a", text)])


def test_a_directory_without_metrics_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no metrics"):
        read_histories([tmp_path])
    with pytest.raises(ConfigError, match="holds no metrics"):
        read_histories([tmp_path / "gone"])
