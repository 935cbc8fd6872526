"""Nothing that a client names is fetched: whatever addresses stand in a request, the only ones that
Podium itself connects to, or looks up to connect to, are those of its configuration."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from aiohttp import TCPConnector, web

from podium.core.pool import WorkerProfile
from podium.server.access import request_checks as request_checks
from podium.server.startup import DIALECTS
from podium.workers import Endpoint, Http, connect
from support.serving import application, serving

EVIL: Final = "https://collector.example.org/x"

REPLY: Final = {
    "choices": [{"message": {"role": "assistant", "content": "so"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
}

BODIES: Final[dict[str, tuple[str, dict[str, Any], int]]] = {
    "a picture": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": EVIL}}]}
            ]
        },
        200,
    ),
    "a schema that refers elsewhere": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "Why?"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object", "$ref": EVIL}},
            },
        },
        400,
    ),
    "a schema of a dialect elsewhere": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "Why?"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"$schema": EVIL, "type": "string"}},
            },
        },
        0,
    ),
    "a server of tools (Responses)": (
        "/v1/responses",
        {"input": "Why?", "tools": [{"type": "mcp", "server_label": "x", "server_url": EVIL}]},
        400,
    ),
    "a server of tools (Messages)": (
        "/v1/messages",
        {
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Why?"}],
            "mcp_servers": [{"type": "url", "url": EVIL, "name": "x"}],
        },
        400,
    ),
    "a file (Responses)": (
        "/v1/responses",
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": EVIL}]}]},
        400,
    ),
    "a document (Messages)": (
        "/v1/messages",
        {
            "max_tokens": 9,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "document", "source": {"type": "url", "url": EVIL}}],
                }
            ],
        },
        400,
    ),
    "a worker (podium.workflow)": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "Why?"}],
            "podium": {"workflow": {"steps": [{"worker": EVIL, "subtask": "x", "access": []}]}},
        },
        400,
    ),
    "a field that other servers have": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Why?"}], "api_base": EVIL, "base_url": EVIL},
        200,
    ),
}


@pytest.mark.parametrize("what", BODIES)
async def test_podium_connects_to_nothing_that_a_client_names(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, body, status = BODIES[what]
    connected: list[str] = []
    create = TCPConnector._create_connection

    async def creating(self: TCPConnector, request: Any, *rest: Any) -> Any:
        connected.append(str(request.url.host))
        return await create(self, request, *rest)

    monkeypatch.setattr(TCPConnector, "_create_connection", creating)
    monkeypatch.setattr(request_checks, "resolve", lambda host: ["93.184.216.34"])
    received: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        received.append(await request.json())
        return web.json_response(REPLY)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    http = Http()
    profile = WorkerProfile(
        name="solver", provider="openai-compatible", model="m", capabilities=frozenset({"vision"})
    )
    endpoint = Endpoint(base_url=f"http://127.0.0.1:{runner.addresses[0][1]}")
    worker = connect(profile, endpoint, http)
    model = "podium" if "podium" in body else "solver"
    async with serving(application([worker], dialects=DIALECTS)) as served:
        response = await served.client.post(path, json={"model": model, **body})
    await http.close()
    await runner.cleanup()
    assert status in (0, response.status_code), response.text
    assert set(connected) == ({"127.0.0.1"} if received else set())
    assert (EVIL in json.dumps(received)) == (what == "a picture")
