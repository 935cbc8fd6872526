"""Servers that listen: one of the official package, and some that misbehave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from aiohttp import web
from mcp.server.mcpserver import MCPServer

from podium.config import McpSettings
from podium.core.request import ToolCall, ToolResult
from podium.workers.mcp import McpServers

Handler = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]

KEY = "k-secret-0123"


class Odd:
    """A server that answers as usual, but for the calls of tools."""

    def __init__(self, handle: Handler) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._handle = handle
        self._sessions = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.Response(status=405)
        body = {} if request.method == "DELETE" else await request.json()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.method, headers, body))
        match body.get("method"):
            case "initialize":
                self._sessions += 1
                version = body["params"]["protocolVersion"]
                return said(
                    body,
                    {
                        "protocolVersion": version,
                        "capabilities": {},
                        "serverInfo": {"name": "odd", "version": "1"},
                    },
                    {"Mcp-Session-Id": f"s{self._sessions}"},
                )
            case "tools/list":
                return said(body, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                return await self._handle(request, body)
        return web.Response(status=202)

    def messages(self, method: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
        return [(head, body) for _, head, body in self.requests if body.get("method") == method]


def said(
    body: dict[str, Any], result: Any, headers: dict[str, str] | None = None
) -> web.StreamResponse:
    return web.json_response(
        {"jsonrpc": "2.0", "id": body["id"], "result": result}, headers=headers
    )


def words(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@asynccontextmanager
async def listening(odd: Odd, **more: Any) -> AsyncIterator[McpServers]:
    application = web.Application()
    application.router.add_route("*", "/mcp", odd.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    settings = McpSettings(name="far", url=f"http://127.0.0.1:{port}/mcp", **more)
    box = McpServers([settings], {"FAR_KEY": KEY})
    try:
        await box.open()
        yield box
    finally:
        await box.close()
        await runner.cleanup()


async def used(box: McpServers) -> ToolResult:
    return await box.call(ToolCall("c", "far__t", "{}"))


@asynccontextmanager
async def official(peer: MCPServer, **more: Any) -> AsyncIterator[str]:
    """The server of the official package, on a port of this machine."""
    configuration = uvicorn.Config(peer.streamable_http_app(**more), port=0, log_config=None)
    server = uvicorn.Server(configuration)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(20):
        while not server.started:
            await asyncio.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        await serving


@pytest.mark.parametrize("json_response", [True, False])
async def test_tools_of_the_official_server_are_used(json_response: bool) -> None:
    peer = MCPServer("peer")

    @peer.tool()
    def add(a: int, b: int) -> int:
        """Adds two whole numbers."""
        return a + b

    @peer.tool()
    def fail() -> str:
        """Fails."""
        raise ValueError("the disk is full")

    async with official(peer, json_response=json_response) as url:
        box = McpServers([McpSettings(name="far", url=url)], {})
        await box.open()
        add_tool, _ = box.tools
        assert (add_tool.name, add_tool.description) == ("far__add", "Adds two whole numbers.")
        assert set(add_tool.parameters["properties"]) == {"a", "b"}
        assert await box.call(ToolCall("c", "far__add", '{"a": 2, "b": 3}')) == ToolResult("c", "5")
        failed = await box.call(ToolCall("c", "far__fail", "{}"))
        assert failed.is_error
        assert "fail" in failed.text
        wrong = await box.call(ToolCall("c", "far__add", '{"a": "x"}'))
        assert wrong.is_error
        await box.close()


async def test_the_key_the_session_and_the_revision_are_sent_along() -> None:
    async def handle(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return said(body, words("yes"))

    odd = Odd(handle)
    async with listening(odd, key_env="FAR_KEY") as box:
        assert (await used(box)).text == "yes"
    ((head, _),) = odd.messages("tools/call")
    assert head["authorization"] == f"Bearer {KEY}"
    assert head["mcp-session-id"] == "s1"
    assert head["mcp-protocol-version"] == "2025-11-25"
    method, head, _ = odd.requests[-1]
    assert (method, head["mcp-session-id"]) == ("DELETE", "s1")


async def test_an_answer_may_come_in_a_stream_among_other_messages() -> None:
    async def handle(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for message in (
            {"method": "notifications/progress", "params": {}},
            {"id": "p", "method": "ping"},
            {"id": body["id"], "result": words("yes")},
        ):
            await response.write(
                f"event: message\ndata: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode()
            )
        return response

    odd = Odd(handle)
    async with listening(odd) as box:
        assert (await used(box)).text == "yes"
    assert {"jsonrpc": "2.0", "id": "p", "result": {}} in [body for _, _, body in odd.requests]


async def test_a_session_that_was_forgotten_is_begun_again() -> None:
    async def handle(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if request.headers["Mcp-Session-Id"] == "s1":
            return web.Response(status=404)
        return said(body, words("yes"))

    odd = Odd(handle)
    async with listening(odd) as box:
        assert (await used(box)).text == "yes"
    assert len(odd.messages("initialize")) == 2


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (lambda: web.Response(status=401), "far rejected the key (status 401)"),
        (
            lambda: web.Response(status=500, text=f"oh no {KEY}"),
            "far answered with status 500",
        ),
        (
            lambda: web.Response(status=302, headers={"Location": "http://elsewhere"}),
            "far sent an invalid message: Redirect to http://elsewhere",
        ),
        (lambda: web.Response(text="<html>"), "far sent an invalid message"),
        (lambda: web.Response(body=b"\xff"), "far sent an invalid message"),
        (
            lambda: web.Response(body=b"x" * 5_000_000, content_type="application/json"),
            "far sent an invalid message: Failed to parse JSON response: sent more than 4 MiB",
        ),
        (
            lambda: web.Response(text="data: 1\n\n", content_type="text/event-stream"),
            "far sent an invalid message",
        ),
        (
            lambda: web.Response(text=": nothing\n\n", content_type="text/event-stream"),
            "far closed the connection: SSE stream ended without a response",
        ),
    ],
)
async def test_tool_errors_become_results(
    response: Callable[[], web.Response], expected: str
) -> None:
    async def handle(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return response()

    async with listening(Odd(handle), key_env="FAR_KEY") as box:
        result = await used(box)
    assert result.is_error
    assert result.text.startswith(expected)
    assert KEY not in result.text


async def test_a_server_that_hangs_is_not_waited_for_and_is_reported() -> None:
    async def handle(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    odd = Odd(handle)
    async with listening(odd, seconds=3.0) as box:
        result = await used(box)
    assert result == ToolResult("c", "far did not answer within 3 s", is_error=True)
    ((_, call),) = odd.messages("tools/call")
    ((_, cancelled),) = odd.messages("notifications/cancelled")
    assert cancelled["params"]["requestId"] == call["id"]


async def test_a_server_that_is_not_there_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    box = McpServers([McpSettings(name="far", url="http://127.0.0.1:1/mcp")], {})
    await box.open()
    assert box.tools == ()
    await box.close()
    assert "far cannot be reached" in caplog.text


async def test_a_key_that_is_not_set_is_named(caplog: pytest.LogCaptureFixture) -> None:
    settings = McpSettings(name="far", url="http://127.0.0.1:1/mcp", key_env="NO_SUCH_KEY")
    box = McpServers([settings], {"NO_SUCH_KEY": " "})
    await box.open()
    await box.close()
    assert "far needs NO_SUCH_KEY; set it in the environment" in caplog.text
