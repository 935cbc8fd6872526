from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.types import Message

from podium.server.api_error import ApiError
from podium.server.endpoints import http as exchange
from podium.server.endpoints.http import (
    ClientDisconnected,
    HttpExchange,
    encode_json,
    parse_json_object,
    read_token,
)


class Wire:
    """Both ends of a connection, without one: what the client sends, and what it got."""

    def __init__(self, *messages: Message, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages:
            self.incoming.put_nowait(message)
        self.got: list[Any] = []
        self.exchange = HttpExchange({"headers": list(headers)}, self.incoming.get, self._send)

    async def _send(self, message: Any) -> None:
        self.got.append(message)


def body(piece: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": piece, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


async def test_a_body_may_come_in_pieces() -> None:
    wire = Wire(body(b'{"a":', more=True), body(b" 1}"))
    assert await wire.exchange.json(1) == {"a": 1}


async def test_a_body_that_announces_too_much_is_refused_unread() -> None:
    wire = Wire(headers=[(b"content-length", str(2 * 2**20).encode())])
    with pytest.raises(ApiError, match="the limit is 1 MB") as refused:
        await wire.exchange.json(1)
    assert refused.value.status == 413


async def test_a_body_that_becomes_too_much_is_refused_before_it_is_read_whole() -> None:
    wire = Wire(*(body(b"x" * 2**20, more=True) for _ in range(5)))
    with pytest.raises(ApiError) as refused:
        await wire.exchange.json(1)
    assert refused.value.status == 413
    assert wire.incoming.qsize() == 3


async def test_a_client_that_leaves_while_it_sends_has_left() -> None:
    with pytest.raises(ClientDisconnected):
        await Wire(body(b"{", more=True), GONE).exchange.json(1)


async def test_a_body_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "BODY_SECONDS", 0.001)
    with pytest.raises(ApiError, match="send it faster"):
        await Wire(body(b"{", more=True)).exchange.json(1)


async def test_work_is_cancelled_when_the_client_leaves() -> None:
    wire = Wire()
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    serving = asyncio.create_task(wire.exchange.run_until_disconnect(work()))
    await asyncio.sleep(0)
    wire.incoming.put_nowait(GONE)
    with pytest.raises(ClientDisconnected):
        await serving
    assert stopped.is_set()


async def test_work_that_ends_is_not_disturbed_by_a_client_that_leaves_then() -> None:
    wire = Wire()

    async def work() -> str:
        wire.incoming.put_nowait(GONE)
        return "done"

    assert await wire.exchange.run_until_disconnect(work()) == "done"
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_being_stopped_from_outside_is_not_a_client_that_left() -> None:
    wire = Wire()
    serving = asyncio.create_task(wire.exchange.run_until_disconnect(asyncio.Event().wait()))
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_notes_are_sent_as_headers() -> None:
    wire = Wire()
    wire.exchange.response_headers["X-Podium-Run"] = "run_1"
    await wire.exchange.respond_json(200, {"a": 1})
    start, whole = wire.got
    assert (b"x-podium-run", b"run_1") in start["headers"]
    assert (b"content-length", b"7") in start["headers"]
    assert whole["body"] == b'{"a":1}'


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ([(b"authorization", b"Bearer pk_1")], "pk_1"),
        ([(b"authorization", b"bearer  pk_1 ")], "pk_1"),
        ([(b"x-api-key", b"pk_2")], "pk_2"),
        ([(b"authorization", b"Basic abc"), (b"x-api-key", b"pk_2")], "pk_2"),
        ([], None),
    ],
)
async def test_a_key_is_shown_as_either_vendor_has_it(
    headers: list[tuple[bytes, bytes]], token: str | None
) -> None:
    exchange = Wire(headers=headers).exchange
    assert read_token(exchange.headers) == token


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"1", b"\xff", b"[" * 100_000])
def test_non_objects_are_refused(text: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse_json_object(text)
    assert refused.value.status == 400


def test_half_of_a_surrogate_pair_is_written_as_an_escape() -> None:
    assert encode_json({"a": "ä"}) == '{"a":"ä"}'.encode()
    assert encode_json({"a": "\ud800"}) == b'{"a":"\\ud800"}'
