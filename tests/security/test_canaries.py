"""Secrets that were put everywhere are found nowhere: not in an answer, an error, a log line at the
finest level, a trace, a metric, a kept run, an export, nor in what the doctor says.

Each secret is a canary: a word that occurs nowhere else. The upstreams are hostile and send back
what they were sent, in every way in which a provider's text can reach a client.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from podium.cli import main
from podium.config import McpSettings, load
from podium.server.access.keys import make_key
from podium.server.logs import JsonLogFormatter, TextLogFormatter
from podium.server.records.traces import TraceRecorder
from podium.server.startup import create_application
from podium.store import open_store
from podium.store.keys import Rules
from podium.workers.mcp import McpServerError
from podium.workers.mcp_connection import McpConnection
from support.serving import Served, serving
from support.tool_servers import odd_server

CANARY: Final = "canary-7f3a9c"
VENDOR: Final = f"sk-{CANARY}-vendor-0123456789abcdefghij"
ADDRESS: Final = f"{CANARY}-address"
SESSION: Final = f"{CANARY}-session-secret-of-forty-characters"
TOOLS: Final = f"{CANARY}-tools-token"
STORE: Final = f"{CANARY}-store"

PROVIDERS: Final = ("openai", "anthropic", "google", "openai-compatible")


def text_of(request: web.Request) -> str:
    """Every header that came, secrets and all."""
    return " ".join(f"{name}={value}" for name, value in request.headers.items())


def key_in(said: str) -> str:
    found: list[str] = re.findall(rf"[\w-]*{CANARY}[\w-]*", said)
    return found[0]


async def repeating(request: web.Request) -> web.StreamResponse:
    """The request's own headers, sent back in an error of some form."""
    said = text_of(request)
    match request.match_info["fault"]:
        case "401":
            return web.json_response({"error": {"message": said}}, status=401)
        case "400":
            return web.json_response({"error": {"message": said, "type": said}}, status=400)
        case "text":
            return web.Response(text=said, status=500)
        case "nested":
            return web.json_response({"error": {"message": {"headers": said}}}, status=503)
        case "redirect":
            return web.Response(status=302, headers={"Location": f"https://x.example/{said}"})
        case "later":
            return web.json_response({"error": said}, status=429, headers={"Retry-After": said})
        case "no-json":
            return web.Response(text="x" * 50 + key_in(said))
        case "wrong-types":
            names = ("choices", "content", "candidates")
            return web.json_response(dict.fromkeys(names, key_in(said)))
        case "stream":
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            event = json.dumps({"type": "error", "error": {"message": said, "type": said}})
            await response.write(f"event: error\ndata: {event}\n\n".encode())
            return response
        case _:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()


FAULTS: Final = ("401", "400", "text", "nested", "redirect", "later", "no-json", "wrong-types")
BROKEN: Final = ("stream", "abort")


@asynccontextmanager
async def served_by(handler: Callable[[web.Request], Any]) -> AsyncIterator[str]:
    """A server on loopback, by its host and port; the first part of a path names a fault."""
    app = web.Application()
    app.router.add_route("*", "/{fault}/{rest:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def pool(vendor: str) -> str:
    """A worker for every provider and fault."""
    tables = ['[conductor]\nkind = "router"', '[store]\npath = "runs.db"', "[retry]\nattempts = 1"]
    tables += [
        f'[[worker]]\nname = "{provider}-{fault}"\nprovider = "{provider}"\nmodel = "m"\n'
        f'key_env = "VENDOR_KEY"\nbase_url = "http://{vendor}/{fault}"'
        for provider in PROVIDERS
        for fault in (*FAULTS, *BROKEN)
    ]
    return "\n\n".join(tables)


class Everything(logging.Handler):
    """All that is logged anywhere, at every level, in both forms, with its traces."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [JsonLogFormatter().format(record), TextLogFormatter().format(record)]


@pytest.fixture
def logged() -> Iterator[Everything]:
    """Every logger there is, turned up."""
    everything = Everything()
    names = ["", *logging.root.manager.loggerDict]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    for name in ("", "podium"):
        logging.getLogger(name).addHandler(everything)
    yield everything
    for name in ("", "podium"):
        logging.getLogger(name).removeHandler(everything)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VENDOR_KEY", VENDOR)
    monkeypatch.setenv("OPENAI_API_KEY", VENDOR)
    monkeypatch.setenv("PODIUM_SESSION_SECRET", SESSION)
    monkeypatch.setenv("TOOLS_TOKEN", TOOLS)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer {CANARY}-otel")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)


def clean(said: str, where: str) -> None:
    """No canary is in the text, nor the beginning of one that was cut."""
    at = said.find(CANARY)
    assert at < 0, f"{where}: …{said[max(0, at - 200) : at + 60]}…"


READ: Final = (
    *("/v1/runs", "/v1/models", "/v1/pool", "/v1/spend", "/v1/keys", "/v1/audit", "/metrics"),
    *("/healthz", "/readyz", "/"),
)
OF_A_RUN: Final = ("", "/export", "/steps/0/0", "/events")


async def test_upstream_error_bodies_are_not_shown_to_clients(
    tmp_path: Path, logged: Everything
) -> None:
    exporter = InMemorySpanExporter()
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    async with served_by(repeating) as vendor:
        (tmp_path / "podium.toml").write_text(pool(vendor), "utf-8")
        settings = load(tmp_path / "podium.toml")
        settings = replace(
            settings, server=settings.server.model_copy(update={"require_keys": True})
        )

        async def find() -> Any:
            return settings

        store = await open_store(settings.store.path)
        made = make_key("a test", Rules(scopes=frozenset({"admin"})))
        await store.keys.add(made.key)
        await store.close()
        async with serving(create_application(find)) as served:
            traces = TraceRecorder(tracing)
            service = served.service
            service.repository.broadcast.listener = traces
            served.app.state.holder.service = replace(service, traces=traces)
            heard = [said async for said in everything_asked(served, made.token)]
            secret = made.token.split("_", 2)[2]
            await traces.close()
    for where, said in heard:
        clean(said, where)
        assert secret not in said, where
    spans = "\n".join(span.to_json() for span in exporter.get_finished_spans())
    assert "openai-401" in spans
    clean(spans, "the traces")
    log = "\n".join(logged.lines)
    assert "openai-401" in log
    clean(log, "the log")
    assert secret not in log
    kept = kept_in(tmp_path)
    assert "openai-compatible-401" in kept
    clean(kept, "the store")


def kept_in(directory: Path) -> str:
    """All that is in the files of the store."""
    return b"".join(path.read_bytes() for path in directory.glob("runs.db*")).decode("latin-1")


async def everything_asked(served: Served, token: str) -> AsyncIterator[tuple[str, str]]:
    """Every worker, whole and as a stream, alone and in a run; and whatever can be read of it."""
    client = served.client
    client.headers["Authorization"] = f"Bearer {token}"
    runs = []
    for name in [f"{p}-{fault}" for p in PROVIDERS for fault in (*FAULTS, *BROKEN)]:
        body = {"model": name, "messages": [{"role": "user", "content": "Why?"}]}
        for stream in (False, True):
            response = await client.post("/v1/chat/completions", json={**body, "stream": stream})
            yield f"{name}, stream {stream}", shown_by(response)
        step = {"worker": name, "subtask": "Answer.", "access": []}
        wish = {"workflow": {"steps": [step]}}
        response = await client.post(
            "/v1/chat/completions", json={**body, "model": "podium", "podium": wish}
        )
        yield f"a run by {name}", shown_by(response)
    listed = (await client.get("/v1/runs", params={"limit": 100})).json()
    runs = [run["run_id"] for run in listed["data"]]
    assert runs
    addresses = [f"/v1/runs/{run}{part}" for run in runs[::10] for part in OF_A_RUN]
    for address in (*READ, *addresses):
        response = await client.get(address)
        assert response.status_code == 200, address
        yield address, shown_by(response)
    yield "a wrong key", shown_by(await client.get("/v1/runs", headers={"X-Api-Key": f"{token}x"}))


def shown_by(response: httpx.Response) -> str:
    return f"{response.status_code} {response.headers} {response.text}"


@pytest.mark.parametrize(
    "wrong",
    [
        f'[store]\nurl = "postgresql://podium:{STORE}@127.0.0.1:1/podium"',
        f'[store]\nurl = "postgresql://podium:{STORE}@x@127.0.0.1:1/podium"',
        f'[store]\nurl = "mysql://podium:{STORE}@127.0.0.1:1/podium"',
        f'[store]\nurl = "postgresql://podium:{STORE}@127.0.0.1:no/podium"',
        f'[[worker]]\nname = "a"\nprovider = "openai"\napi_key = "{VENDOR}"',
        f'[[worker]]\nname = "a"\nprovider = "openai"\nkey_env = "{VENDOR}"',
        f'[[worker]]\nname = "a"\nprovider = "openai"\nbase_url = "x://u:{ADDRESS}@h/?key={VENDOR}"',
        f'[mcp.web]\nurl = "https://user:{TOOLS}@tools.example/mcp"',
        f'[mcp.web]\nurl = "https://tools.example/mcp?token={TOOLS}"',
        f'[mcp.web]\ncommand = "x"\nenv = ["{TOOLS}"]',
        f'[server]\ntoken = "{SESSION}"',
        f'[store\nurl = "postgresql://podium:{STORE}@127.0.0.1:1/podium"',
        '[retry]\nattempts = 1\n[[worker]]\nname = "a"\nprovider = "openai"\nmodel = "m"\n'
        'key_env = "VENDOR_KEY"\nbase_url = "http://127.0.0.1:1/v1"\n'
        '[mcp.web]\nurl = "http://127.0.0.1:1/mcp"\nkey_env = "TOOLS_TOKEN"',
    ],
)
@pytest.mark.parametrize(
    "command",
    [("doctor",), ("ask", "Why?"), ("runs", "list"), ("pool", "list")],
)
def test_configuration_output_and_errors_contain_no_secrets(
    wrong: str,
    command: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    logged: Everything,
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = "" if "[[worker]]" in wrong else '[[worker]]\nname = "a"\nprovider = "scripted"\n'
    usual += 'options = { reply = "so" }\n' if usual else ""
    (tmp_path / "podium.toml").write_text(f"{usual}\n{wrong}\n", "utf-8")
    main(list(command))
    out, err = capsys.readouterr()
    clean(out + err + "\n".join(logged.lines), " ".join(command))


async def opened_and_called(connection: McpConnection) -> None:
    await connection.open()
    await connection.request("tools/call", {"name": "echo", "arguments": {}})


async def test_a_server_of_tools_that_repeats_its_secret_is_not_quoted(tmp_path: Path) -> None:
    for oddity in (
        "sys.stderr.write('no such token: ' + os.environ['TOOLS_TOKEN'] + '\\n'); sys.exit(3)",
        "def call(number, params):\n"
        "    say(id=number, error={'code': 1, 'message': os.environ['TOOLS_TOKEN']})\n",
        "def initialize(number, params):\n"
        "    say(id=number, error={'code': 1, 'message': os.environ['TOOLS_TOKEN']})\n",
    ):
        settings = odd_server(tmp_path, oddity, env=("TOOLS_TOKEN",))
        connection = McpConnection(settings, os.environ)
        with pytest.raises(McpServerError) as caught:
            await opened_and_called(connection)
        await connection.close()
        clean(str(caught.value), oddity)


async def test_a_remote_server_of_tools_that_repeats_its_key_is_not_quoted() -> None:
    async def repeats(request: web.Request) -> web.Response:
        number, said = (await request.json()).get("id"), text_of(request)
        match request.match_info["fault"]:
            case "error":
                error = {"code": 1, "message": said}
                return web.json_response({"jsonrpc": "2.0", "id": number, "error": error})
            case "result":
                return web.json_response({"jsonrpc": "2.0", "id": number, "result": said})
            case "text":
                return web.Response(text="x" * 60 + key_in(said))
            case _:
                return web.Response(text=said, status=500)

    async with served_by(repeats) as address:
        for fault in ("error", "result", "text", "status"):
            settings = McpSettings(
                name="far", url=f"http://{address}/{fault}/", key_env="TOOLS_TOKEN"
            )
            connection = McpConnection(settings, os.environ)
            with pytest.raises(McpServerError) as caught:
                await connection.open()
            await connection.close()
            clean(str(caught.value), fault)
