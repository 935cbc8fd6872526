from __future__ import annotations

import itertools

import pytest

from podium.config.sources import DiscoveredWorkers, discover_workers
from podium.core.errors import ConfigError
from podium.workers.catalogue import Catalogue
from podium.workers.endpoints import KNOWN_ENDPOINTS

CATALOGUE = Catalogue.load()

VENDORS = {
    "OPENAI_API_KEY": ("gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-luna"),
    "ANTHROPIC_API_KEY": ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"),
    "GEMINI_API_KEY": ("gemini-3.1-pro-preview", "gemini-3.8-flash"),
    "GOOGLE_API_KEY": ("gemini-3.1-pro-preview", "gemini-3.8-flash"),
    "OPENROUTER_API_KEY": ("gpt-6.1-terra", "gemini-3.1-pro-preview", "glm-5.3"),
    "DEEPSEEK_API_KEY": ("deepseek-v4-pro", "deepseek-flash"),
    "TOGETHER_API_KEY": ("gpt-oss-120b", "Llama-3.3-70B-Instruct-Turbo"),
    "GROQ_API_KEY": ("gpt-oss-120b", "llama-3.3-70b-versatile"),
    "MISTRAL_API_KEY": ("mistral-large-4", "mistral-medium-3.5"),
    "XAI_API_KEY": ("grok-4.7", "grok-4.3"),
}


async def found(*variables: str) -> DiscoveredWorkers:
    return await discover_workers(dict.fromkeys(variables, "key"), CATALOGUE)


def names(found: DiscoveredWorkers) -> tuple[str, ...]:
    return tuple(worker.name for worker in found.workers)


@pytest.mark.parametrize("variable", VENDORS)
async def test_one_key_gives_its_vendors_defaults(variable: str) -> None:
    only = await found(variable)
    assert names(only) == VENDORS[variable]
    assert only.variables == (variable,)
    assert only.warnings == ()


@pytest.mark.parametrize("pair", tuple(itertools.combinations(VENDORS, 2)), ids="+".join)
async def test_two_keys_give_both_vendors_and_no_model_twice(pair: tuple[str, str]) -> None:
    both = await found(*pair)
    expected = {name for variable in pair for name in VENDORS[variable]}
    assert set(names(both)) == expected
    assert len(both.workers) == len(expected)


async def test_all_keys_together_make_one_pool_of_distinct_workers() -> None:
    everything = await found(*VENDORS)
    assert len(set(names(everything))) == len(everything.workers)
    assert set(names(everything)) == set(itertools.chain.from_iterable(VENDORS.values()))


async def test_a_models_own_vendor_is_preferred_to_a_reseller() -> None:
    both = await found("OPENROUTER_API_KEY", "OPENAI_API_KEY")
    terra = next(worker for worker in both.workers if worker.name == "gpt-6.1-terra")
    assert terra.provider == "openai"


async def test_no_key_gives_no_worker() -> None:
    assert await discover_workers(
        {"PATH": "/bin", "OPENAI_API_KEY": " "}, CATALOGUE
    ) == DiscoveredWorkers(workers=())


async def test_an_ollama_that_does_not_answer_is_a_warning_beside_other_workers() -> None:
    some = await discover_workers({"OLLAMA_HOST": "127.0.0.1:1", "GROQ_API_KEY": "key"}, CATALOGUE)
    assert names(some) == VENDORS["GROQ_API_KEY"]
    assert some.variables == ("GROQ_API_KEY",)
    assert some.warnings == (
        "no Ollama answers at http://127.0.0.1:1 (OLLAMA_HOST); start it with `ollama serve`, or "
        "unset OLLAMA_HOST",
    )


async def test_an_ollama_that_does_not_answer_is_an_error_when_it_is_all_there_is() -> None:
    with pytest.raises(ConfigError, match="no Ollama answers at http://127.0.0.1:1"):
        await discover_workers({"OLLAMA_HOST": "127.0.0.1:1"}, CATALOGUE)


async def test_a_key_for_a_vendor_of_unknown_models_needs_a_worker_table() -> None:
    for other in ((), ("OPENAI_API_KEY",)):
        result = await found("FIREWORKS_API_KEY", *other)
        (warning,) = result.warnings
        assert "FIREWORKS_API_KEY is set" in warning
        assert 'provider = "fireworks"' in warning
        assert result.variables == other


async def test_every_key_gives_workers_or_a_warning() -> None:
    for known in KNOWN_ENDPOINTS.values():
        for variable in known.key_variables:
            result = await found(variable)
            assert bool(result.workers) != bool(result.warnings), variable
