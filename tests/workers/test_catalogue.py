from __future__ import annotations

import datetime
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from podium.core.pool import CAPABILITIES
from podium.core.request import Usage
from podium.workers.catalogue import Catalogue, CatalogueEntry
from podium.workers.endpoints import KNOWN_ENDPOINTS

CATALOGUE = Catalogue.load()

names = pytest.mark.parametrize(
    "entry", CATALOGUE.entries, ids=lambda entry: f"{entry.provider}:{entry.id}"
)


def made(**more: object) -> CatalogueEntry:
    required = {
        "provider": "openai",
        "id": "m",
        "description": "a model",
        "checked": datetime.date(2026, 1, 2),
        "source": "https://example.org",
    }
    return CatalogueEntry.model_validate(required | more)


def known(provider: str, model: str) -> CatalogueEntry:
    found = CATALOGUE.lookup(provider, model)
    assert found is not None
    return found


@names
def test_every_entry_belongs_to_a_provider_that_podium_can_reach(entry: CatalogueEntry) -> None:
    assert entry.provider in KNOWN_ENDPOINTS


@names
def test_every_entry_names_the_page_of_its_figures_and_the_day(entry: CatalogueEntry) -> None:
    address = urlsplit(entry.source)
    assert address.scheme == "https"
    assert address.hostname
    assert datetime.date(2026, 1, 1) < entry.checked


@names
def test_every_description_is_one_line_that_a_conductor_can_read(entry: CatalogueEntry) -> None:
    assert 10 < len(entry.description) <= 90
    assert "\n" not in entry.description


@names
def test_every_price_rises_with_length_and_falls_with_caching(entry: CatalogueEntry) -> None:
    if entry.price is None:
        return
    price = entry.price.price()
    assert 0 < price.input <= price.output
    assert price.cached is None or price.cached < price.input
    assert price.cache_write is None or price.cache_write > price.input
    assert price.cache_write_1h is None or price.cache_write_1h > (price.cache_write or 0)
    if price.long_input is not None:
        assert price.long_input.above_tokens > 0
        assert price.long_input.input > price.input
        assert price.long_input.output > price.output
        assert (price.long_input.cached is None) == (price.cached is None)


@names
def test_no_model_can_write_more_than_its_window_holds(entry: CatalogueEntry) -> None:
    if entry.context_window and entry.max_output_tokens:
        assert entry.max_output_tokens <= entry.context_window


def test_a_model_is_found_by_its_id() -> None:
    assert known("openai", "gpt-5").price is not None


def test_a_model_is_found_by_an_alias() -> None:
    assert known("anthropic", "claude-sonnet-4").id == "claude-sonnet-4-20250514"


@pytest.mark.parametrize(
    ("provider", "snapshot", "model"),
    [
        ("openai", "gpt-5-2025-08-07", "gpt-5"),
        ("anthropic", "claude-opus-5-5-20261001", "claude-opus-5-5"),
        ("anthropic", "claude-sonnet-4-20250514", "claude-sonnet-4-20250514"),
        ("anthropic", "claude-sonnet-4-0-20250514", "claude-sonnet-4-20250514"),
    ],
)
def test_a_dated_snapshot_is_its_model(provider: str, snapshot: str, model: str) -> None:
    assert known(provider, snapshot).id == model


@pytest.mark.parametrize("model", ["gpt-5-turbo", "gpt", "", "gpt-5-20", "GPT-5"])
def test_models_outside_the_catalogue_are_not_guessed(model: str) -> None:
    assert CATALOGUE.lookup("openai", model) is None


def test_a_model_is_only_known_at_its_own_provider() -> None:
    assert CATALOGUE.lookup("anthropic", "gpt-5") is None


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("google", "gemini-2.5-pro"),
        ("anthropic", "claude-sonnet-4-20250514"),
        ("openai", "gpt-5"),
        ("openrouter", "qwen/qwen3-32b"),
        ("openrouter", "google/gemma-3-27b-it"),
        ("openrouter", "deepseek/deepseek-r1-distill-qwen-32b"),
    ],
)
def test_the_papers_workers_are_in_it(provider: str, model: str) -> None:
    assert CATALOGUE.lookup(provider, model) is not None


def test_current_claude_models_refuse_sampling_and_prefill() -> None:
    for model in ("claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"):
        assert not known("anthropic", model).capabilities & {"sampling", "prefill"}
    assert {"sampling", "prefill"} <= known("anthropic", "claude-haiku-4-5").capabilities


def test_a_long_input_is_charged_at_the_higher_price() -> None:
    price = known("openai", "gpt-6.1-sol")
    assert price.price is not None
    short, long = Usage(272_000, 0, 0, 0, 0), Usage(272_001, 0, 0, 0, 0)
    assert price.price.price().cost(short) == pytest.approx(272_000 * 2 / 1e6)
    assert price.price.price().cost(long) == pytest.approx(272_001 * 4 / 1e6)


@pytest.mark.parametrize("provider", sorted({entry.provider for entry in CATALOGUE.entries}))
def test_each_vendor_has_two_or_three_models_for_a_pool_without_a_file(provider: str) -> None:
    defaults = CATALOGUE.defaults(provider)
    assert 2 <= len(defaults) <= 3
    assert all(entry.price is not None for entry in defaults)
    assert all(entry.retires is None for entry in defaults)


def test_conductor_models_are_ranked_without_ties_and_among_the_defaults() -> None:
    ranked = [entry for entry in CATALOGUE.entries if entry.planner_rank is not None]
    assert len({entry.planner_rank for entry in ranked}) == len(ranked)
    assert all(entry.default for entry in ranked)
    assert {entry.provider for entry in ranked} == {e.provider for e in CATALOGUE.entries}


def test_a_model_that_is_not_listed_is_assumed_to_do_what_all_of_its_provider_do() -> None:
    assert "sampling" not in CATALOGUE.default_capabilities("anthropic")
    assert "sampling" in CATALOGUE.default_capabilities("ollama")
    assert CATALOGUE.default_capabilities("nobody") == frozenset()


def test_the_catalogue_is_read_once() -> None:
    assert Catalogue.load() is Catalogue.load()


def test_two_models_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="two models of openai are called 'm'"):
        Catalogue([made(), made(id="n", aliases=["m"])])


@pytest.mark.parametrize(
    "mistake",
    [
        {"colour": "red"},
        {"price": {"input": 1}},
        {"price": {"input": -1, "output": 1}},
        {"price": {"input": 1, "output": 1, "long_input": {"input": 2, "output": 2}}},
        {"capabilities": ["telepathy"]},
        {"context_window": 0},
        {"default": "yes"},
    ],
)
def test_an_entry_with_a_mistake_is_refused(mistake: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        made(**mistake)


def test_capabilities_are_those_of_the_domain() -> None:
    assert made(capabilities=list(CAPABILITIES)).capabilities == set(CAPABILITIES)


@pytest.mark.parametrize(
    ("provider", "model", "maker", "name"),
    [
        ("azure", "gpt-6.1-terra", "openai", "gpt-6.1-terra"),
        ("bedrock", "us.anthropic.claude-sonnet-5-5-v1:0", "anthropic", "claude-sonnet-5-5"),
        ("bedrock", "anthropic.claude-opus-5-5-20261001-v1:0", "anthropic", "claude-opus-5-5"),
        ("vertex", "claude-haiku-5-5@20261001", "anthropic", "claude-haiku-5-5"),
        ("vertex", "gemini-3.8-flash", "google", "gemini-3.8-flash"),
    ],
)
def test_a_model_in_a_cloud_is_its_makers_without_the_price(
    provider: str, model: str, maker: str, name: str
) -> None:
    resold, made = known(provider, model), known(maker, name)
    assert (resold.provider, resold.id, resold.price) == (provider, model, None)
    assert resold.capabilities == made.capabilities
    assert resold.options == made.options


def test_a_model_that_only_a_cloud_has_is_not_known() -> None:
    assert CATALOGUE.lookup("bedrock", "amazon.nova-2-lite-v1:0") is None
    assert CATALOGUE.lookup("azure", "claude-haiku-5-5") is None
