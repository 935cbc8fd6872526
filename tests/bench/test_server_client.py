from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from benchmarks.load_client import Call, first_tokens, run_load
from benchmarks.upstream import PAUSE_SECONDS, PIECES, STREAMED, WHOLE, FixedUpstream
from podium.core.errors import ConfigError

REFUSAL = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 9\r\n\r\nslow down"


@asynccontextmanager
async def listening(protocol: Callable[[], asyncio.Protocol]) -> AsyncIterator[Call]:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    async with server:
        yield Call(server.sockets[0].getsockname()[1], "fixed")


def saying(response: bytes, *, hangs_up: bool = False) -> Callable[[], asyncio.Protocol]:
    """A server that says the same to everything."""

    class Parrot(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport = transport

        def data_received(self, data: bytes) -> None:
            self._transport.write(response)
            if hangs_up:
                self._transport.close()

    return Parrot


async def test_the_load_has_the_requested_concurrency() -> None:
    waiting: list[Callable[[], None]] = []
    all_there = False

    class Patient(FixedUpstream):
        """Holds requests until there are five, then answers all at once."""

        def on_message_complete(self) -> None:
            nonlocal all_there
            waiting.append(super().on_message_complete)
            all_there = all_there or len(waiting) == 5
            while all_there and waiting:
                waiting.pop()()

    async with listening(Patient) as call:
        flooded = await run_load(call, in_flight=5, seconds=0.01)
    assert all_there
    assert flooded.requests >= 5
    assert flooded.per_second == flooded.requests / flooded.seconds


async def test_other_errors_end_the_flood_and_are_shown() -> None:
    async with listening(saying(REFUSAL)) as call:
        with pytest.raises(ConfigError, match="slow down"):
            await run_load(call, in_flight=2, seconds=5)


async def test_a_server_that_disconnects_ends_the_load() -> None:
    async with listening(saying(WHOLE[:40], hangs_up=True)) as call:
        with pytest.raises(ConfigError, match="did not answer for 'fixed'"):
            await run_load(call, in_flight=2, seconds=5)


async def test_a_server_that_streams_gives_its_first_token_long_before_its_last() -> None:
    async with listening(FixedUpstream) as call:
        waits = await first_tokens({"upstream": call}, 3)
    assert len(waits["upstream"]) == 3
    assert min(waits["upstream"]) < PAUSE_SECONDS * len(PIECES)


async def test_a_server_that_keeps_its_pieces_to_the_end_is_seen_to_do_so() -> None:
    class Hoarder(FixedUpstream):
        def answer(self, body: bytes) -> None:
            whole = (b"".join(STREAMED),)
            loop = asyncio.get_running_loop()
            loop.call_later(PAUSE_SECONDS * len(PIECES), self.send, whole, PAUSE_SECONDS)

    async with listening(Hoarder) as call:
        waits = await first_tokens({"hoarder": call}, 1)
    assert min(waits["hoarder"]) >= PAUSE_SECONDS * len(PIECES)


@pytest.mark.parametrize("response", [REFUSAL, STREAMED[0] + b"0\r\n\r\n"], ids=["no", "cut"])
async def test_a_stream_that_is_not_the_answer_is_shown(response: bytes) -> None:
    async with listening(saying(response)) as call:
        with pytest.raises(ConfigError, match="expected the upstream's answer"):
            await first_tokens({"refusing": call}, 1)
