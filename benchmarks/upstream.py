"""The upstream of `benchmarks server`: a model that answers at once, always the same.

It runs in a process of its own (`python -m benchmarks.upstream`) on the bare HTTP protocol, so that
it never limits a contestant.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final, cast

import httptools

from benchmarks.processes import run_on_fast_loop

MODEL: Final = "fixed"
PIECES: Final = ("Certainly", ": the", " answer", " is", " forty", "-two", ".")
PAUSE_SECONDS: Final = 0.005
"""Pause between two chunks, which shows servers that buffer a stream."""

_COMMON: Final = {"id": "chatcmpl-fixed", "created": 1_700_000_000, "model": MODEL}
_USAGE: Final = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}


def whole_response() -> bytes:
    """Return the response to a request that does not stream."""
    message = {"role": "assistant", "content": "".join(PIECES)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps(
        {**_COMMON, "object": "chat.completion", "choices": [choice], "usage": _USAGE}
    ).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def streamed_response() -> tuple[bytes, ...]:
    """Return the chunks of a streamed response."""
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    opening = _event({"role": "assistant", "content": ""})
    words = [_event({"content": piece}) for piece in PIECES]
    ending = _event({}, "stop") + _event(None) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    return (head + opening + words[0], *words[1:], ending)


def _event(delta: dict[str, str] | None, finish: str | None = None) -> bytes:
    """Return a chunk; without a delta, the one with the usage."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    document: dict[str, Any] = {**_COMMON, "object": "chat.completion.chunk", "choices": choices}
    if delta is None:
        document["usage"] = _USAGE
    return _chunk(f"data: {json.dumps(document)}\n\n".encode())


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


WHOLE: Final = whole_response()
STREAMED: Final = streamed_response()


class FixedUpstream(asyncio.Protocol):
    """One connection with sequential requests."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # as streams have; uvloop's is its own

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        if body and json.loads(body).get("stream"):  # a peer looks around first, without a body
            self._send_from(0)
        else:
            self._write(WHOLE)

    def _send_from(self, index: int) -> None:
        self._write(STREAMED[index])
        if index + 1 < len(STREAMED):
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._send_from, index + 1)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


async def serve() -> None:
    """Listen on a free port, print it, and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(FixedUpstream, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    run_on_fast_loop(serve())
