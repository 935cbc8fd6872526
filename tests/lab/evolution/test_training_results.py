"""What a training by evolution left: its coordinator, or that of its last checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numpy")

from podium.core.errors import ConfigError
from podium_lab.evolution.training import read_evolved
from support.evolved import coordinator


def training(directory: Path, **evolve: Any) -> Path:
    """A directory that has a recipe and nothing else; `...` leaves a key out of it."""
    directory.mkdir(parents=True, exist_ok=True)
    table = {"steps": 60, "method": "cma-es"} | evolve
    table = {key: value for key, value in table.items() if value is not ...}
    recipe = {"recipe": {"evolve": table}}
    (directory / "recipe.json").write_text(json.dumps(recipe), "utf-8")
    return directory


def checkpoint(output: Path, step: int) -> Path:
    place = output / "checkpoints" / f"checkpoint-{step}"
    coordinator().save(place / "coordinator")
    (place / "trainer_state.json").write_text("{}", "utf-8")
    return place / "coordinator"


def test_a_finished_training_left_its_coordinator(tmp_path: Path) -> None:
    checkpoint(training(tmp_path), 60)
    coordinator(turns=2).save(tmp_path / "coordinator")
    left = read_evolved(tmp_path)
    assert left.coordinator == tmp_path / "coordinator"
    assert (left.described.turns, left.steps, left.is_finished) == (2, 60, True)


def test_an_interrupted_training_left_that_of_its_last_checkpoint(tmp_path: Path) -> None:
    checkpoint(training(tmp_path), 9)
    last = checkpoint(tmp_path, 10)
    left = read_evolved(tmp_path)
    assert left.coordinator == last
    assert (left.steps, left.settings.steps, left.is_finished) == (10, 60, False)


@pytest.mark.parametrize(("directions", "searched"), [(None, 25), (2, 10)])
def test_trained_is_what_was_searched(
    tmp_path: Path, directions: int | None, searched: int
) -> None:
    coordinator().save(training(tmp_path, directions=directions) / "coordinator")
    assert read_evolved(tmp_path).parameters == searched


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"recipe\.json: No such file .*podium lab evolve"):
        read_evolved(tmp_path)
    (tmp_path / "recipe.json").write_text('{"recipe": {"grpo": {}, "evolve": null}}', "utf-8")
    with pytest.raises(ConfigError, match="nothing was evolved there"):
        read_evolved(tmp_path)
    with pytest.raises(ConfigError, match="neither a coordinator nor a checkpoint of one"):
        read_evolved(training(tmp_path))


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        ({"steps": ...}, "steps is missing, and it is required"),
        ({"steps": "many"}, "steps: expected a whole number, got the text 'many'"),
        ({"steps": [60]}, "steps: expected a whole number"),
        ({"directions": "few"}, "directions: expected a whole number"),
    ],
)
def test_a_recipe_that_is_damaged_is_reported(
    tmp_path: Path, damaged: dict[str, Any], reason: str
) -> None:
    coordinator().save(training(tmp_path, **damaged) / "coordinator")
    with pytest.raises(ConfigError, match=rf"recipe\.json: \[evolve\]: {reason}.*that is whole"):
        read_evolved(tmp_path)
