"""Addresses from the variables of the vendors' SDKs, against a real server on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from podium.config import load
from podium.config.sources import discover_workers
from podium.workers.catalogue import Catalogue

Write = Callable[..., Path]
CATALOGUE = Catalogue.load()


class Gateway:
    """Lists models to those who have the key."""

    def __init__(self) -> None:
        self.url = ""
        self.listed: Any = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer a-key":
            return web.Response(status=401)
        return web.json_response({"object": "list", "data": self.listed})


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    gateway, application = Gateway(), web.Application()
    application.router.add_get("/v1/models", gateway.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    gateway.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield gateway
    await runner.cleanup()


async def names(gateway: Gateway, *listed: str) -> list[str]:
    gateway.listed = [{"id": model} for model in listed]
    environment = {"OPENAI_BASE_URL": gateway.url, "OPENAI_API_KEY": "a-key"}
    found = await discover_workers(environment, CATALOGUE)
    assert found.variables == ("OPENAI_API_KEY",)
    assert {worker.provider for worker in found.workers} == {"openai"}
    return [worker.name for worker in found.workers]


async def test_a_gateways_listed_models_become_workers(gateway: Gateway) -> None:
    assert await names(gateway, "gpt-6.1-terra", "house-70b") == ["gpt-6.1-terra"]
    assert await names(gateway, "house/house-70b", "text-embed-1") == ["house-70b"]
    assert len(await names(gateway, *(f"m{number}" for number in range(300)))) == 8


async def test_a_gateway_without_a_model_list_gets_the_default_models(
    gateway: Gateway,
) -> None:
    gateway.listed = "none"
    environment = {"OPENAI_BASE_URL": gateway.url, "OPENAI_API_KEY": "a-key"}
    found = await discover_workers(environment, CATALOGUE)
    assert found.workers[0].name == "gpt-6.1-sol"


async def test_an_address_without_a_key_is_not_silently_ignored() -> None:
    found = await discover_workers({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, CATALOGUE)
    assert found.workers == ()
    assert found.warnings == (
        "OPENAI_BASE_URL is set, but OPENAI_API_KEY is not; set it too, to any text if that "
        "server takes no key",
    )


def test_an_address_in_the_file_comes_before_the_variable(write: Write) -> None:
    worker = '[[worker]]\nname = "a"\nprovider = "openai"\n'
    environment = {"OPENAI_BASE_URL": "http://proxy/v1", "OPENAI_API_KEY": "k", "MINE": "m"}
    plain = load(write(worker))["a"].endpoint(environment)
    assert (plain.base_url, plain.api_key) == ("http://proxy/v1", "k")
    keyed = load(write(worker + 'key_env = "MINE"\n'))["a"].endpoint(environment)
    assert (keyed.base_url, keyed.api_key) == ("http://proxy/v1", "m")
    own = load(write(worker + 'base_url = "https://mine/v1"\n'))["a"].endpoint(environment)
    assert (own.base_url, own.api_key) == ("https://mine/v1", "")
