"""What the KL term of learning from reward holds the policy to, seen in a model of a few thousand
parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.recipes import make_recipe
from support.tiny_model import tiny_model

torch = pytest.importorskip("torch")
grpo = pytest.importorskip("podium.train.grpo")

pytestmark = pytest.mark.torch

RECIPE = """
[model]
base = "./model"
dtype = "float32"
[data]
kind = "etudes"
[pool]
oracle = true
worker_dropout = 0.9
[prompt]
style  = "trained"
access = "index"
[grpo]
steps = 2
questions = 1
rollouts = 4
learning_rate = 1e-2
schedule = "constant"
warmup_ratio = 0.0
beta = 0.5
max_completion_tokens = 4
[run]
output = "out"
save_every = 1
baselines = false
cache_mb = 0
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a model, an adapter that changes much of what it says, and rewards that
    differ whatever was written."""
    from peft import LoraConfig, get_peft_model

    from podium.workers.local import pretrained

    tiny_model(tmp_path / "model")
    torch.manual_seed(1)
    base = pretrained.load(str(tmp_path / "model")).model
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "up_proj"])
    adapter = get_peft_model(base, config)
    for name, weights in adapter.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.5)
    adapter.save_pretrained(tmp_path / "adapter")

    def rewards(self: Any, plans: list[Any]) -> list[float]:
        return [float(where % 2) for where, _ in enumerate(plans)]

    monkeypatch.setattr("podium.train.rollouts.Rollouts._rewards", rewards)
    return tmp_path


ADAPTER = [
    'model.adapter="./adapter"',
    'model.lora={ rank = 2, alpha = 4.0, targets = ["q_proj", "up_proj"] }',
]


def divergence(directory: Path, step: int) -> float:
    """How far the policy was from its reference when that step began."""
    state = directory / "out" / "checkpoints" / f"checkpoint-{step}" / "trainer_state.json"
    history = json.loads(state.read_text("utf-8"))["log_history"]
    return float(next(entry["kl"] for entry in history if entry["step"] == step))


def test_an_adapter_is_held_to_what_it_was_when_training_began_also_when_it_continues(
    world: Path,
) -> None:
    from safetensors.torch import load_file

    recipe = make_recipe(world, RECIPE, ADAPTER)
    grpo.train(recipe)
    assert divergence(world, 1) == pytest.approx(0.0, abs=1e-6)
    moved = divergence(world, 2)
    assert moved > 1e-4
    conductor = world / "out" / "conductor"
    assert not [path for path in conductor.rglob("*") if path.is_dir()], "no reference is written"
    finished = load_file(conductor / "adapter_model.safetensors")

    last = world / "out" / "checkpoints" / "checkpoint-2"
    for path in sorted(last.iterdir()):
        path.unlink()
    last.rmdir()
    grpo.train(recipe, resume=True)
    assert divergence(world, 2) == pytest.approx(moved)
    again = load_file(conductor / "adapter_model.safetensors")
    for name, weights in finished.items():
        torch.testing.assert_close(again[name], weights)


def test_a_whole_model_is_held_to_its_base(world: Path) -> None:
    grpo.train(make_recipe(world, RECIPE, ["grpo.learning_rate=1e-3"]))
    assert divergence(world, 1) == pytest.approx(0.0, abs=1e-6)
    assert divergence(world, 2) > 1e-4
