from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from podium.client import assembly
from podium.core.errors import ConfigError, Unavailable
from podium.core.request import Reply, Request
from podium.train import worker_set
from podium.train.recipe import read_recipe
from podium.train.worker_set import check_pool, pool_settings, recipe_pool
from podium.workers import ScriptedWorker
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


async def test_a_pool_that_answers_passes(tmp_path: Path) -> None:
    await check_pool(pool_settings(make_recipe(tmp_path)), {})


async def test_a_worker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    with socket.socket() as deaf:  # bound, and not listening
        deaf.bind(("127.0.0.1", 0))
        address = f'base_url = "http://127.0.0.1:{deaf.getsockname()[1]}/v1"'
        text = POOL.replace('provider = "scripted"', 'provider = "openai-compatible"', 1)
        text = text.replace('options = { reply = "ok" }', address, 1)
        (tmp_path / "pool.toml").write_text(text, "utf-8")
        with pytest.raises(Unavailable, match="pool.toml: no answer from one: ") as caught:
            await check_pool(pool_settings(recipe), {})
    assert "two:" not in str(caught.value)


async def test_a_worker_that_never_answers_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(ScriptedWorker):
        async def reply(self, request: Request) -> Reply:
            await asyncio.Event().wait()
            return await super().reply(request)

    workers = {
        "one": Silent("one", "ok"),
        "two": ScriptedWorker("two", "ok"),
    }
    monkeypatch.setattr(assembly, "connect", lambda profile, *rest: workers[profile.name])
    monkeypatch.setattr(worker_set, "CHECK_SECONDS", 0.01)
    with pytest.raises(Unavailable, match="no answer from one: nothing within 0.01 s$"):
        await check_pool(pool_settings(make_recipe(tmp_path)), {})
