from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from podium.config import WorkerSettings, load
from podium.core.errors import ConfigError
from podium.core.pool import WorkerProfile

Write = Callable[..., Path]

SECRET = "sk-proj-0123456789abcdef"


def worker(
    provider: str, *, base_url: str = "", key_env: str = "", **options: object
) -> WorkerSettings:
    profile = WorkerProfile(name="a", provider=provider, model="m")
    return WorkerSettings(profile=profile, base_url=base_url, key_env=key_env, options=options)


def test_the_key_comes_from_the_vendors_usual_variable() -> None:
    endpoint = worker("openai", seed=1).endpoint({"OPENAI_API_KEY": SECRET})
    assert endpoint.base_url == "https://api.openai.com/v1"
    assert endpoint.api_key == SECRET
    assert endpoint.options == {"seed": 1}


def test_the_first_variable_that_is_set_has_the_key() -> None:
    both = {"GOOGLE_API_KEY": "second", "GEMINI_API_KEY": "first"}
    assert worker("google").endpoint(both).api_key == "first"
    assert worker("google").endpoint({"GOOGLE_API_KEY": "second"}).api_key == "second"


def test_a_custom_variable_replaces_the_default_one() -> None:
    mine = worker("openai", key_env="TEAM_KEY")
    endpoint = mine.endpoint({"TEAM_KEY": SECRET, "OPENAI_API_KEY": "other"})
    assert endpoint.api_key == SECRET
    assert endpoint.base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        (worker("openai"), "OPENAI_API_KEY"),
        (worker("google"), "GEMINI_API_KEY or GOOGLE_API_KEY"),
        (worker("openai", key_env="TEAM_KEY"), "TEAM_KEY"),
        (worker("vllm", base_url="http://h/v1", key_env="VLLM_KEY"), "VLLM_KEY"),
    ],
)
def test_a_missing_key_is_one_line_with_the_variable_and_the_worker(
    settings: WorkerSettings, variable: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings.endpoint({variable: "  "})
    provider = settings.profile.provider
    assert str(caught.value) == (
        f"worker 'a' needs a key for {provider}; set {variable} in the environment"
    )


def test_a_vendors_key_is_not_sent_to_another_address_unasked() -> None:
    elsewhere = worker("openai", base_url="http://127.0.0.1:1/v1")
    assert elsewhere.endpoint({"OPENAI_API_KEY": SECRET}).api_key == ""
    asked = worker("openai", base_url="http://127.0.0.1:1/v1", key_env="OPENAI_API_KEY")
    assert asked.endpoint({"OPENAI_API_KEY": SECRET}).api_key == SECRET


def test_a_local_server_needs_no_key() -> None:
    assert worker("vllm").endpoint({}).base_url == "http://127.0.0.1:8000/v1"
    assert worker("ollama").endpoint({}).base_url == "http://127.0.0.1:11434/v1"


def test_ollama_is_where_its_variable_says() -> None:
    endpoint = worker("ollama").endpoint({"OLLAMA_HOST": "big-machine"})
    assert endpoint.base_url == "http://big-machine:11434/v1"


@pytest.mark.parametrize("provider", ["scripted", "podium", "llamacpp", "transformers"])
def test_a_worker_that_is_not_reached_by_network_has_no_address(provider: str) -> None:
    endpoint = worker(provider, reply="hello").endpoint({})
    assert (endpoint.base_url, endpoint.api_key) == ("", "")
    assert endpoint.options == {"reply": "hello"}


def test_no_secret_shows_in_what_is_printed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    text = f"""
    [store]
    url = "postgresql://me:{SECRET}@host/podium"
    [[worker]]
    name = "a"
    provider = "openai"
    model = "gpt-5"
    """
    settings = load(write(text))
    endpoint = settings["a"].endpoint({"OPENAI_API_KEY": SECRET})
    assert SECRET in settings.store.url
    assert SECRET not in repr(settings)
    assert SECRET not in repr(endpoint)
