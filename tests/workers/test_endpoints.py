import os
from typing import Any

import anthropic
import openai
import pytest

from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile
from podium.core.worker import Worker
from podium.workers import KNOWN_ENDPOINTS, Endpoint, Http, connect
from podium.workers.anthropic import AnthropicWorker
from podium.workers.chat import CompatibleWorker
from podium.workers.google import GoogleWorker
from podium.workers.hosted import HostedWorker
from podium.workers.openai import OpenAIWorker, ResponsesWorker

KEYED = Endpoint(api_key="sk-secret")


def hired(provider: str, endpoint: Endpoint = KEYED) -> HostedWorker:
    worker = connect(WorkerProfile(name="ada", provider=provider, model="m"), endpoint, Http())
    assert isinstance(worker, Worker)
    assert isinstance(worker, HostedWorker)
    return worker


@pytest.mark.parametrize(
    ("provider", "kind", "base_url"),
    [
        ("openai", OpenAIWorker, "https://api.openai.com/v1"),
        ("anthropic", AnthropicWorker, "https://api.anthropic.com"),
        ("google", GoogleWorker, "https://generativelanguage.googleapis.com/v1beta"),
        ("openrouter", CompatibleWorker, "https://openrouter.ai/api/v1"),
        ("deepseek", CompatibleWorker, "https://api.deepseek.com/v1"),
        ("together", CompatibleWorker, "https://api.together.xyz/v1"),
        ("groq", CompatibleWorker, "https://api.groq.com/openai/v1"),
        ("mistral", CompatibleWorker, "https://api.mistral.ai/v1"),
        ("xai", CompatibleWorker, "https://api.x.ai/v1"),
        ("fireworks", CompatibleWorker, "https://api.fireworks.ai/inference/v1"),
        ("ollama", CompatibleWorker, "http://127.0.0.1:11434/v1"),
        ("lmstudio", CompatibleWorker, "http://127.0.0.1:1234/v1"),
        ("vllm", CompatibleWorker, "http://127.0.0.1:8000/v1"),
    ],
)
def test_a_known_vendor_needs_no_address(provider: str, kind: type, base_url: str) -> None:
    worker = hired(provider)
    assert type(worker) is kind
    assert worker.endpoint.base_url == base_url


def test_the_wire_of_openai_is_chosen_by_an_option() -> None:
    endpoint = Endpoint(api_key="sk-secret", options={"api": "responses"})
    assert type(hired("openai", endpoint)) is ResponsesWorker


def test_an_address_of_ones_own_is_kept() -> None:
    assert hired("openai", Endpoint("http://gateway/v1")).endpoint.base_url == "http://gateway/v1"


def test_a_missing_key_names_the_variable_to_set() -> None:
    with pytest.raises(ConfigError, match="'ada' needs a key for openai; set OPENAI_API_KEY"):
        hired("openai", Endpoint())


def test_a_local_server_needs_no_key() -> None:
    assert hired("ollama", Endpoint()).endpoint.api_key == ""


@pytest.mark.parametrize(
    ("provider", "hint"),
    [
        ("antropic", "did you mean 'anthropic'?"),
        ("openai_compatible", "did you mean 'openai-compatible'?"),
        ("", "use one of anthropic, azure, bedrock"),
    ],
)
def test_an_unknown_provider_is_refused_with_the_nearest_one(provider: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        hired(provider)
    assert f"worker 'ada' has the unknown provider {provider!r}; {hint}" in str(caught.value)


@pytest.mark.parametrize(
    "base_url", ["", "localhost:8000", "ftp://host", "http://", "https:///v1", "http://a b"]
)
def test_an_address_that_cannot_be_called_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigError, match="needs a base_url such as https://host/v1"):
        hired("openai-compatible", Endpoint(base_url))


@pytest.mark.parametrize("base_url", ["user:secretpw@host:8000", "ftp://user:secretpw@host"])
def test_an_address_is_shown_without_its_password(base_url: str) -> None:
    with pytest.raises(ConfigError, match="needs a base_url") as caught:
        hired("openai-compatible", Endpoint(base_url))
    assert "host" in str(caught.value)
    assert "secretpw" not in f"{caught.value} {Endpoint(base_url)!r}"


@pytest.mark.parametrize("key", ["sk-a\n", "sk-ключ", "sk-\x00"])
def test_a_key_that_cannot_be_one_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match="copy it again") as caught:
        hired("openai", Endpoint(api_key=key))
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "options", "message"),
    [
        ("openai", {"api": "grpc"}, "api = 'grpc'; use one of chat, responses"),
        ("anthropic", {"thinking_style": 3}, "use one of adaptive, always, budget"),
        ("google", {"thinking_style": "x"}, "use one of level, budget"),
    ],
)
def test_a_setting_with_an_unknown_value_is_refused(
    provider: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        hired(provider, Endpoint(api_key="sk-secret", options=options))


@pytest.mark.parametrize(
    ("provider", "options", "name"),
    [
        ("openai", {"max_completion_tokens": 99999}, "max_completion_tokens"),
        ("openai", {"api": "responses", "max_output_tokens": 99999}, "max_output_tokens"),
        ("vllm", {"max_tokens": 99999}, "max_tokens"),
        ("openai-compatible", {"n_predict": 99999}, "n_predict"),
        ("anthropic", {"max_tokens": 99999}, "max_tokens"),
        ("google", {"generationConfig": {"maxOutputTokens": 99999}}, "maxOutputTokens"),
        ("google", {"generationConfig": {"max_output_tokens": 99999}}, "max_output_tokens"),
    ],
)
def test_no_option_sets_the_bound_on_a_reply(
    provider: str, options: dict[str, Any], name: str
) -> None:
    endpoint = Endpoint("http://host/v1", "sk-secret", options=options)
    expected = f"worker 'ada' sets {name} in its options; set limits.max_output_tokens instead"
    with pytest.raises(ConfigError, match=expected):
        hired(provider, endpoint)


@pytest.mark.parametrize(
    ("provider", "options", "name"),
    [
        ("openai", {"n": 8}, "n"),
        ("openai", {"messages": []}, "messages"),
        ("openai", {"api": "responses", "background": True}, "background"),
        ("anthropic", {"stream": True}, "stream"),
        ("google", {"contents": []}, "contents"),
        ("google", {"generation_config": {}}, "generation_config"),
        ("google", {"generationConfig": {"candidateCount": 8}}, "candidateCount"),
    ],
)
def test_no_option_changes_what_podium_writes_itself(
    provider: str, options: dict[str, Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=f"sets {name} in its options, which Podium writes"):
        hired(provider, Endpoint("http://host/v1", "sk-secret", options=options))


def test_a_generation_config_that_is_no_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="generationConfig = 'hot' in its options; give a table"):
        hired("google", Endpoint(api_key="sk-secret", options={"generationConfig": "hot"}))


def test_secrets_are_not_shown() -> None:
    endpoint = Endpoint("http://host", "sk-secret", headers={"X-Token": "hidden"})
    assert "sk-secret" not in repr(endpoint)
    assert "hidden" not in repr(endpoint)


def test_the_environment_gives_an_endpoint_where_it_holds_a_key() -> None:
    google = KNOWN_ENDPOINTS["google"]
    assert google.find_in({}) is None
    assert google.find_in({"GEMINI_API_KEY": " "}) is None
    assert google.find_in({"GOOGLE_API_KEY": "b\n"}) == Endpoint(google.base_url, "b")
    both = {"GEMINI_API_KEY": "a", "GOOGLE_API_KEY": "b"}
    assert google.find_in(both) == Endpoint(google.base_url, "a")


@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("192.168.1.5", "http://192.168.1.5:11434/v1"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
        ("http://box:11434/", "http://box:11434/v1"),
        ("https://ollama.example", "https://ollama.example/v1"),
        ("https://example/ollama/v1", "https://example/ollama/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("[::1]:9", "http://[::1]:9/v1"),
        ("::1", "http://[::1]:11434/v1"),
        ("[::]:9", "http://[::1]:9/v1"),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("ada:pw@box", "http://ada:pw@box:11434/v1"),
    ],
)
def test_ollamas_variable_may_be_a_host_or_an_address(host: str, base_url: str) -> None:
    found = KNOWN_ENDPOINTS["ollama"].find_in({"OLLAMA_HOST": host})
    assert found == Endpoint(base_url)


@pytest.mark.parametrize(
    ("provider", "environment", "base_url"),
    [
        ("openai", {"OPENAI_BASE_URL": "http://proxy/v1/"}, "http://proxy/v1"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "http://proxy"}, "http://proxy"),
        ("google", {"GOOGLE_GEMINI_BASE_URL": "http://proxy/"}, "http://proxy/v1beta"),
        ("groq", {"GROQ_BASE_URL": "http://proxy"}, "http://proxy/openai/v1"),
        ("together", {"TOGETHER_BASE_URL": "http://proxy"}, "http://proxy/v1"),
        ("fireworks", {"FIREWORKS_BASE_URL": "http://proxy/v1"}, "http://proxy/v1"),
    ],
)
def test_a_vendors_address_comes_from_the_variable_of_its_sdk(
    provider: str, environment: dict[str, str], base_url: str
) -> None:
    known = KNOWN_ENDPOINTS[provider]
    assert known.find_in(environment) is None
    keyed = {**environment, known.key_variables[0]: "k"}
    assert known.find_in(keyed) == Endpoint(base_url, "k")


def test_the_address_is_the_one_that_the_sdks_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://proxy/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://proxy")
    openai_url = str(openai.OpenAI(api_key="k").base_url).rstrip("/")
    anthropic_url = str(anthropic.Anthropic(api_key="k").base_url).rstrip("/")
    for provider, url in (("openai", openai_url), ("anthropic", anthropic_url)):
        assert KNOWN_ENDPOINTS[provider].address_in(os.environ) == url


def test_anthropics_token_is_a_bearer_token() -> None:
    found = KNOWN_ENDPOINTS["anthropic"].find_in({"ANTHROPIC_AUTH_TOKEN": "t"})
    assert found is not None
    assert hired("anthropic", found).key_headers("x-api-key") == {"Authorization": "Bearer t"}
    both = {"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_API_KEY": "k"}
    assert KNOWN_ENDPOINTS["anthropic"].find_in(both) == Endpoint(found.base_url, "k")


def test_no_environment_holds_a_server_that_needs_neither_key_nor_address() -> None:
    assert KNOWN_ENDPOINTS["vllm"].find_in({"OPENAI_API_KEY": "x"}) is None
