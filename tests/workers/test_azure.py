"""Azure OpenAI: OpenAI's wire at the address of a resource, with a key or a token of Entra ID."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from podium.config import load
from podium.core.errors import AuthenticationFailed, ConfigError
from podium.core.pool import WorkerProfile
from podium.core.request import Request, user
from podium.workers import KNOWN_ENDPOINTS, Endpoint, Http, connect
from podium.workers.credentials import RENEW_SECONDS, BearerToken, Token, entra_token
from podium.workers.hosted import HostedWorker
from podium.workers.http import HttpCall
from podium.workers.openai import OpenAIWorker, ResponsesWorker

if TYPE_CHECKING:
    from pathlib import Path

    from workers.conftest import Hire, Vendor

ASKED = Request((user("hello"),))
CALL = HttpCall("ada", "https://host", {})
ANSWER = {
    "choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
HOST = "https://mine.openai.azure.com"


async def test_a_key_is_in_azures_own_header(vendor: Vendor, hire: Hire) -> None:
    vendor.says(ANSWER)
    worker = hire("azure", path="/openai/v1", model="my-deployment")
    assert (await worker.reply(ASKED)).text == "Hi."
    received = vendor.received[0]
    assert received.path == "/openai/v1/chat/completions"
    assert received.headers["api-key"] == "sk-a-secret-key"
    assert "authorization" not in received.headers
    assert received.body["model"] == "my-deployment"
    await worker.reply(replace(ASKED, max_tokens=9, cache_key="c"))
    assert vendor.body["max_completion_tokens"] == 9
    assert vendor.body["prompt_cache_key"] == "c"


async def test_a_token_is_fetched_once_for_all_calls_and_sent(vendor: Vendor, http: Http) -> None:
    vendor.says(ANSWER)
    fetched: list[int] = []

    def fetch() -> Token:
        fetched.append(1)
        return Token(f"token-{len(fetched)}", 10_000.0)

    now = [0.0]
    token = BearerToken(fetch, "Azure", clock=lambda: now[0])
    profile = WorkerProfile(name="ada", provider="azure", model="m")
    worker = connect(profile, Endpoint(vendor.url, authorizer=token), http)
    await asyncio.gather(worker.reply(ASKED), worker.reply(ASKED))
    now[0] = 10_000 - RENEW_SECONDS - 1
    await worker.reply(ASKED)
    sent = [received.headers["authorization"] for received in vendor.received]
    assert sent == ["Bearer token-1"] * 3
    assert "api-key" not in vendor.received[0].headers
    now[0] += 2
    await worker.reply(ASKED)
    assert fetched == [1, 1]
    assert vendor.received[-1].headers["authorization"] == "Bearer token-2"


async def test_a_failed_login_names_the_account_and_is_tried_again() -> None:
    answers: list[Any] = [OSError("no network"), Token("late", 1e12)]

    def fetch() -> Token:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Token)
        return answer

    token = BearerToken(fetch, "Azure")
    with pytest.raises(AuthenticationFailed, match="no credentials for Azure: OSError: no network"):
        await token.headers(CALL)
    assert await token.headers(CALL) == {"Authorization": "Bearer late"}


async def test_a_token_that_cannot_be_renewed_is_used_until_it_expires() -> None:
    now, answers = [0.0], [Token("old", 1000.0)]
    token = BearerToken(lambda: answers.pop(), "Azure", clock=lambda: now[0])
    await token.headers(CALL)
    now[0] = 900
    assert await token.headers(CALL) == {"Authorization": "Bearer old"}
    now[0] = 1001
    with pytest.raises(AuthenticationFailed):
        await token.headers(CALL)


async def test_the_real_library_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AuthenticationFailed, match="no credentials for Azure"):
        await entra_token(HOST).headers(CALL)


def test_the_library_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.workers.credentials.find_spec", lambda name: None)
    profile = WorkerProfile(name="ada", provider="azure", model="m")
    with pytest.raises(ConfigError, match=r"install it by: .*\[azure\]"):
        connect(profile, Endpoint(f"{HOST}/openai/v1"), Http())
    connect(profile, Endpoint(f"{HOST}/openai/v1", "a-key"), Http())


@pytest.mark.parametrize("given", [HOST, f"{HOST}/", f"{HOST}/openai/v1", f"{HOST}/openai/v1/"])
def test_the_resource_comes_from_azures_variables(given: str) -> None:
    azure = KNOWN_ENDPOINTS["azure"]
    found = azure.find_in({"AZURE_OPENAI_ENDPOINT": given, "AZURE_OPENAI_API_KEY": "k"})
    assert found == Endpoint(f"{HOST}/openai/v1", "k")
    token = azure.find_in({"AZURE_OPENAI_ENDPOINT": given, "AZURE_OPENAI_AD_TOKEN": "t"})
    assert token == Endpoint(f"{HOST}/openai/v1", "t", key_header="Authorization")
    assert azure.find_in({"AZURE_OPENAI_API_KEY": "k"}) is None


def configured(tmp_path: Path, table: str, environment: dict[str, str]) -> HostedWorker:
    path = tmp_path / "podium.toml"
    path.write_text(f'[[worker]]\nname = "ada"\nprovider = "azure"\n{table}\n', "utf-8")
    settings = load(path)["ada"]
    worker = connect(settings.profile, settings.endpoint(environment), Http())
    assert isinstance(worker, HostedWorker)
    return worker


def test_a_model_by_openais_name_is_known_and_its_price_is_not(tmp_path: Path) -> None:
    table = f'model = "gpt-6.1-terra"\nbase_url = "{HOST}/openai/v1"'
    worker = configured(tmp_path, table, {"AZURE_OPENAI_API_KEY": "k"})
    assert isinstance(worker, ResponsesWorker)
    assert "reasoning" in worker.profile.capabilities
    assert worker.profile.price is None
    assert worker.endpoint.api_key == "k"
    other = configured(tmp_path, table.replace("gpt-6.1-terra", "mine"), {})
    assert isinstance(other, OpenAIWorker)
    assert other.endpoint.authorizer is not None


def test_neither_key_nor_token_leaves_for_a_host_that_is_not_azures(tmp_path: Path) -> None:
    for address in ("https://openai.azure.com.example.org/v1", "http://mine.openai.azure.com/v1"):
        table = f'model = "m"\nbase_url = "{address}"'
        worker = configured(tmp_path, table, {"AZURE_OPENAI_API_KEY": "k"})
        assert worker.endpoint.api_key == ""
        assert worker.endpoint.authorizer is None
    table += '\nkey_env = "MINE"'
    worker = configured(tmp_path, table, {"MINE": "k"})
    assert worker.key_headers() == {"api-key": "k"}


def test_a_missing_address_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set AZURE_OPENAI_ENDPOINT in the environment, or base"):
        configured(tmp_path, 'model = "m"', {"AZURE_OPENAI_API_KEY": "k"})
