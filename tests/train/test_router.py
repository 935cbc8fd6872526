from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from podium.cli import main, train
from podium.conductors.routing import LearnedRouter
from podium.conductors.routing.encoders import QUICK_LAYERS
from podium.core.errors import ConfigError, install_command
from podium.train.router import RecipeRouterTable, read_router_recipe
from support.recipes import RECIPES
from support.routing import PLAYS, SUMS, pool_of

RECIPE = """
[router]
logs = ["log.jsonl"]
encoder = "hashed"
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
    assert [router.decide(item, pool, 0.9).worker for item in SUMS] == ["cheap"] * 4
    assert [router.decide(item, pool, 0.9).worker for item in PLAYS] == ["dear"] * 4
    output = capsys.readouterr().out
    assert (
        "32 questions, 2 workers; figures are of the 32 questions that every worker was" in output
    )
    assert "cheap: 0.500 on the average, 0.001 USD a question" in output


def test_the_command_line_overrides_the_recipe(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    values = ["--output", str(elsewhere), "--set", "costs.usd.cheap=0.5", "--seed", "3"]
    assert main(["train", "router", str(written(tmp_path)), *values]) == 0
    assert [item.cost for item in LearnedRouter.load(elsewhere).workers] == [0.5, 0.01]


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_any_whole_number_is_a_seed(tmp_path: Path, seed: int) -> None:
    assert main(["train", "router", str(written(tmp_path)), "--seed", str(seed)]) == 0
    assert LearnedRouter.load(tmp_path / "router.json").workers


def test_a_directory_in_the_routers_place_is_reported_before_anything_is_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "router", str(written(tmp_path)), "--output", str(tmp_path)]) == 2
    assert f"'--output': file '{tmp_path}' is a directory" in capsys.readouterr().err


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


async def never(*_: object) -> None:
    raise AssertionError("nothing is fetched")


def test_a_log_that_is_not_there_is_reported_before_weights_are_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "fetch", never)
    recipe = written(tmp_path)
    (tmp_path / "log.jsonl").unlink()
    assert main(["train", "router", str(recipe), "--set", "router.encoder=minilm"]) == 2
    output = capsys.readouterr().err
    assert f"cannot read {tmp_path / 'log.jsonl'}: No such file" in output
    assert "podium train data --from-evaluation DIR" in output


def test_a_log_that_teaches_too_little_is_reported_before_weights_are_fetched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "fetch", never)
    recipe, log = written(tmp_path), tmp_path / "log.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:2]))
    assert main(["train", "router", str(recipe), "--set", "router.encoder=minilm"]) == 2
    assert "the questions to learn from are 1, and 10 are the least" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["tokenizers", "safetensors"])
def test_a_package_that_is_missing_is_reported_before_weights_are_fetched(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    package: str,
) -> None:
    monkeypatch.setattr(train, "fetch", never)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["train", "router", str(written(tmp_path)), "--set", "router.encoder=minilm"]) == 2
    output = capsys.readouterr().err
    assert f"training a router needs the extra router (there is no {package}" in output
    assert install_command("router") in output


def test_a_router_over_words_needs_numpy_alone(tmp_path: Path) -> None:
    recipe = read_router_recipe(written(tmp_path))
    assert recipe.packages == ("numpy",)


def test_the_recipe_says_by_how_many_layers_questions_are_read() -> None:
    said = RecipeRouterTable.model_fields["encoder"].description or ""
    assert QUICK_LAYERS == 3
    assert "the first three layers of all-MiniLM-L6-v2" in said


def test_the_recipe_that_ships_can_be_read() -> None:
    recipe = read_router_recipe(RECIPES / "router.toml")
    assert recipe.router.logs == (str(RECIPES.parent / "log.jsonl"),)
    assert recipe.router.output == str(RECIPES.parent / "router.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[router]\nlogs = []", "router.logs: expected a list of 1 or more, got a list of 0"),
        ("[router]\nlogs = ['a']\nencodr = 'hashed'", "encoder"),
        ("[router]\nlogs = ['a']\nfolds = 2", "router.folds"),
        ("[router]\nlogs = ['a']\n[costs]\nusd = { small = -1.0 }", "costs.usd.small"),
    ],
)
def test_a_recipe_that_is_wrong_is_reported_by_its_key(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_router_recipe(path)
