from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from podium.conductors import KINDS
from podium.config import Settings, load
from podium.config.schema import ConductorKind
from podium.core.budget import Budget
from podium.core.errors import ConfigError, UnknownWorker
from podium.core.pool import CONDUCTOR_PROVIDER
from podium.core.request import FREE, Price
from podium.core.retry import RetryPolicy

Write = Callable[..., Path]

TODAY = datetime.date(2026, 1, 1)

EXAMPLE = """
[conductor]
kind = "model"
model = "claude"
max_steps = 4
rounds = 2

[budget]
usd = 0.50
seconds = 120
calls = 24

[pool]
share_question = false
mask_names = true

[retry]
attempts = 2

[[worker]]
name = "gpt-5"
provider = "openai"
description = "strongest at code; slow"
price = { input = 1.25, output = 10.0, cached = 0.125 }
limits = { concurrency = 3 }
fallback = "claude"

[[worker]]
name = "claude"
provider = "anthropic"
model = "claude-sonnet-4"
"""


@pytest.fixture
def settings(write: Write) -> Settings:
    return load(write(EXAMPLE), today=TODAY)


def test_a_file_becomes_a_pool_in_its_order(settings: Settings) -> None:
    assert settings.pool.names == ("gpt-5", "claude")
    assert settings.pool["gpt-5"].fallback == "claude"
    assert not settings.pool.share_question
    assert settings.pool.mask_names


def test_the_other_tables_become_the_domains_values(settings: Settings) -> None:
    assert settings.budget == Budget(usd=0.5, seconds=120, calls=24)
    assert settings.retry == RetryPolicy(attempts=2)
    assert settings.conductor.max_steps == 4
    assert settings.conductor.rounds == 2


def test_file_overrides_the_catalogue(settings: Settings) -> None:
    profile = settings.pool["gpt-5"]
    assert profile.description == "strongest at code; slow"
    assert profile.price == Price(input=1.25, output=10.0, cached=0.125)
    assert profile.limits.concurrency == 3


def test_the_catalogue_fills_in_what_the_file_leaves_out(settings: Settings) -> None:
    profile = settings.pool["claude"]
    assert profile.price == Price(
        input=3, output=15, cached=0.3, cache_write=3.75, cache_write_1h=6
    )
    assert profile.description.startswith("balanced")
    assert profile.limits.context_window == 200_000
    assert profile.limits.timeout_seconds == 300
    assert "prefill" in profile.capabilities
    assert settings["claude"].options["schema_style"] == "tool"


def test_each_gap_is_filled_by_itself(write: Write) -> None:
    text = """
    [[worker]]
    name = "astra"
    provider = "openai"
    model = "gpt-6-astra"
    capabilities = []
    limits = { max_output_tokens = 1000 }
    options = { api = "chat", seed = 1 }
    """
    worker = load(write(text))["astra"]
    assert worker.profile.capabilities == frozenset()
    assert worker.profile.limits.max_output_tokens == 1000
    assert worker.profile.limits.context_window == 1_050_000
    assert worker.options == {"api": "chat", "seed": 1}


def test_an_alias_is_sent_as_the_vendors_id(settings: Settings) -> None:
    assert settings.pool["claude"].model == "claude-sonnet-4-20250514"


def test_a_dated_snapshot_is_sent_as_it_was_written(write: Write) -> None:
    text = '[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "gpt-5-2025-08-07"'
    profile = load(write(text)).pool["a"]
    assert profile.model == "gpt-5-2025-08-07"
    assert profile.price == Price(input=1.25, output=10, cached=0.125)


def test_without_a_model_the_name_is_the_model(settings: Settings) -> None:
    assert settings.pool["gpt-5"].model == "gpt-5"


def test_an_unknown_model_has_no_price_and_its_providers_usual_capabilities(
    write: Write,
) -> None:
    text = '[[worker]]\nname = "a"\nprovider = "anthropic"\nmodel = "claude-next"'
    profile = load(write(text)).pool["a"]
    assert profile.price is None
    assert "tools" in profile.capabilities
    assert "sampling" not in profile.capabilities


def test_a_money_budget_over_an_unknown_price_can_be_allowed(write: Write) -> None:
    text = """
    [budget]
    usd = 1
    allow_unpriced = true
    [[worker]]
    name = "a"
    provider = "openai"
    model = "new"
    """
    assert load(write(text)).budget.allow_unpriced


@pytest.mark.parametrize("provider", ["ollama", "vllm", "llamacpp", "transformers", "scripted"])
def test_a_model_on_this_machine_is_free(write: Write, provider: str) -> None:
    text = f'[budget]\nusd = 1\n[[worker]]\nname = "a"\nprovider = "{provider}"'
    assert load(write(text)).pool["a"].price == FREE


def test_the_conductor_can_be_a_worker_of_its_own_pool(write: Write) -> None:
    text = """
    [budget]
    usd = 1
    [[worker]]
    name = "gpt-5"
    provider = "openai"
    [[worker]]
    name = "deeper"
    provider = "podium"
    description = "plans a part by itself"
    """
    settings = load(write(text))
    assert settings.pool["deeper"].provider == CONDUCTOR_PROVIDER
    assert settings.conductor.worker is settings["gpt-5"]


def test_a_worker_that_conducts_is_the_worker_itself(settings: Settings) -> None:
    assert settings.conductor.worker is settings["claude"]


def test_a_model_outside_the_pool_can_conduct_it(write: Write) -> None:
    text = '[conductor]\nmodel = "google/gemini-3.8-flash"\n' + EXAMPLE[EXAMPLE.index("[budget]") :]
    settings = load(write(text), today=TODAY)
    assert settings.conductor.worker is not None
    profile = settings.conductor.worker.profile
    assert (profile.provider, profile.model) == ("google", "gemini-3.8-flash")
    assert profile.price is not None
    assert settings.pool.names == ("gpt-5", "claude")


def test_without_a_named_planner_the_catalogues_choice_plans(write: Write) -> None:
    text = """
    [[worker]]
    name = "strong"
    provider = "openai"
    model = "gpt-6-astra"
    [[worker]]
    name = "quick"
    provider = "google"
    model = "gemini-3.8-flash"
    [[worker]]
    name = "balanced"
    provider = "anthropic"
    model = "claude-sonnet-5-5"
    """
    settings = load(write(text))
    assert settings.conductor.worker is settings["quick"]


def test_without_a_choice_of_the_catalogue_the_best_worker_conducts(write: Write) -> None:
    text = EXAMPLE.replace('model = "claude"\n', "")
    settings = load(write(text), today=TODAY)
    assert settings.conductor.worker is settings["claude"]


@pytest.mark.parametrize("kind", ["rules", "router"])
def test_a_conductor_that_asks_no_model_has_none(write: Write, kind: str) -> None:
    text = f'[conductor]\nkind = "{kind}"\n[[worker]]\nname = "gpt-5"\nprovider = "openai"'
    assert load(write(text)).conductor.worker is None


def test_the_kinds_are_those_that_can_be_built() -> None:
    assert set(get_args(ConductorKind)) == set(KINDS)


def test_paths_are_counted_from_the_file_that_holds_them(write: Write, tmp_path: Path) -> None:
    text = """
    [conductor]
    kind = "fixed"
    workflow = "plans/mine.json"
    [store]
    path = "runs.db"
    [server]
    experiment_dirs = ["trained", "/elsewhere"]
    [[worker]]
    name = "gpt-5"
    provider = "openai"
    """
    settings = load(write(text))
    assert settings.conductor.workflow == tmp_path / "plans/mine.json"
    assert settings.store.path == tmp_path / "runs.db"
    assert settings.server.experiment_dirs == (str(tmp_path / "trained"), "/elsewhere")


@pytest.mark.parametrize("model", ["file:w.gguf", "w.gguf"])
def test_weights_are_counted_from_the_file_that_names_them(
    write: Write, tmp_path: Path, model: str
) -> None:
    text = f"""
    [conductor]
    model = "llamacpp/{model}"
    [[worker]]
    name = "small"
    provider = "llamacpp"
    model = "{model}"
    options = {{ adapter = "{model}", top_k = 20 }}
    [[worker]]
    name = "{model}"
    provider = "llamacpp"
    """
    settings = load(write(text))
    beside = f"file:{tmp_path / 'w.gguf'}"
    assert settings["small"].profile.model == beside
    assert settings["small"].options == {"adapter": beside, "top_k": 20}
    assert settings[model].profile.model == beside
    assert settings.conductor.worker is not None
    assert settings.conductor.worker.profile.model == beside


@pytest.mark.parametrize(
    "model", ["smollm2-135m-instruct", "hf:owner/repository/w.gguf", "file:/models/w.gguf"]
)
def test_weights_that_are_not_beside_the_file_keep_their_name(write: Write, model: str) -> None:
    text = f'[[worker]]\nname = "a"\nprovider = "llamacpp"\nmodel = "{model}"'
    assert load(write(text))["a"].profile.model == model


def test_directories_of_weights_are_counted_from_the_file_that_names_them(
    write: Write, tmp_path: Path
) -> None:
    text = """
    [conductor]
    model = "transformers/file:base"
    options = { adapter = "../trained/conductor", temperature = 0.5 }
    [[worker]]
    name = "specialist"
    provider = "transformers"
    model = "owner/name"
    options = { adapter = "file:trained/one" }
    [[worker]]
    name = "plain"
    provider = "transformers"
    model = "file:base"
    """
    settings = load(write(text))
    assert settings["specialist"].profile.model == "owner/name"
    assert settings["specialist"].options == {"adapter": f"{tmp_path}/trained/one"}
    assert settings["plain"].profile.model == f"file:{tmp_path}/base"
    assert settings["plain"].options == {}
    assert settings["plain"].profile.capabilities == {"sampling", "prefill"}
    planner = settings.conductor.worker
    assert planner is not None
    assert planner.profile.model == f"file:{tmp_path}/base"
    assert planner.options == {"adapter": f"{tmp_path}/../trained/conductor", "temperature": 0.5}


def test_options_of_a_conductor_that_is_a_worker_are_refused(write: Write) -> None:
    text = """
    [conductor]
    model = "a"
    options = { temperature = 0.5 }
    [[worker]]
    name = "a"
    provider = "ollama"
    """
    with pytest.raises(ConfigError, match="conductor.options has no effect on 'a', which has its"):
        load(write(text))


def test_a_key_among_the_conductors_options_is_refused(write: Write) -> None:
    text = """
    [conductor]
    model = "ollama/a"
    options = { api_key = "sk-1" }
    [[worker]]
    name = "a"
    provider = "ollama"
    """
    with pytest.raises(ConfigError, match="conductor.options.api_key"):
        load(write(text))


def test_a_retired_model_is_worth_a_warning_from_the_day_it_is_gone(write: Write) -> None:
    text = '[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "gpt-5"'
    assert load(write(text), today=datetime.date(2026, 12, 10)).warnings == ()
    assert load(write(text), today=datetime.date(2026, 12, 11)).warnings == (
        "worker 'a': openai retired gpt-5 on 2026-12-11",
    )


def test_a_worker_that_is_not_there_is_named(settings: Settings) -> None:
    with pytest.raises(UnknownWorker, match="no worker named 'x' in the pool; it has gpt-5, claud"):
        settings["x"]
