"""The workers of a training: who they are, how they are asked, and which replies are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from podium.core.pool import WorkerProfile
from podium.core.request import Reply, Request, user
from podium.core.worker import Worker
from podium.train import worker_set as module
from podium.train.recipe import Recipe
from podium.train.worker_set import MISLEADING_PROMPT, WorkerSet, connect_workers
from podium.workers import Endpoint, Http
from podium.workers.cached import ReplyCache
from podium_lab.etudes import ROLES
from podium_lab.etudes.values import UNSURE
from support.harness import FakeWorker
from support.recipes import make_recipe

ETUDES = """
[model]
base = "owner/model-7B"
[data]
kind = "etudes"
[pool]
POOL
[workers]
max_tokens = 40
temperature = 0.0
[grpo]
steps = 10
questions = 8
rollouts = 4
learning_rate = 1e-6
[run]
output = "out"
cache_mb = 1
"""
ORACLE = ETUDES.replace("POOL", "oracle = true")
ADAPTERS = ETUDES.replace(
    "POOL", 'adapters = { words = "./words", generalist = "", misleading = "" }'
)


@asynccontextmanager
async def connected_workers(recipe: Recipe) -> AsyncIterator[WorkerSet]:
    worker_set = connect_workers(recipe)
    yield worker_set
    await worker_set.close()


def ask(text: str) -> Request:
    return Request((user(text),), max_tokens=7, temperature=0.9)


async def test_perfect_workers_stand_for_every_role(tmp_path: Path) -> None:
    async with connected_workers(make_recipe(tmp_path, ORACLE)) as worker_set:
        assert tuple(worker.profile.name for worker in worker_set.workers) == ROLES
        assert worker_set.pool.names == ROLES


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[WorkerProfile, Endpoint]]:
    """What workers were connected with, by name; none of them loads anything."""
    found: dict[str, tuple[WorkerProfile, Endpoint]] = {}

    def connect(profile: WorkerProfile, endpoint: Endpoint, http: Http) -> Worker:
        found[profile.name] = (profile, endpoint)
        worker = FakeWorker(profile.name)
        worker.profile = profile
        return worker

    monkeypatch.setattr(module, "connect", connect)
    return found


async def test_the_etudes_workers_are_adapters_over_one_base(
    tmp_path: Path, connected: dict[str, tuple[WorkerProfile, Endpoint]]
) -> None:
    async with connected_workers(make_recipe(tmp_path, ADAPTERS)):
        pass
    assert {profile.model for profile, _ in connected.values()} == {"owner/model-7B"}
    assert {profile.limits.max_output_tokens for profile, _ in connected.values()} == {40}
    assert {name: dict(endpoint.options) for name, (_, endpoint) in connected.items()} == {
        "words": {"temperature": 0.0, "adapter": str(tmp_path / "words")},
        "generalist": {"temperature": 0.0},
        "misleading": {"temperature": 0.0, "system": MISLEADING_PROMPT},
    }


async def test_an_adapter_that_was_trained_again_is_asked_again(
    tmp_path: Path, connected: dict[str, tuple[WorkerProfile, Endpoint]]
) -> None:
    recipe = make_recipe(tmp_path, ADAPTERS)
    weights = tmp_path / "words" / "adapter_model.safetensors"
    weights.parent.mkdir()
    misses = []
    for content in (b"first", b"first", b"second"):
        weights.write_bytes(content)
        async with connected_workers(recipe) as worker_set:
            for worker in worker_set.workers:
                await worker.reply(ask("hello"))
            assert worker_set.cache is not None
            misses.append(worker_set.cache.misses)
    assert misses == [3, 0, 1]  # all, none, and the changed one


async def test_a_worker_of_a_pool_file_with_other_options_is_asked_again(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, overrides=["run.cache_mb=1"])
    pool = tmp_path / "pool.toml"
    first = pool.read_text("utf-8")
    said = []
    for text in (first, first, first.replace('reply = "ok"', 'reply = "fine"', 1)):
        pool.write_text(text, "utf-8")
        async with connected_workers(recipe) as worker_set:
            replies = [(await worker.reply(ask("hello"))).text for worker in worker_set.workers]
            assert worker_set.cache is not None
            said.append((replies, worker_set.cache.misses))
    assert said == [(["ok", "ok"], 2), (["ok", "ok"], 0), (["fine", "ok"], 1)]


async def test_replies_are_kept_below_the_output_where_the_recipe_has_room(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, ORACLE)
    async with connected_workers(recipe) as worker_set:
        await worker_set.workers[0].reply(ask("hello"))
    assert (recipe.output / "replies.sqlite3").exists()
    async with connected_workers(make_recipe(tmp_path, ORACLE, ["run.cache_mb=0"])) as worker_set:
        assert worker_set.cache is None


async def test_a_worker_of_a_pool_file_is_asked_as_the_recipe_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ["workers.max_tokens=12", "workers.temperature=0.5", "run.cache_mb=0"]
    asked: list[Request] = []

    async def reply(self: Worker, request: Request) -> Reply:
        asked.append(request)
        return Reply("ok")

    monkeypatch.setattr("podium.workers.scripted.ScriptedWorker.reply", reply)
    async with connected_workers(make_recipe(tmp_path, overrides=settings)) as worker_set:
        assert worker_set.pool.names == ("one", "two")
        assert (await worker_set.workers[1].reply(ask("hello"))).text == "ok"
    assert [(request.max_tokens, request.temperature) for request in asked] == [(12, 0.5)]


async def test_flaky_workers_decline_before_the_reply_cache(tmp_path: Path) -> None:
    """A kept reply must not make a worker forgetful for good, nor reliable."""
    always = make_recipe(
        tmp_path, ORACLE, ["pool.flaky_rate=1.0", "data.etudes.later_round_share=0.5"]
    )
    async with connected_workers(always) as worker_set:
        assert worker_set.cache is not None
        assert {(await worker.reply(ask("hello"))).text for worker in worker_set.flaky_workers} == {
            UNSURE
        }
        assert worker_set.cache.misses == 0
        said = {
            worker.profile.name: await worker.reply(ask("hello")) for worker in worker_set.workers
        }
    assert said["misleading"].text == "7"


async def test_no_worker_forgets_where_the_recipe_does_not_say_so(tmp_path: Path) -> None:
    async with connected_workers(make_recipe(tmp_path, ORACLE)) as worker_set:
        assert worker_set.flaky_workers == worker_set.workers


async def test_workers_that_hold_a_model_let_go_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    async def close(worker: Worker) -> None:
        closed.append(worker.profile.name)

    monkeypatch.setattr("podium.workers.scripted.ScriptedWorker.close", close, raising=False)
    async with connected_workers(make_recipe(tmp_path, overrides=["run.cache_mb=1"])):
        assert not closed
    assert sorted(closed) == ["one", "two"]


async def test_the_reply_cache_is_closed_with_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[ReplyCache] = []
    monkeypatch.setattr(ReplyCache, "close", lambda cache: closed.append(cache))
    async with connected_workers(make_recipe(tmp_path, ORACLE)) as worker_set:
        assert not closed
    assert closed == [worker_set.cache]
