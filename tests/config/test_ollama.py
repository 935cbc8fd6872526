"""Against a small real server that speaks Ollama's protocol on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from podium.config import discover_ollama
from podium.config.sources import discover_workers
from podium.core.errors import ConfigError
from podium.workers.catalogue import Catalogue

TAGS = {
    "models": [
        {"name": "llama3.2:latest", "size": 2_000, "details": {"parameter_size": "3.2B"}},
        {"name": "nomic-embed-text:latest", "size": 300, "details": {"parameter_size": "137M"}},
        {"name": "qwen3:32b", "size": 20_000, "details": {"parameter_size": "32.8B"}},
        {"name": "mine", "size": 10},
    ]
}


class Server:
    """Answers /api/tags and /api/show with whatever the test puts there."""

    def __init__(self) -> None:
        self.tags: Any = TAGS
        self.shown: dict[str, Any] = {}
        self.status = 200
        self.address = ""

    async def answer(self, request: web.Request) -> web.Response:
        return web.json_response(self.tags, status=self.status)

    async def show(self, request: web.Request) -> web.Response:
        shown = self.shown.get((await request.json())["model"])
        return web.json_response(shown, status=404 if shown is None else 200)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    application = web.Application()
    application.router.add_get("/api/tags", server.answer)
    application.router.add_post("/api/show", server.show)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.address = f"{host}:{port}"
    yield server
    await runner.cleanup()


async def test_installed_models_become_workers_the_largest_first(server: Server) -> None:
    workers = await discover_ollama(f"http://{server.address}/v1")
    assert [(worker.name, worker.model) for worker in workers] == [
        ("qwen3:32b", "qwen3:32b"),
        ("llama3.2", "llama3.2:latest"),
        ("mine", "mine"),
    ]
    assert workers[0].description == "32.8B model on one's own machine"
    assert {worker.provider for worker in workers} == {"ollama"}


async def test_capabilities_are_those_that_ollama_shows(server: Server) -> None:
    server.shown = {
        "qwen3:32b": {"capabilities": ["completion", "tools", "vision", "thinking", "new"]},
        "llama3.2:latest": {"capabilities": ["completion", "tools"], "model_info": {}},
        "mine": {"modelfile": "an older server shows no capabilities"},
    }
    workers = await discover_ollama(f"http://{server.address}/v1")
    assert [worker.capabilities for worker in workers] == [
        {"json", "sampling", "tools", "vision"},
        {"json", "sampling", "tools"},
        None,
    ]


async def test_the_environments_address_is_asked(server: Server) -> None:
    found = await discover_workers({"OLLAMA_HOST": server.address}, Catalogue.load())
    assert [worker.name for worker in found.workers] == ["qwen3:32b", "llama3.2", "mine"]
    assert found.variables == ("OLLAMA_HOST",)


async def test_a_server_with_no_model_says_how_to_get_one(server: Server) -> None:
    server.tags = {"models": [{"name": "nomic-embed-text"}]}
    with pytest.raises(ConfigError, match="has no model; pull one, such as `ollama pull llama3"):
        await discover_ollama(f"http://{server.address}/v1")


@pytest.mark.parametrize("tags", [{}, [], {"models": [{"name": ""}]}, {"models": "many"}])
async def test_a_server_that_is_not_ollama_is_refused(server: Server, tags: Any) -> None:
    server.tags = tags
    with pytest.raises(ConfigError, match="no Ollama answers"):
        await discover_ollama(f"http://{server.address}/v1")


async def test_a_server_that_fails_is_refused(server: Server) -> None:
    server.status = 500
    with pytest.raises(ConfigError, match="start it with `ollama serve`"):
        await discover_ollama(f"http://{server.address}/v1")
