"""The pool that needs no key and no file, read as any pool file is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from podium.assembly import Assembly, assemble
from podium.config import Settings, load
from podium.config.current import EMBEDDED_POOL
from podium.local import weights
from podium.providers import Http
from podium.request import Request, user
from podium.usage import FREE
from support.local_weights import MODEL, smollm2

__all__ = ["smollm2"]


@pytest.fixture
def settings() -> Settings:
    return load(EMBEDDED_POOL)


def test_every_worker_and_the_conductor_run_on_weights_that_podium_can_fetch(
    settings: Settings,
) -> None:
    assert settings.conductor.worker is not None
    for worker in (*settings.workers, settings.conductor.worker):
        assert worker.profile.provider == "llamacpp"
        assert weights.find(worker.profile.model).name == MODEL


def test_the_pool_is_free_and_says_that_it_is_small(settings: Settings) -> None:
    for worker in settings.workers:
        assert worker.profile.price == FREE
        assert worker.profile.description.startswith("very small")
        assert worker.profile.limits.max_output_tokens is not None
        assert worker.profile.limits.context_window == 8192


def test_workers_differ_in_what_they_are_told(settings: Settings) -> None:
    told = [worker.options["system"] for worker in settings.workers]
    assert len(set(told)) == len(told) == 3


def test_workers_see_their_subtask_and_not_the_question(settings: Settings) -> None:
    assert not settings.pool.share_question


@pytest.fixture
async def assembled(settings: Settings, smollm2: Path) -> AsyncIterator[Assembly]:
    """The pool, connected, on one thread so that tests beside these do not slow it down."""
    http = Http()
    one_thread = tuple(
        replace(worker, options={**worker.options, "threads": 1}) for worker in settings.workers
    )
    yield assemble(replace(settings, workers=one_thread), {}, http)
    await http.close()


@pytest.mark.weights
async def test_each_worker_knows_the_capital_of_japan(assembled: Assembly) -> None:
    for worker in assembled.workers:
        reply = await worker.reply(Request((user("What is the capital of Japan?"),)))
        assert "Tokyo" in reply.text, worker.profile.name
        assert reply.finish == "stop"
