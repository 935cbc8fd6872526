"""The workers of a training are asked as its recipe says."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.providers import Http
from podium.request import Request, user
from podium.train.ablations import recipe_scorer
from podium.train.cast import make_cast
from podium.train.exercises import held_out_exercises
from podium.train.recipe import Recipe
from support.recipes import make_recipe
from support.tiny_model import tiny_model

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RECIPE = """
[model]
base = "./model"
[data]
kind = "etudes"
[pool]
adapters = { generalist = "", misleading = "" }
[workers]
max_tokens = 3
temperature = 0.0
[grpo]
steps = 1
questions = 1
rollouts = 2
learning_rate = 1e-6
[run]
output = "out"
cache_mb = 0
eval_tasks = 1
"""


def etudes(directory: Path, *overrides: str) -> Recipe:
    tiny_model(directory / "model")
    return make_recipe(directory, RECIPE, overrides)


async def replies(recipe: Recipe, count: int) -> list[str]:
    http = Http()
    (generalist, _) = make_cast(recipe, http).workers
    found = [await generalist.reply(Request((user("Which day is it?"),))) for _ in range(count)]
    await http.close()
    assert all(reply.usage.output_tokens == recipe.workers.max_tokens for reply in found)
    return [reply.text for reply in found]


async def test_the_etudes_workers_say_no_more_than_the_recipe_allows(tmp_path: Path) -> None:
    (short,) = await replies(etudes(tmp_path), 1)
    (longer,) = await replies(etudes(tmp_path, "workers.max_tokens=9"), 1)
    assert longer.startswith(short)
    assert len(longer) > len(short)


async def test_they_are_as_random_as_the_recipe_says(tmp_path: Path) -> None:
    assert len(set(await replies(etudes(tmp_path), 3))) == 1
    assert len(set(await replies(etudes(tmp_path, "workers.temperature=2.0"), 3))) > 1


async def test_the_bound_holds_for_plans_too(tmp_path: Path) -> None:
    recipe = etudes(tmp_path)
    cast = make_cast(recipe, Http())
    task, situation = held_out_exercises(recipe, cast.pool)[0]
    plan = "model_id = [0]\nsubtasks = ['Which day is it?']\naccess_list = [[]]"
    score = await recipe_scorer(recipe, cast.workers).score(plan, task, situation.pool)
    (step,) = score.steps
    assert step.usage.output_tokens == 3
    await cast.close()
