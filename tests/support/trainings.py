"""Trainings that take a moment: recipes over the tiny model, a policy that writes plans now and
then, and what a training leaves behind. Needs torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.train.recipe import Recipe, read_recipe
from support.tiny_model import tiny_model

LORA = 'lora = { rank = 2, alpha = 4.0, targets = ["q_proj", "v_proj"] }'

LESSONS = f"""
[model]
base = "BASE"
{LORA}
[data]
kind = "etudes"
[sft]
dataset = "specialists"
adapters = ["words", "lists"]
steps = 4
batch = 2
examples = 8
learning_rate = 1e-2
[run]
output = "out"
save_every = 2
"""

REWARD = f"""
[model]
base = "BASE"
{LORA}
[data]
kind = "etudes"
[data.etudes]
everyday_share = 0.0
[pool]
oracle = true
[prompt]
style = "trained"
few_shot = false
access = "index"
[grpo]
steps = 4
questions = 2
rollouts = 4
learning_rate = 1e-2
max_completion_tokens = 4
[run]
output = "out"
save_every = 2
cache_mb = 1
"""


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2 of random weights."""
    pytest.importorskip("torch").set_num_threads(1)
    return tiny_model(tmp_path_factory.mktemp("tiny"), "qwen2")


def tiny_recipe(text: str, base: Path, directory: Path, *overrides: str) -> Recipe:
    """The recipe over that base, with everything that comes out below the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "recipe.toml"
    path.write_text(text.replace("BASE", str(base)), "utf-8")
    return read_recipe(path, overrides)


def let_it_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tiny model write a plan now and then: it has no words, but it can choose. What it
    says follows from its first token, and of three tokens two make a plan."""
    from podium.train.rollouts import Policy

    sample = Policy.sample

    def ended(policy: Policy, *arguments: Any, **options: Any) -> list[Any]:
        return [replace(one, ended=True) for one in sample(policy, *arguments, **options)]

    def said(policy: Policy, tokens: Sequence[int]) -> str:
        if tokens[0] % 3 == 0:
            return "I would rather not."
        step = {"subtask": "What is 2 + 2?", "worker": tokens[0] % 2, "access": []}
        return json.dumps({"steps": [step]})

    monkeypatch.setattr(Policy, "sample", ended)
    monkeypatch.setattr(Policy, "decode", said)


def adapter_bytes(recipe: Recipe, name: str = "conductor") -> bytes:
    """The weights of an adapter that was trained."""
    return (recipe.output / name / "adapter_model.safetensors").read_bytes()


def metrics(recipe: Recipe) -> list[dict[str, Any]]:
    """What the logbook says of each step, without what depends on the clock."""
    lines = (recipe.output / "metrics.jsonl").read_text("utf-8").splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith("seconds")}
        for line in lines
    ]
