"""TRL's settings for a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from support.recipes import make_recipe
from support.trainings import REWARD, base, tiny_recipe

pytest.importorskip("torch")
pytest.importorskip("trl")

from podium.train.grpo import grpo_config, rows_per_process

pytestmark = pytest.mark.torch

__all__ = ["base"]


def test_rollouts_are_divided_among_processes_by_whole_questions_or_parts_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for processes, rows in ((1, 256), (2, 128), (4, 64), (8, 32)):
        monkeypatch.setenv("WORLD_SIZE", str(processes))
        assert rows_per_process(4, 64) == rows
    for processes, questions, rollouts in ((2, 3, 4), (3, 4, 4), (8, 1, 4)):
        monkeypatch.setenv("WORLD_SIZE", str(processes))
        with pytest.raises(ConfigError, match=f"cannot be divided among {processes} processes"):
            rows_per_process(questions, rollouts)


def test_a_step_may_go_through_the_model_in_several_passes(base: Path, tmp_path: Path) -> None:
    arguments = grpo_config(tiny_recipe(REWARD, base, tmp_path, "grpo.micro_batch=2"))
    assert arguments.per_device_train_batch_size == 2
    assert arguments.gradient_accumulation_steps == 4
    assert arguments.generation_batch_size == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["grpo.explore=4"], "grpo.explore is 4, and of 4 rollouts at least one must stay"),
        (["grpo.rollouts=6", "recursion.share=0.5"], "makes 2 of 3 rollouts second rounds"),
    ],
)
def test_the_share_of_a_question_that_a_process_has_must_do_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: list[str], message: str
) -> None:
    recipe = make_recipe(tmp_path, overrides=["grpo.questions=1", *settings])
    grpo_config(recipe)  # alone it has all of them
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="each of 2 processes has") as refused:
        grpo_config(recipe)
    assert message in str(refused.value)


def test_several_processes_do_not_share_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    recipe = make_recipe(tmp_path, overrides=["grpo.max_pass_tokens=1000"])
    with pytest.raises(ConfigError, match="grpo.max_pass_tokens is for one process"):
        grpo_config(recipe)
