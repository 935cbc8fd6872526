"""What each step of learning from reward is held against, in a training of a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from podium.train.diagnostics import (
    BASELINES_FILE,
    Accuracy,
    Baselines,
    read_baselines,
    write_baselines,
)
from support.recipes import make_recipe
from support.tiny_model import tiny_model

torch = pytest.importorskip("torch")
grpo = pytest.importorskip("podium.train.grpo")

pytestmark = pytest.mark.torch

RECIPE = """
[model]
base = "./model"
dtype = "float32"
lora = { rank = 2 }
[data]
kind = "etudes"
[[data.etudes.stage]]
shapes = { chain-2 = 1 }
[data.etudes]
everyday_share = 0.0
[pool]
oracle = true
worker_dropout = 0.9
[prompt]
style  = "trained"
access = "index"
[grpo]
steps = 1
questions = 2
rollouts = 2
learning_rate = 1e-4
max_completion_tokens = 4
max_prompt_tokens = 190
[run]
output = "out"
save_every = 1
eval_every = 1
eval_tasks = 24
"""


def metrics(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "out" / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_step_reports_how_far_it_is_from_the_best_worker_and_from_ideal_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_model(tmp_path / "model")
    recipe = make_recipe(tmp_path, RECIPE)
    grpo.train(recipe)
    found = read_baselines(tmp_path / "out")
    assert found is not None
    assert found.tasks == 24
    assert found.workers[found.best].overall > 0
    step, held_out = metrics(tmp_path)
    assert (step["regret"], step["ceiling_gap"]) == (0.0, 1.0)
    assert held_out["held_out/regret"] == pytest.approx(found.workers[found.best].overall, abs=1e-4)
    assert held_out["held_out/ceiling_gap"] == 1.0
    assert held_out["held_out/rollouts"] == 24, "everyday questions are counted by themselves"
    assert held_out["held_out/everyday"] == 0.0
    assert "held_out/accuracy/everyday" not in held_out
    output = capsys.readouterr().err
    assert f"on 24 questions: {found.best} alone" in output
    assert "questions were left out" in output
    assert "grpo.max_prompt_tokens = 190" in output

    kinder = Baselines(12, {"words": Accuracy(0.5, {"chain-2": 0.5})})
    write_baselines(tmp_path / "out", kinder)
    grpo.train(make_recipe(tmp_path, RECIPE, ["grpo.steps=2"]), resume=True)
    again = metrics(tmp_path)[2]
    assert (again["step"], again["regret"]) == (2, 0.5)
    assert "ceiling_gap" not in again
    assert read_baselines(tmp_path / "out") == kinder


def test_nothing_is_measured_where_the_recipe_does_not_want_it(tmp_path: Path) -> None:
    tiny_model(tmp_path / "model")
    off = ["run.baselines=false", "run.eval_every=0"]
    grpo.train(make_recipe(tmp_path, RECIPE, off))
    (step,) = metrics(tmp_path)
    assert "regret" not in step
    assert not (tmp_path / "out" / BASELINES_FILE).exists()
