from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.train.exercises import load_task_split
from podium.train.recipe import read_recipe
from support.recipes import RECIPES, TASK, make_recipe

GSM8K = '{"question": "How many?", "answer": "Count.\\n#### %d"}\n'


def test_a_file_gives_its_first_tasks(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, overrides=["data.file.limit=2"])
    lines = "".join(TASK.replace("2 + 2?", f"{n}?") for n in range(5))
    (tmp_path / "tasks.jsonl").write_text(lines, "utf-8")
    found = load_task_split(recipe)
    assert [record.question for record in found.train] == ["0?", "1?"]
    assert found.held_out == ()


def test_a_task_without_an_answer_is_named_by_its_line(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    (tmp_path / "tasks.jsonl").write_text(TASK + '{"question": "q", "grader": "exact"}\n', "utf-8")
    with pytest.raises(ConfigError, match=r"tasks\.jsonl, line 2: the answer is"):
        load_task_split(recipe)


def test_a_mix_takes_as_many_of_each_and_keeps_others_apart(tmp_path: Path) -> None:
    for split in ("train", "test"):
        folder = tmp_path / "data" / "gsm8k"
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(GSM8K % n for n in range(10))
        (folder / f"{split}.jsonl").write_text(text, "utf-8")
    overrides = [
        "data.kind=mix",
        "data.file=",
        "data.mix.sources=['gsm8k:train', 'gsm8k:test']",
        "data.mix.per_source=5",
        "data.mix.path=data",
    ]
    found = load_task_split(make_recipe(tmp_path, overrides=overrides))
    assert (len(found.train), len(found.held_out)) == (10, 4)
    again = load_task_split(make_recipe(tmp_path, overrides=overrides))
    assert again == found
    other = load_task_split(make_recipe(tmp_path, overrides=[*overrides, "data.mix.seed=1"]))
    assert other.train != found.train


def test_a_suite_is_drawn_by_the_seed(tmp_path: Path) -> None:
    text = "".join(GSM8K % n for n in range(20))
    (tmp_path / "test.jsonl").write_text(text, "utf-8")
    overrides = ["data.kind=suite", "data.file=", "data.suite.name=gsm8k", "data.suite.limit=5"]
    overrides.append("data.suite.path=test.jsonl")
    drawn = [
        load_task_split(make_recipe(tmp_path, overrides=[*overrides, f"run.seed={seed}"])).train
        for seed in (1, 1, 2)
    ]
    assert len(drawn[0]) == 5
    assert drawn[0] == drawn[1] != drawn[2]


def test_there_is_no_list_of_etudes() -> None:
    with pytest.raises(ConfigError, match="made as they are needed"):
        load_task_split(read_recipe(RECIPES / "etudes.toml"))
