from __future__ import annotations

import pytest
from starlette.types import Message

from podium.server.endpoints.http import ResponseTracker
from support.plain_dialect import PlainDialect

START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def cut_off_after(*messages: Message) -> list[Message]:
    """What is sent in all of a response that is cut off when that much is out."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("nothing more is read")

    answering = ResponseTracker(send)
    for message in messages:
        await answering.send(message)
    await answering.cut_off({"type": "http", "headers": []}, receive, PlainDialect())
    return sent[len(messages) :]


async def test_runs_that_have_not_started_have_their_own_status() -> None:
    start, body = await cut_off_after()
    assert start["status"] == 503
    assert b"the server stopped" in body["body"]


async def test_a_stream_ends_as_it_stands() -> None:
    piece = {"type": "http.response.body", "body": b"a piece", "more_body": True}
    assert await cut_off_after(START, piece) == [{"type": "http.response.body", "body": b""}]


@pytest.mark.parametrize("last", [{}, {"more_body": False}])
async def test_answered_runs_are_left_alone(last: Message) -> None:
    assert await cut_off_after(START, {"type": "http.response.body", "body": b"all", **last}) == []
