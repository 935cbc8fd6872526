"""HTTP clients of `benchmarks server` that cost little CPU.

Each response is checked: one that is not the upstream's answer ends the measurement.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from benchmarks.upstream import PIECES
from podium.core.errors import ConfigError

LONGEST_ANSWER_SECONDS: Final = 30.0
FIRST_TOKEN: Final = PIECES[0].encode()
LAST_TOKEN: Final = PIECES[-2].encode()
QUESTION: Final = "What is six times seven?"

_OK: Final = b"HTTP/1.1 200"
_LENGTH: Final = b"content-length:"
_END_OF_STREAM: Final = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Call:
    """A question to a model behind Chat Completions on this machine."""

    port: int
    model: str
    question: str = QUESTION
    headers: tuple[str, ...] = ()

    def request(self, *, stream: bool) -> bytes:
        messages = [{"role": "user", "content": self.question}]
        document = {"model": self.model, "messages": messages, "stream": stream}
        body = json.dumps(document).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\n"
            f"host: 127.0.0.1:{self.port}\r\n"
            "authorization: Bearer sk-bench\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n"
        )
        head += "".join(f"{header}\r\n" for header in self.headers) + "\r\n"
        return head.encode() + body


class Connection:
    """A connection for sequential requests; made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def whole(self, request: bytes) -> None:
        """Send a request that does not stream, and check the answer."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(x[len(_LENGTH) :]) for x in lines if x.startswith(_LENGTH)), None)
        if length is None:
            body = await self._reader.readuntil(_END_OF_STREAM)
        else:
            body = await self._reader.readexactly(length)
        if not head.startswith(_OK) or FIRST_TOKEN not in body:
            raise _not_an_answer(head + body)

    async def first_token(self, request: bytes) -> float:
        """Send a streaming request and return the seconds to its first token."""
        started = perf_counter()
        self._writer.write(request)
        received = b""
        waited: float | None = None
        while not received.endswith(_END_OF_STREAM):
            piece = await self._reader.read(65536)
            received += piece
            if waited is None and FIRST_TOKEN in received:
                waited = perf_counter() - started
            if not piece or not received.startswith(_OK[: len(received)]):
                raise _not_an_answer(received)
        if waited is None or LAST_TOKEN not in received:
            raise _not_an_answer(received)
        return waited


@asynccontextmanager
async def connect(port: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Requests that were answered, and the seconds they took."""

    requests: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


async def run_load(call: Call, *, in_flight: int, seconds: float) -> LoadResult:
    """Keep `in_flight` requests in flight for `seconds`; each client makes at least one."""
    request = call.request(stream=False)
    started = perf_counter()
    end = started + seconds

    async def ask() -> int:
        count = 0
        async with connect(call.port) as connection:
            while count == 0 or perf_counter() < end:
                await connection.whole(request)
                count += 1
        return count

    clients = [asyncio.create_task(ask()) for _ in range(in_flight)]
    try:
        async with asyncio.timeout(seconds + LONGEST_ANSWER_SECONDS):
            counts = await asyncio.gather(*clients)
    except (OSError, EOFError) as error:
        raise _broken(call, error) from error
    finally:
        for client in clients:
            client.cancel()
    return LoadResult(sum(counts), perf_counter() - started)


async def first_tokens(calls: Mapping[str, Call], times: int) -> dict[str, list[float]]:
    """Return the seconds to first token of `times` streams of each call, interleaved."""
    waits: dict[str, list[float]] = {name: [] for name in calls}
    async with AsyncExitStack() as stack:
        connections = {
            name: await stack.enter_async_context(connect(call.port))
            for name, call in calls.items()
        }
        for _ in range(1 + times):
            for name, call in calls.items():
                try:
                    async with asyncio.timeout(LONGEST_ANSWER_SECONDS):
                        wait = await connections[name].first_token(call.request(stream=True))
                except (OSError, EOFError) as error:
                    raise _broken(call, error) from error
                waits[name].append(wait)
    return {name: seconds[1:] for name, seconds in waits.items()}  # the first finds cold paths


def _not_an_answer(received: bytes) -> ConfigError:
    shown = received[-400:].decode(errors="replace")
    return ConfigError(f"expected the upstream's answer from the server under test, got: {shown}")


def _broken(call: Call, error: Exception) -> ConfigError:
    reason = str(error) or type(error).__name__
    return ConfigError(f"the server under test did not answer for {call.model!r}: {reason}")
