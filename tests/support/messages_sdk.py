"""Anthropic's own SDK in front of the Messages dialect, with no server and no network between."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic
from anthropic.types import RawMessageStreamEvent
from pydantic import TypeAdapter

from podium.server.api_error import ApiError
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.anthropic_response import AnthropicWriter
from podium.server.dialects.request import ApiRequest, ApiResponse
from support.readers import read_strictly

Play = Callable[[AnthropicWriter], list[bytes]]
"""Writes a stream."""


def body(**fields: Any) -> dict[str, Any]:
    """A small body, with these fields added or, where None, taken away."""
    small = {
        "model": "podium",
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": "Hello"}],
    }
    return {name: value for name, value in (small | fields).items() if value is not None}


def asked(**fields: Any) -> ApiRequest:
    """The small body with these fields, read."""
    return read_strictly(MESSAGES, body(**fields))


def said(content: Any, role: str = "user") -> dict[str, Any]:
    """The `messages` of a body, as fields of it: one turn with that content, after a question
    where it is the assistant's."""
    turn = {"role": role, "content": content}
    question = {"role": "user", "content": "Hello"}
    return {"messages": [turn] if role == "user" else [question, turn, question]}


def refusal(**fields: Any) -> ApiError:
    """Why the small body with these fields is refused."""
    with pytest.raises(ApiError) as caught:
        asked(**fields)
    return caught.value


def answer(**fields: Any) -> ApiResponse:
    """An answer of the run `run_0123456789abcdef`."""
    known: dict[str, Any] = {"id": "run_0123456789abcdef", "model": "podium", "created": 1}
    return ApiResponse(**(known | fields))


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, each of them held against the SDK's own types."""
    events = []
    for block in stream.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if event["type"] not in ("ping", "error"):
            TypeAdapter[Any](RawMessageStreamEvent).validate_python(event)
        events.append(event)
    return events


class Desk:
    """Answers an SDK's requests by the dialect alone, and keeps what was asked."""

    def __init__(self, answer: ApiResponse, play: Play | None = None) -> None:
        self.asked: list[ApiRequest] = []
        self._answer = answer
        self._play = play

    def respond(self, asked: ApiRequest) -> ApiResponse:
        """What is answered."""
        return self._answer

    @property
    def client(self) -> Anthropic:
        """An SDK that sends its requests here."""
        transport = httpx2.MockTransport(self._respond)
        return Anthropic(
            api_key="unread",
            base_url="http://podium.test",
            http_client=httpx2.Client(transport=transport),
            max_retries=0,
        )

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        try:
            if request.url.path.endswith("/count_tokens"):
                self.asked.append(MESSAGES.read_count(json.loads(request.content)))
                return httpx2.Response(200, json=MESSAGES.format_count(42))
            asked = read_strictly(MESSAGES, json.loads(request.content))
        except ApiError as refused:
            return httpx2.Response(refused.status, json=MESSAGES.format_error(refused))
        self.asked.append(asked)
        if not asked.stream:
            return httpx2.Response(200, json=MESSAGES.format_response(asked, self.respond(asked)))
        return httpx2.Response(
            200,
            headers={"content-type": "text/event-stream"},
            content=self.stream(asked),
        )

    def stream(self, asked: ApiRequest) -> bytes:
        """The whole stream that answers this, checked event by event."""
        result = self.respond(asked)
        writer = MESSAGES.stream_writer(asked, answer())
        pieces = [writer.begin()]
        pieces += self._play(writer) if self._play else [writer.text(result.text)]
        if not pieces[-1].startswith(b"event: error"):
            pieces.append(writer.end(result))
        stream = b"".join(pieces)
        events_of(stream)
        return stream
