"""Nothing that comes from outside is taken without bound: what is larger, longer, deeper or more
than its limit is refused with a message. The table of the limits is in SECURITY.md."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from aiohttp import web

from podium.conductors.plan import parse
from podium.config import McpSettings, ServerSettings
from podium.core.errors import BadReply, MalformedPlan, Unavailable
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import Request, user
from podium.server.startup import DIALECTS
from podium.workers import Endpoint, Http, ScriptedWorker, connect
from podium.workers.http import MAX_REPLY_BYTES
from podium.workers.mcp import McpServerError
from podium.workers.mcp_connection import LARGEST_MESSAGE, McpConnection
from support.serving import Served, application, serving

CHAT: Final = "/v1/chat/completions"
MESSAGES: Final = "/v1/messages"
RESPONSES: Final = "/v1/responses"
WHY: Final = {"role": "user", "content": "Why?"}


@asynccontextmanager
async def small_server() -> AsyncIterator[Served]:
    profile = WorkerProfile(name="solver", capabilities=frozenset({"tools", "json", "vision"}))
    app = application(
        [ScriptedWorker(profile, "so")],
        dialects=DIALECTS,
        settings=ServerSettings(body_megabytes=1),
    )
    async with serving(app) as served:
        yield served


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        value = {"type": "object", "properties": {"a": value}}
    return value


def tool(name: str, **more: object) -> dict[str, object]:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object"}, **more},
    }


def form(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


def chat(**more: object) -> dict[str, object]:
    return {"model": "solver", "messages": [WHY], **more}


def pictures(count: int) -> list[dict[str, object]]:
    return [
        {"type": "image_url", "image_url": {"url": f"https://h{n}.example.org/a.png"}}
        for n in range(count)
    ]


TOO_MUCH: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "messages": (CHAT, chat(messages=[{"role": "user", "content": ""}] * 10_001)),
    "parts of a message": (
        CHAT,
        chat(messages=[{"role": "user", "content": [{"type": "text", "text": ""}] * 10_001}]),
    ),
    "items of Responses": (RESPONSES, {"model": "solver", "input": [WHY] * 20_001}),
    "blocks of Messages": (
        MESSAGES,
        {
            "model": "solver",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 10_001}],
        },
    ),
    "tools": (CHAT, chat(tools=[tool(f"t{n}") for n in range(129)])),
    "the name of a tool": (CHAT, chat(tools=[tool("t" * 129)])),
    "the name of a model": (CHAT, chat(model="m" * 257)),
    "the name of a participant": (CHAT, chat(messages=[{**WHY, "name": "n" * 65}])),
    "stop sequences": (CHAT, chat(stop=["a", "b", "c", "d", "e"])),
    "hosts of pictures": (CHAT, chat(messages=[{"role": "user", "content": pictures(21)}])),
    "the address of a picture": (
        CHAT,
        chat(
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "https://x.y/" + "a" * 8192}}
                    ],
                }
            ]
        ),
    ),
    "the depth of a schema": (CHAT, chat(response_format=form(nested(40)))),
    "the depth of a tool's parameters": (CHAT, chat(tools=[tool("t", parameters=nested(40))])),
    "the values of a schema": (CHAT, chat(response_format=form({"enum": list(range(20_001))}))),
    "the pattern of a schema": (
        CHAT,
        chat(
            response_format=form(
                {"type": "object", "properties": {"a": {"type": "string", "pattern": "a" * 3000}}}
            )
        ),
    ),
    "steps of a workflow": (
        CHAT,
        chat(
            model="podium",
            podium={
                "workflow": {"steps": [{"worker": "solver", "subtask": "x", "access": []}] * 101}
            },
        ),
    ),
    "rounds": (CHAT, chat(model="podium", podium={"rounds": 10**6})),
    "metadata": (CHAT, chat(metadata={f"k{n}": "v" for n in range(17)})),
}


TOLD: Final = {
    "messages": "a list of 1 to 10000",
    "parts of a message": "a list of 1 to 10000",
    "items of Responses": "a list of 1 to 20000",
    "blocks of Messages": "a list of 0 to 10000",
    "tools": "a list of 0 to 128",
    "the name of a tool": "1 to 128 letters",
    "the name of a model": "a string of 1 to 200 characters",
    "the name of a participant": "a string of 0 to 64 characters",
    "stop sequences": "a list of 0 to 4",
    "hosts of pictures": "images at 21 hosts, more than 20",
    "the address of a picture": "an http or https URL, got a string of 8204 characters",
    "the depth of a schema": "nests at most 64 deep",
    "the depth of a tool's parameters": "nests at most 64 deep",
    "the values of a schema": "at most 20000 values",
    "the pattern of a schema": "is longer than 2000 characters",
    "steps of a workflow": "at most 5 are allowed",
    "rounds": "from 1 to 100",
    "metadata": "at most 16 entries",
}


@pytest.mark.parametrize("what", TOO_MUCH)
async def test_too_much_of_something_in_a_body_is_refused(what: str) -> None:
    path, body = TOO_MUCH[what]
    async with small_server() as served:
        response = await served.client.post(path, json=body)
    assert response.status_code == 400, response.text[:300]
    assert TOLD[what] in response.json()["error"]["message"]


RAW: Final[dict[str, tuple[bytes, dict[str, str], int]]] = {
    "a body over its limit": (b" " * (2**20 + 1), {}, 413),
    "a body that is said to be over its limit": (b"{}", {"Content-Length": "99999999999"}, 413),
    "a body that nests without end": (b'{"a":' * 100_000, {}, 400),
    "a body that is compressed": (gzip.compress(b" " * 10**7), {"Content-Encoding": "gzip"}, 400),
    "a number without end": (b'{"model": ' + b"9" * 100_000 + b"}", {}, 400),
    "a header that steers": (json.dumps(chat()).encode(), {"X-Podium-Max-Steps": "9" * 5000}, 400),
}


@pytest.mark.parametrize("what", RAW)
async def test_a_request_too_large_is_refused_before_it_is_read(what: str) -> None:
    body, headers, status = RAW[what]
    async with small_server() as served:
        response = await served.client.post(
            CHAT, content=body, headers={"Content-Type": "application/json", **headers}
        )
    assert response.status_code == status, response.text[:300]
    assert len(response.text) < 2000


def calls_and_results(path: str, count: int) -> dict[str, Any]:
    """A conversation of so many turns, each with a call of a tool and its result."""
    numbers = range(count // 2)
    if path == RESPONSES:
        call = {"type": "function_call", "name": "t", "arguments": "{}"}
        items = [{**call, "call_id": f"c{n}"} for n in numbers]
        values = [
            {"type": "function_call_output", "call_id": f"c{n}", "output": "y"} for n in numbers
        ]
        return {"model": "solver", "input": items + values}
    messages: list[dict[str, Any]] = [WHY]
    for n in numbers:
        if path == CHAT:
            function = {"name": "t", "arguments": "{}"}
            asked: Any = {"id": f"c{n}", "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [asked]})
            messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": "y"})
        else:
            asked = {"type": "tool_use", "id": f"c{n}", "name": "t", "input": {}}
            shown_by = {"type": "tool_result", "tool_use_id": f"c{n}", "content": "y"}
            messages.append({"role": "assistant", "content": [asked]})
            messages.append({"role": "user", "content": [shown_by]})
    return {"model": "solver", "max_tokens": 9, "messages": messages}


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_four_times_the_messages_take_about_four_times_as_long_to_read(path: str) -> None:
    def seconds(count: int) -> float:
        body = calls_and_results(path, count)
        began = time.process_time()
        DIALECTS[path].read(body)
        return time.process_time() - began

    assert min(seconds(4000) for _ in range(3)) < 9 * min(seconds(1000) for _ in range(3)) + 0.02


@asynccontextmanager
async def upstream(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


BOMB: Final = gzip.compress(b" " * (3 * MAX_REPLY_BYTES))


async def squeezed(request: web.Request) -> web.StreamResponse:
    """Compressed to less than a thousandth, though not requested."""
    kind = "text/event-stream" if "stream" in (await request.text()) else "application/json"
    return web.Response(body=BOMB, headers={"Content-Encoding": "gzip", "Content-Type": kind})


async def endless_line(request: web.Request) -> web.StreamResponse:
    """A stream of events whose first line has no end."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    try:
        for _ in range(2 * MAX_REPLY_BYTES // 2**20):
            await response.write(b"a" * 2**20)
    except ConnectionError:
        pass
    return response


async def squeezed_error(request: web.Request) -> web.StreamResponse:
    return web.Response(body=BOMB, status=500, headers={"Content-Encoding": "gzip"})


async def deep(request: web.Request) -> web.StreamResponse:
    return web.Response(text='{"choices":' * 5000, content_type="application/json")


async def long_head(request: web.Request) -> web.StreamResponse:
    return web.Response(text="{}", headers={"X-Long": "a" * 10**6})


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (squeezed, BadReply),
        (endless_line, BadReply),
        (squeezed_error, Unavailable),
        (deep, BadReply),
        (long_head, BadReply),
    ],
)
async def test_an_upstream_that_sends_too_much_is_not_read_to_the_end(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], fault: type[Exception]
) -> None:
    profile = WorkerProfile(name="far", provider="openai-compatible", model="m")
    async with upstream(answer) as address:
        http = Http()
        worker = connect(profile, Endpoint(base_url=address), http)
        tracemalloc.start()
        with pytest.raises(fault) as caught:
            async for _ in worker.stream(Request((user("Why?"),))):
                pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await http.close()
    assert len(str(caught.value)) < 600
    assert most < 4 * MAX_REPLY_BYTES


async def sends_too_much(request: web.Request) -> web.StreamResponse:
    return web.Response(body=b" " * (LARGEST_MESSAGE + 1), content_type="application/json")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (squeezed, "sent a compressed response"),
        (sends_too_much, f"sent more than {LARGEST_MESSAGE // 2**20} MiB"),
    ],
)
async def test_an_mcp_server_that_sends_too_much_is_not_read_to_the_end(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], problem: str
) -> None:
    async with upstream(answer) as address:
        connection = McpConnection(McpSettings(name="far", url=f"{address}/mcp"), {})
        with pytest.raises(McpServerError, match=problem):
            await connection.open()
        await connection.close()


@pytest.mark.parametrize(
    "text",
    [
        "model_id = " + "[" * 7 + "]" * 7 + '\nsubtasks = ["a"]\naccess_list = [[]]',
        "model_id = [0,0,0,0,0,0]\nsubtasks = ['a','a','a','a','a','a']\n"
        "access_list = [[],[],[],[],[],[]]",
        "model_id = [" + "9" * 5000 + "]\nsubtasks = ['a']\naccess_list = [[]]",
    ],
    ids=["too deep", "too many steps", "a number without end"],
)
def test_a_plan_that_is_too_much_is_malformed(text: str) -> None:
    with pytest.raises(MalformedPlan) as caught:
        parse(text, Pool((WorkerProfile(name="a"),)))
    assert len(str(caught.value)) < 400
