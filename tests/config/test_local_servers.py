"""Model servers of this machine, on real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from podium.config.local_servers import (
    DEFAULT_SERVERS,
    PROBE_SECONDS,
    LocalServer,
    find_local_servers,
)
from podium.config.settings import resolve_worker
from podium.config.sources import discover_workers
from podium.core.request import FREE
from podium.workers.catalogue import Catalogue

Serve = Callable[..., Awaitable[str]]
CATALOGUE = Catalogue.load()
SHOWN = b'{"capabilities": ["completion", "tools"]}'
"""What Ollama shows of a model."""


def listing(*models: str) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": model} for model in models]}).encode()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server that says some bytes, or nothing; return its address."""
    async with AsyncExitStack() as stack:

        async def serve(body: bytes | None, status: str = "200 OK") -> str:
            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                request = await reader.readuntil(b"\r\n\r\n")
                if request.startswith(b"POST /api/show HTTP/1.1\r\n"):
                    writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + SHOWN)
                elif body is None:
                    await reader.read()
                else:
                    assert request.startswith(b"GET /v1/models HTTP/1.0\r\n")
                    writer.write(f"HTTP/1.1 {status}\r\nServer: x\r\n\r\n".encode() + body)
                writer.close()

            server = await stack.enter_async_context(
                await asyncio.start_server(answer, "127.0.0.1", 0)
            )
            return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

        yield serve


def test_the_usual_ports_are_those_of_the_servers() -> None:
    assert [(one.provider, one.address) for one in DEFAULT_SERVERS] == [
        ("ollama", "127.0.0.1:11434"),
        ("lmstudio", "127.0.0.1:1234"),
        ("vllm", "127.0.0.1:8000"),
    ]


async def test_servers_are_found_and_their_models_make_the_pool(serve: Serve) -> None:
    models = ["qwen3:32b", "llama3.2:latest", "nomic-embed-text:latest"]
    ollama = LocalServer("ollama", await serve(listing(*models)))
    vllm = LocalServer("vllm", await serve(listing("Qwen/Qwen3-8B")))
    found = await discover_workers({}, CATALOGUE, [ollama, vllm])
    assert [worker.name for worker in found.workers] == ["qwen3:32b", "llama3.2", "Qwen3-8B"]
    assert found.variables == (f"ollama at {ollama.address}", f"vllm at {vllm.address}")
    can_call = ["tools" in resolve_worker(w, CATALOGUE).profile.capabilities for w in found.workers]
    assert can_call == [True, True, False]
    worker = resolve_worker(found.workers[2], CATALOGUE)
    assert worker.endpoint({}).base_url == vllm.base_url
    assert (worker.profile.model, worker.profile.price) == ("Qwen/Qwen3-8B", FREE)


async def test_a_server_at_its_usual_port_needs_no_address() -> None:
    (usual,) = LocalServer("vllm", "http://127.0.0.1:8000/v1", ("m",)).workers()
    assert usual.base_url is None


async def test_a_key_or_a_switch_leaves_them_out(serve: Serve) -> None:
    server = LocalServer("ollama", await serve(listing("llama3.2")))
    keyed = await discover_workers({"GROQ_API_KEY": "k"}, CATALOGUE, [server])
    assert {worker.provider for worker in keyed.workers} == {"groq"}
    off = await discover_workers({"PODIUM_LOCAL_SERVERS": "off"}, CATALOGUE, [server])
    assert off.workers == ()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"<html>a page</html>", "200 OK"),
        (listing("m"), "401 Unauthorized"),
        (b'{"data": "many"}', "200 OK"),
        (b'{"data": [{"name": "m"}]}', "200 OK"),
        (b"[]", "200 OK"),
        (b"x" * 2_000_000, "200 OK"),
        (b"", "200"),
    ],
)
async def test_another_program_on_the_port_is_no_model_server(
    serve: Serve, body: bytes, status: str
) -> None:
    server = LocalServer("vllm", await serve(body, status))
    assert await find_local_servers({}, [server]) == ()


async def test_silent_servers_cost_half_a_second_in_all(serve: Serve) -> None:
    silent = [LocalServer("vllm", await serve(None)) for _ in range(3)]
    good = LocalServer("ollama", await serve(listing("m")))
    began = time.monotonic()
    found = await find_local_servers({}, [*silent, good])
    assert [server.provider for server in found] == ["ollama"]
    assert time.monotonic() - began < PROBE_SECONDS + 0.3


async def test_closed_ports_fail_at_once() -> None:
    began = time.monotonic()
    assert await find_local_servers({}, [LocalServer("vllm", "http://127.0.0.1:1/v1")]) == ()
    assert time.monotonic() - began < 0.2
