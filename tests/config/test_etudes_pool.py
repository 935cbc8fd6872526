"""The pool that needs no key and no file, read as any pool file is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from podium.client.assembly import Assembly, assemble
from podium.config import Settings, WorkerSettings, load
from podium.config.sources import ETUDES_POOL
from podium.core.errors import ConfigError
from podium.core.request import FREE, Request, user
from podium.train.worker_set import MISLEADING_PROMPT
from podium.workers import Http
from podium.workers.local import weights
from podium_lab.etudes import FAMILIES, ROLES
from podium_lab.etudes.workers import descriptions
from support.local_weights import MODEL, smollm2
from support.shipped import Ship, ship

__all__ = ["ship", "smollm2"]


@pytest.fixture
def settings() -> Settings:
    return load(ETUDES_POOL)


def everyone(settings: Settings) -> tuple[WorkerSettings, ...]:
    assert settings.conductor.worker is not None
    return (*settings.workers, settings.conductor.worker)


def test_without_its_adapters_the_pool_says_which_is_missing(ship: Ship) -> None:
    with pytest.raises(ConfigError, match="embedded adapter not found: 'embedded/etude-conductor'"):
        load(ETUDES_POOL)


def test_all_run_in_one_process_over_weights_that_podium_can_fetch(settings: Settings) -> None:
    for worker in everyone(settings):
        assert worker.profile.provider == "llamacpp"
        assert weights.find(worker.profile.model).name == MODEL
        loading = {"context", "slots", "threads", "gpu_layers", "template"} & set(worker.options)
        assert loading == {"template"}
        assert worker.options["template"] == "chatml"


def test_the_conductor_is_an_adapter_that_is_asked_as_it_was_trained(settings: Settings) -> None:
    conductor = settings.conductor
    assert conductor.worker is not None
    assert conductor.worker.options["adapter"] == "embedded/etude-conductor"
    assert conductor.worker.profile not in settings.pool.workers
    assert (conductor.prompt, conductor.temperature, conductor.max_steps) == ("trained", 0.0, 5)
    assert conductor.fallback == "generalist"


def test_each_family_has_its_specialist_with_no_system_prompt(settings: Settings) -> None:
    for family in FAMILIES:
        options = settings[family.value].options
        assert options["adapter"] == f"embedded/etude-{family.value}"
        assert "system" not in options
        assert options["temperature"] == 0


def test_workers_are_the_roles_of_the_etudes_in_words_that_are_not_trained_on(
    settings: Settings,
) -> None:
    assert set(settings.pool.names) == set(ROLES)
    for profile in settings.pool:
        assert profile.description in descriptions(profile.name, "test")
        assert profile.price == FREE
        assert profile.limits.max_output_tokens is not None
    assert settings.pool.mask_names
    assert not settings.pool.share_question


def test_the_generalist_answers_without_a_plan(settings: Settings) -> None:
    assert settings.pool.most_expensive.name == "generalist"
    assert "adapter" not in settings["generalist"].options


def test_the_misleading_worker_is_the_one_of_the_training(settings: Settings) -> None:
    assert settings["misleading"].options["system"] == MISLEADING_PROMPT
    assert "adapter" not in settings["misleading"].options


@pytest.fixture
async def assembled(settings: Settings, smollm2: Path) -> AsyncIterator[Assembly]:
    """The pool, connected."""
    http = Http()
    assembly = assemble(settings, {}, http)
    yield assembly
    await assembly.close()
    await http.close()


@pytest.mark.weights
async def test_the_generalist_knows_the_capital_of_japan_after_any_other_worker(
    assembled: Assembly,
) -> None:
    question = Request((user("What is the capital of Japan?"),))
    for worker in (*assembled.workers, assembled.planner):
        assert worker is not None
        await worker.reply(replace(question, max_tokens=4))
    generalist = next(w for w in assembled.workers if w.profile.name == "generalist")
    assert "Tokyo" in (await generalist.reply(question)).text
