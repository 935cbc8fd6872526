from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from podium.core.errors import ConfigError, StoreError
from podium.train import preflight
from podium.train.preflight import (
    check_files,
    check_output,
    claim_output,
    disk_bytes,
    effective_values,
    missing_files,
)
from podium.train.recipe import Recipe, read_recipe
from podium.train.training_log import STATE_FILE
from support.recipes import EVOLVE, GRPO, LESSONS, OF_MODELS, RECIPES, make_recipe


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk of a terabyte, whatever this machine has."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10**12, 0, 10**12))


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "PACKAGES", ("json", "no_such_package"))
    with pytest.raises(ConfigError, match=r"no_such_package .*\[train\]"):
        preflight.require_packages()
    monkeypatch.setattr(preflight, "EVOLUTION_PACKAGES", ("json",))
    preflight.require_packages("evolve")
    monkeypatch.setattr(preflight, "PACKAGES", ("json",))
    preflight.require_packages()


def test_a_tracker_that_is_missing_is_named_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(preflight.TRACKERS, "wandb", ("no_such_package",))
    monkeypatch.setitem(preflight.TRACKERS, "tensorboard", ("no_such_package", "json"))
    preflight.require_trackers(make_recipe(tmp_path))
    preflight.require_trackers(make_recipe(tmp_path, GRPO, ['run.log=["jsonl", "tensorboard"]']))
    with pytest.raises(ConfigError, match="run.log names wandb.*pip install no_such_package"):
        preflight.require_trackers(make_recipe(tmp_path, GRPO, ['run.log=["wandb"]']))


def test_files_that_are_there_pass_and_others_are_named_by_their_key(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    check_files(recipe)
    (tmp_path / "pool.toml").unlink()
    (tmp_path / "tasks.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"pool.file: there is no .*pool.toml.*\(1 more"):
        check_files(recipe)


def test_a_base_that_is_unknown_is_reported(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, LESSONS, ["model.base=smollm2-135m-instrukt"])
    with pytest.raises(ConfigError, match="model.base: .*did you mean smollm2-135m-instruct"):
        check_files(recipe)


def test_a_fresh_directory_is_claimed_with_the_recipe(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    check_output(recipe, resume=False)
    claim_output(recipe)
    claim = json.loads((recipe.output / preflight.RECIPE_FILE).read_text("utf-8"))
    assert claim["recipe"]["grpo"]["rollouts"] == 8
    check_output(recipe, resume=False)  # it died before its first checkpoint


def test_a_training_that_has_begun_is_only_resumed(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    claim_output(recipe)
    half_written = recipe.output / "checkpoints" / "checkpoint-20"
    half_written.mkdir(parents=True)
    check_output(recipe, resume=False)
    (half_written / STATE_FILE).write_text("{}", "utf-8")
    check_output(recipe, resume=True)
    with pytest.raises(ConfigError, match="holds this training already; continue it with --resume"):
        check_output(recipe, resume=False)


@pytest.mark.parametrize("resume", [True, False])
def test_another_recipes_directory_is_refused_with_the_difference(
    tmp_path: Path, resume: bool
) -> None:
    claim_output(make_recipe(tmp_path))
    other = make_recipe(tmp_path, overrides=["grpo.steps=11"])
    with pytest.raises(ConfigError, match="another recipe, which differs in grpo.steps; name"):
        check_output(other, resume=resume)


def as_before(recipe: Recipe, *newer: str) -> None:
    """Claim the recipe's directory as a Podium did that knew none of these keys yet."""
    claim_output(recipe)
    path = recipe.output / preflight.RECIPE_FILE
    claim = json.loads(path.read_text("utf-8"))
    for key in newer:
        *tables, last = key.split(".")
        table = claim["recipe"]
        for name in tables:
            table = table[name]
        del table[last]
    path.write_text(json.dumps(claim), "utf-8")


ETUDES = ["data.kind=etudes", "data.file=", "pool.file=", "pool.oracle=true"]
LATER = [*ETUDES, "data.etudes.later_round_share=0.5"]
BEFORE = [
    (GRPO, LATER, ("evolve", "data.etudes.nested_phrase_share", "reward.replan_penalty")),
    (EVOLVE, [], ("evolve.principal_directions",)),
    (LESSONS, [], ("evolve", "sft.max_pass_tokens")),
]


@pytest.mark.parametrize(("text", "overrides", "newer"), BEFORE)
def test_runs_from_before_any_key_continue(
    tmp_path: Path, text: str, overrides: list[str], newer: tuple[str, ...]
) -> None:
    recipe = make_recipe(tmp_path, text, overrides)
    as_before(recipe, *newer)
    check_output(recipe, resume=True)


def test_a_changed_newer_key_is_the_only_reported_difference(
    tmp_path: Path,
) -> None:
    text, overrides, newer = BEFORE[0]
    as_before(make_recipe(tmp_path, text, overrides), *newer)
    other = make_recipe(tmp_path, text, [*overrides, "reward.replan_penalty=0.2"])
    with pytest.raises(ConfigError, match="differs in reward.replan_penalty; name"):
        check_output(other, resume=True)


@pytest.mark.parametrize("path", OF_MODELS, ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_known_again(tmp_path: Path, path: Path) -> None:
    recipe = read_recipe(path, [f"run.output={tmp_path / 'out'}"])
    claim_output(recipe)
    check_output(recipe, resume=True)


def test_a_kept_recipe_that_cannot_be_read_any_more_is_reported(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    claim_output(recipe)
    path = recipe.output / preflight.RECIPE_FILE
    claim = json.loads(path.read_text("utf-8"))
    claim["recipe"]["model"]["compile"] = True
    path.write_text(json.dumps(claim), "utf-8")
    with pytest.raises(ConfigError, match=r"recipe\.json: unknown key model\.compile.*--output"):
        check_output(recipe, resume=True)
    path.write_text('{"recipe": 7}', "utf-8")
    with pytest.raises(ConfigError, match="holds something that is no training"):
        check_output(recipe, resume=True)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, GRPO.replace('"out"', '"."'))
    with pytest.raises(ConfigError, match="holds something that is no training"):
        check_output(recipe, resume=False)
    file = make_recipe(tmp_path, GRPO.replace('"out"', '"pool.toml"'))
    with pytest.raises(ConfigError, match="is a file"):
        check_output(file, resume=False)


def test_there_is_nothing_to_resume_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to resume"):
        check_output(make_recipe(tmp_path), resume=True)


def test_a_disk_without_room_is_reported_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = make_recipe(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10**12, 0, 10**11))
    with pytest.raises(StoreError, match=r"no room in .*out: .* set --output to a directory on a"):
        claim_output(recipe)
    assert not (recipe.output / preflight.RECIPE_FILE).exists()


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, GRPO.replace('"out"', '"pool.toml/out"'))
    with pytest.raises(StoreError, match="cannot write to .* set --output to a directory that is"):
        claim_output(recipe)


def test_room_is_needed_for_checkpoints_and_kept_replies(tmp_path: Path) -> None:
    whole = disk_bytes(make_recipe(tmp_path, overrides=["run.max_checkpoints=1", "run.cache_mb=0"]))
    assert whole == 7_000_000_000 * 14 * 2
    adapter = ["run.max_checkpoints=1", "run.cache_mb=0", "model.lora={ rank = 8 }"]
    assert disk_bytes(make_recipe(tmp_path, overrides=adapter)) == whole * 8 // 400
    with_cache = disk_bytes(
        make_recipe(tmp_path, overrides=["run.max_checkpoints=1", "run.cache_mb=5"])
    )
    assert with_cache == whole + 5_000_000


def test_a_model_on_this_machine_needs_room_for_what_its_files_hold(tmp_path: Path) -> None:
    base = tmp_path / "7B-by-name-alone"
    base.mkdir()
    for part in ("model-1.safetensors", "model-2.safetensors"):
        (base / part).write_bytes(b"\0" * 1_000)
    settings = [f"model.base={base}", "run.max_checkpoints=1", "run.cache_mb=0"]
    assert disk_bytes(make_recipe(tmp_path, overrides=settings)) == 1_000 * 14 * 2


def test_only_values_with_an_effect_are_resolved(tmp_path: Path) -> None:
    values = effective_values(make_recipe(tmp_path))
    assert "etudes" not in values["data"]
    assert "drop" not in values["pool"]
    assert values["reward"]["wrong"] == 0.5
    lessons = effective_values(make_recipe(tmp_path, LESSONS))
    assert "prompt" not in lessons
    assert lessons["data"]["etudes"].keys() == {"unsure_share"}


def test_missing_files_name_the_recipe_that_makes_them(tmp_path: Path) -> None:
    beside = tmp_path / "recipes"
    beside.mkdir()
    for name in ("etudes-evolved.toml", "etudes-practice.toml"):
        shutil.copy(RECIPES / name, beside / name)
    recipe = read_recipe(beside / "etudes-evolved.toml")
    maker = beside / "etudes-practice.toml"
    lines = [line for line in missing_files(recipe) if line.startswith("pool.adapters.words")]
    assert lines == [
        f"pool.adapters.words: there is no {recipe.pool.adapters['words']}, which {maker} makes"
    ]
