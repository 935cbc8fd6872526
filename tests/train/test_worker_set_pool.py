from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.errors import ConfigError
from podium.train.recipe import read_recipe
from podium.train.worker_set import recipe_pool
from support.recipes import POOL, RECIPES, make_recipe


def test_the_etudes_workers_are_free_and_see_only_their_subtask() -> None:
    recipe = read_recipe(RECIPES / "etudes.toml")
    pool = recipe_pool(recipe)
    assert pool.names == tuple(recipe.pool.adapters)
    assert not pool.share_question
    assert {worker.model for worker in pool} == {"smollm2-135m-instruct"}
    assert all(worker.price is not None and worker.price.is_free for worker in pool)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("pool.subset={ smallest = 1, largest = 3 }", "largest is 3, but .* has 2 workers"),
    ],
)
def test_mismatches_with_the_pool_are_reported(tmp_path: Path, override: str, said: str) -> None:
    recipe = make_recipe(tmp_path, overrides=[override])
    with pytest.raises(ConfigError, match=said):
        recipe_pool(recipe)


def test_a_conductor_in_the_pool_is_refused(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    nested = '[[worker]]\nname = "deeper"\nprovider = "podium"\n'
    (tmp_path / "pool.toml").write_text(POOL + nested, "utf-8")
    with pytest.raises(ConfigError, match="deeper is a conductor"):
        recipe_pool(recipe)
