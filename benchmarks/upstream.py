"""Upstreams of the benchmarks: a fake model behind Chat Completions, in a process of its own.

`python -m benchmarks.upstream` answers at once, always the same, on the bare HTTP protocol, so that
it never limits a contestant; with `paced`, at a model's speed. An upstream prints its port as JSON
and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import httptools

from benchmarks.processes import run_on_fast_loop

MODEL: Final = "fixed"
PIECES: Final = ("Certainly", ": the", " answer", " is", " forty", "-two", ".")
PAUSE_SECONDS: Final = 0.005
"""Pause between two chunks, which shows servers that buffer a stream."""

_EVENTS: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def http_response(body: bytes, status: int = 200, reason: str = "OK", headers: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n{headers}"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def http_chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def completion(
    pieces: Sequence[str], tokens: tuple[int, int], fields: Mapping[str, Any], *, stream: bool
) -> tuple[bytes, ...]:
    """Return a chat completion as the parts that are sent one after another.

    `tokens` are those of input and output; `fields` go into every object. Streamed parts are the
    head, the role, each piece, the end, the usage, and `[DONE]`.
    """
    usage = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }
    common = {"created": 1_700_000_000, **fields}
    if not stream:
        message = {"role": "assistant", "content": "".join(pieces)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        document = {**common, "object": "chat.completion", "choices": [choice], "usage": usage}
        return (http_response(json.dumps(document).encode()),)
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces), {}]
    choices = [
        {"index": 0, "delta": delta, "finish_reason": None if delta else "stop"} for delta in deltas
    ]
    events = [{"choices": [choice]} for choice in choices] + [{"choices": [], "usage": usage}]
    common["object"] = "chat.completion.chunk"
    sent = [http_chunk(f"data: {json.dumps({**common, **event})}\n\n".encode()) for event in events]
    return (_EVENTS, *sent, http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


class Upstream(asyncio.Protocol):
    """One connection with sequential requests; `answer` is called with each body."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # as streams have; uvloop's is its own

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        self._body.clear()
        self.answer(body)

    def answer(self, body: bytes) -> None:
        raise NotImplementedError

    def send(
        self, parts: Sequence[bytes], pause_seconds: float, done: Callable[[], None] | None = None
    ) -> None:
        """Send the parts with pauses between them, so that each is read by itself."""
        if self.transport is not None:
            self.transport.write(parts[0])
        if len(parts) > 1:
            rest = partial(self.send, parts[1:], pause_seconds, done)
            asyncio.get_running_loop().call_later(pause_seconds, rest)
        elif done is not None:
            done()


_FIXED: Final = {"id": "chatcmpl-fixed", "model": MODEL}
(WHOLE,) = completion(PIECES, (12, 7), _FIXED, stream=False)
_HEAD, _ROLE, _FIRST, *_REST = completion(PIECES, (12, 7), _FIXED, stream=True)
STREAMED: Final = (_HEAD + _ROLE + _FIRST, *_REST[:-3], b"".join(_REST[-3:]))


class FixedUpstream(Upstream):
    """Answers at once, always the same."""

    def answer(self, body: bytes) -> None:
        is_streaming = body and json.loads(body).get("stream")  # a peer's probes have no body
        self.send(STREAMED if is_streaming else (WHOLE,), PAUSE_SECONDS)


MEDIAN_FIRST_TOKEN: Final = 0.6
SPREAD: Final = 0.4
"""The standard deviation of the first token's logarithm."""
TOKENS_A_SECOND: Final = 60.0


def first_token(text: str) -> float:
    """Return the seconds to the first token, log-normal, and the same for the same text."""
    rng = random.Random(text)  # noqa: S311 - repeatable, not secret
    return MEDIAN_FIRST_TOKEN * math.exp(SPREAD * rng.gauss(0, 1))


class PacedUpstream(Upstream):
    """Answers as fast as a model, with a token in each chunk of a stream."""

    def answer(self, body: bytes) -> None:
        parts: Sequence[bytes] = (WHOLE,)
        wait, pause = 0.0, 1 / TOKENS_A_SECOND
        if body:  # a peer's probe has none
            document = json.loads(body)
            wait = first_token(document["messages"][-1]["content"])
            if document.get("stream"):
                parts = STREAMED
            else:
                wait += pause * (len(STREAMED) - 1)
        asyncio.get_running_loop().call_later(wait, self.send, parts, pause)


async def serve(protocol: Callable[[], Upstream]) -> None:
    """Listen on a free port, print it, and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    run_on_fast_loop(serve(PacedUpstream if "paced" in sys.argv else FixedUpstream))
