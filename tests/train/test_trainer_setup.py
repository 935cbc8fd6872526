"""Settings that both trainers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.recipes import make_recipe

pytest.importorskip("torch")
pytest.importorskip("trl")

from podium.train.grpo import grpo_config

pytestmark = pytest.mark.torch


def test_a_trainer_gets_optimiser_checkpoints_and_metrics_path(
    tmp_path: Path,
) -> None:
    values = ["grpo.learning_rate=0.002", "grpo.warmup_ratio=0.25", "grpo.steps=12"]
    kept = [
        "run.save_every=3",
        "run.max_checkpoints=2",
        "run.seed=5",
        'run.log=["jsonl", "tensorboard"]',
    ]
    recipe = make_recipe(tmp_path, overrides=[*values, *kept])
    arguments = grpo_config(recipe)
    assert (arguments.learning_rate, arguments.max_steps, arguments.warmup_steps) == (0.002, 12, 3)
    assert (arguments.save_steps, arguments.save_total_limit, arguments.seed) == (3, 2, 5)
    assert arguments.output_dir == str(recipe.output / "checkpoints")
    assert arguments.report_to == ["tensorboard"]


@pytest.mark.parametrize(("seed", "known"), [(7, 7), (-1, 2**32 - 1), (2**32 + 7, 7)])
def test_any_whole_number_is_a_seed(tmp_path: Path, seed: int, known: int) -> None:
    arguments = grpo_config(make_recipe(tmp_path, overrides=[f"run.seed={seed}"]))
    assert (arguments.seed, arguments.data_seed) == (known, known)


def test_no_training_reports_to_the_hub() -> None:
    from huggingface_hub import constants

    assert constants.HF_HUB_DISABLE_TELEMETRY
