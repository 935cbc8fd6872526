"""A client that never comes to the point is hung up on, before it fills the memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from podium.config import ServerSettings
from podium.server import startup as protocol
from podium.server.startup import MAX_HEAD_BYTES, BoundedHttp, _configuration

MUCH = 32 * MAX_HEAD_BYTES
"""More than is read at once: what arrives whole within one reading is bounded by that."""

HEAD = b"POST /x HTTP/1.1\r\nhost: here\r\n"
UPGRADE = b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the body whole, and says how long it was."""
    if scope["type"] != "http":
        return
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    answer = str(length).encode()
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server that is configured as ours is."""
    configuration = _configuration(app, ServerSettings(host="127.0.0.1", port=0))
    configuration.load()
    assert configuration.http_protocol_class is BoundedHttp
    state = uvicorn.server.ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedHttp(config=configuration, server_state=state, app_state={}), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()
        await server.wait_closed()


async def sent(pieces: list[bytes]) -> bytes:
    """What the server says to these, until it hangs up or has nothing to say for a while."""
    said = b""
    async with connected() as (reader, writer):
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with asyncio.timeout(2):
                while more := await reader.read(65536):
                    said += more
                    if said.endswith((b"\r\n\r\n7", b"\r\n\r\n0", b"send less")):
                        break
        except (ConnectionError, TimeoutError):
            pass
    return said


@pytest.mark.parametrize(
    "endless",
    [
        b"x-long: " + b"a" * MUCH + b"\r\n",
        b"".join(b"x-%d: %s\r\n" % (n, b"a" * 1000) for n in range(MUCH // 1000)),
    ],
    ids=["one header", "many headers"],
)
async def test_a_head_without_end_is_hung_up_on(endless: bytes) -> None:
    whole = HEAD + endless + b"content-length: 0\r\n\r\n"
    pieces = [whole[at : at + 8192] for at in range(0, len(whole), 8192)]
    assert b"200 OK" not in await sent(pieces)


async def test_an_address_without_end_is_hung_up_on() -> None:
    pieces = [b"GET /", *[b"a" * 8192] * (MUCH // 8192), b" HTTP/1.1\r\nhost: here\r\n\r\n"]
    assert b"200 OK" not in await sent(pieces)


async def test_trailers_without_end_are_hung_up_on() -> None:
    head = HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    pieces = [head, *[b"x-t: " + b"a" * 8000 + b"\r\n"] * (MUCH // 8000), b"\r\n"]
    assert b"200 OK" not in await sent(pieces)


async def test_too_long_a_conversation_is_reported() -> None:
    said = await sent([HEAD, b"x: " + b"a" * MAX_HEAD_BYTES])
    assert said.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD + b"content-length: 7\r\n\r\n" + b"a" * 7],
        [HEAD, b"x: " + b"a" * (MAX_HEAD_BYTES - 100), b"\r\ncontent-length: 7\r\n\r\n", b"a" * 7],
        [HEAD + b"transfer-encoding: chunked\r\n\r\n", *[b"1\r\n", b"a\r\n"] * 7, b"0\r\n\r\n"],
    ],
    ids=["at once", "a long head in pieces", "a body in chunks"],
)
async def test_requests_within_bounds_are_served(pieces: list[bytes]) -> None:
    said = await sent(pieces)
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.endswith(b"\r\n\r\n7")


@pytest.mark.parametrize("begun", [b"", HEAD])
async def test_a_head_that_does_not_come_is_not_waited_for(
    begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    async with connected() as (reader, writer):
        writer.write(begun)
        async with asyncio.timeout(5):
            assert await reader.read() == b""


async def test_a_connection_that_has_been_used_may_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    async with connected() as (reader, writer):
        for _ in range(2):
            writer.write(HEAD + b"content-length: 0\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(1) == b"0"
            await asyncio.sleep(0.1)


async def test_a_websocket_request_is_answered_over_plain_http(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected() as (reader, writer):
        writer.write(b"GET /x HTTP/1.1\r\nhost: here\r\n" + UPGRADE + b"\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert not caplog.records, "the operator is told to install what is not wanted"
