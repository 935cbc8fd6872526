from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.server.training_runs import (
    MAX_POINTS,
    Artifact,
    read_series,
    samples_document,
    training_document,
)


@pytest.fixture
def exhibit(tmp_path: Path) -> Artifact:
    return Artifact("name", "a/title", "training", tmp_path)


def write(path: Path, *entries: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in entries)


def test_the_series_grow_with_the_file(exhibit: Artifact) -> None:
    write(exhibit.metrics, {"step": 1, "reward": 0.5, "rollouts": 8, "seconds": 2.0})
    assert training_document(exhibit)["series"]["reward"] == [[1, 0.5]]
    write(exhibit.metrics, {"step": 2, "reward": 0.75}, {"step": 2, "held_out/accuracy": 0.5})
    series = training_document(exhibit)["series"]
    assert series["reward"] == [[1, 0.5], [2, 0.75]]
    assert series["held_out/accuracy"] == [[2, 0.5]]


def test_real_metrics_are_read_whole() -> None:
    trials = Path(__file__).parents[3] / "results" / "trials"
    exhibit = Artifact("trials.grpo-4", "trials/grpo-4", "training", trials / "grpo-4.jsonl")
    document = training_document(exhibit)
    lines = (trials / "grpo-4.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines if "accuracy_given_valid" in line]
    assert [step for step, _ in document["series"]["accuracy_given_valid"]] == sorted(set(steps))
    assert {"reward", "entropy_bits", "steps/1", "held_out/accuracy"} <= document["series"].keys()
    assert document["left_out"] == 0


def test_non_numbers_are_skipped() -> None:
    lines = [
        b'{"step": 1, "a": NaN, "b": Infinity, "c": true, "d": "x", "e": 1e300, "f": 2}',
        b"nonsense",
        b'{"a": 1}',
        b"[1]",
        b'{"step": 2, "f": 3{"step": 3, "f": 4}',
    ]
    series, left_out = read_series(lines)
    assert series == {"f": {1: 2.0, 3: 4.0}}
    assert left_out == 4


def test_a_step_that_was_repeated_after_a_break_replaces_what_was_lost() -> None:
    lines = [b'{"step": %d, "reward": %d}' % (step, step) for step in (1, 2, 3)]
    series, _ = read_series([*lines, b'{"step": 2, "reward": 9}'])
    assert series == {"reward": {1: 1.0, 2: 9.0}}


def test_a_long_training_is_thinned(exhibit: Artifact) -> None:
    write(exhibit.metrics, *({"step": n, "reward": n % 2} for n in range(1, 2001)))
    points = training_document(exhibit)["series"]["reward"]
    assert len(points) <= MAX_POINTS
    assert points[-1] == [2000, pytest.approx(0.4, abs=0.2)]


def test_thinning_keeps_related_items_together(exhibit: Artifact) -> None:
    entries = [
        {"step": n, "mean_steps": 1.5, "steps/1": 0.5, **({"steps/2": 0.5} if n % 2 else {})}
        for n in range(1, 1001)
    ]
    write(exhibit.metrics, *entries)
    series = training_document(exhibit)["series"]
    steps = [step for step, _ in series["mean_steps"]]
    assert [step for step, _ in series["steps/2"]] == steps
    assert steps[-1] == 1000
    assert sum(value for _, value in series["steps/2"]) / len(steps) == pytest.approx(
        0.25, abs=0.01
    )


def test_the_summary_says_how_far_it_came(exhibit: Artifact) -> None:
    assert training_document(exhibit)["is_finished"] is None
    summary = {"step": 9, "train_minutes": 1.5, "finished": True, "odd": "<script>"}
    (exhibit.path / "summary.json").write_text(json.dumps(summary))
    document = training_document(exhibit)
    assert document["is_finished"]
    assert document["summary"] == {"step": 9, "train_minutes": 1.5, "finished": True}
    assert (document["series"], document["updated_at"]) == ({}, None)


def test_samples_are_those_of_a_step_or_of_the_last_before_it(exhibit: Artifact) -> None:
    empty = samples_document(exhibit, None)
    assert (empty["steps"], empty["step"], empty["samples"]) == ([], None, [])
    write(
        exhibit.path / "samples.jsonl",
        {"step": 1, "text": "a", "right": True, "reward": 1.0, "nested": {}},
        {"step": 1, "text": "b"},
        {"step": 5, "text": "x" * 100_000},
    )
    first = samples_document(exhibit, 1)
    assert first["steps"] == [1, 5]
    assert first["samples"] == [
        {"step": 1, "text": "a", "right": True, "reward": 1.0},
        {"step": 1, "text": "b"},
    ]
    assert samples_document(exhibit, 4)["step"] == 1
    assert samples_document(exhibit, 0)["step"] == 1
    last = samples_document(exhibit, None)
    assert last["step"] == 5
    assert len(last["samples"][0]["text"]) == 8000
