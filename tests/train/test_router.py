from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy")
pytest.importorskip("cmaes")

from podium.cli import main
from podium.errors import ConfigError
from podium.routing import LearnedRouter
from podium.train.router_recipe import read_router_recipe
from support.recipes import RECIPES
from support.routing import PLAYS, SUMS, pool_of

RECIPE = """
[router]
logs = ["log.jsonl"]
encoder = "hashed"
[evolution]
generations = 2
"""


def written(directory: Path) -> Path:
    """A recipe beside a log in which `cheap` can do sums and no plays."""
    lines: list[dict[str, object]] = []
    for _ in range(4):
        for question in (*SUMS, *PLAYS):
            for worker, cost in (("cheap", 0.001), ("dear", 0.01)):
                right = worker == "dear" or question in SUMS
                model = f"{worker}-model"
                line = {"question": f"{question} {len(lines) // 16}", "worker": worker}
                lines.append(line | {"model": model, "reward": float(right), "cost": cost})
    (directory / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    path = directory / "recipe.toml"
    path.write_text(RECIPE)
    return path


def test_a_log_becomes_a_router_that_sends_each_question_where_it_is_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "router", str(written(tmp_path))]) == 0
    router = LearnedRouter.load(tmp_path / "router.json")
    pool = pool_of("cheap", "dear")
    router.check(pool)
    assert [router.decide(each, pool, 0.9).worker for each in SUMS] == ["cheap"] * 4
    assert [router.decide(each, pool, 0.9).worker for each in PLAYS] == ["dear"] * 4
    told = capsys.readouterr().out
    assert "32 questions, 2 workers; figures are of the 32 questions that every worker was" in told
    assert "cheap: 0.500 on the average, 0.001 USD a question" in told


def test_the_command_line_overrides_the_recipe(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    told = ["--output", str(elsewhere), "--set", "costs.usd.cheap=0.5", "--seed", "3"]
    assert main(["train", "router", str(written(tmp_path)), *told]) == 0
    assert [each.cost for each in LearnedRouter.load(elsewhere).workers] == [0.5, 0.01]


def test_the_same_recipe_makes_the_same_router(tmp_path: Path) -> None:
    recipe = written(tmp_path)
    paths = [tmp_path / "one.json", tmp_path / "other.json"]
    for path in paths:
        assert main(["train", "router", str(recipe), "--output", str(path)]) == 0
    assert paths[0].read_text() == paths[1].read_text()


def test_an_empty_log_ends_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = written(tmp_path)
    (tmp_path / "log.jsonl").write_text("\n")
    assert main(["train", "router", str(recipe)]) == 2
    assert "there is no line to learn from" in capsys.readouterr().err
    assert not (tmp_path / "router.json").exists()


def test_the_recipe_that_ships_can_be_read() -> None:
    recipe = read_router_recipe(RECIPES / "router.toml")
    assert recipe.router.logs == (str(RECIPES.parent / "log.jsonl"),)
    assert recipe.router.output == str(RECIPES.parent / "router.json")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[router]\nlogs = []", "router.logs: expected a list of 1 or more, got a list of 0"),
        ("[router]\nlogs = ['a']\nencodr = 'hashed'", "encoder"),
        ("[router]\nlogs = ['a']\nparts = 2", "router.parts"),
        ("[router]\nlogs = ['a']\n[evolution]\ngenerations = -1", "evolution.generations"),
        ("[router]\nlogs = ['a']\n[costs]\nusd = { small = -1.0 }", "costs.usd.small"),
    ],
)
def test_a_recipe_that_is_wrong_is_told_by_its_key(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_router_recipe(path)
