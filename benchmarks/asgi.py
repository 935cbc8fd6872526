"""Ask an ASGI application in this process, as uvicorn would; only the socket is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI
from starlette.types import Message

_SCOPE: Final = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "query_string": b"",
    "root_path": "",
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 80),
}


class InvalidResponse(Exception):
    """A response that a client cannot use."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response as it was sent."""

    status: int
    media_type: str
    body: bytes


async def post(
    app: FastAPI, path: str, pieces: Sequence[bytes], headers: Iterable[tuple[bytes, bytes]]
) -> HttpResponse:
    """Post a body in pieces and return the response; raise `InvalidResponse` if incomplete."""
    incoming = iter(enumerate(pieces, start=1))
    messages: list[Message] = []
    is_over = asyncio.Event()

    async def receive() -> Message:
        for number, piece in incoming:
            return {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.append(message)

    own: dict[str, Any] = {"path": path, "raw_path": path.encode(), "headers": list(headers)}
    try:
        await app({**_SCOPE, **own, "state": {}}, receive, send)
    finally:
        is_over.set()
    if not messages or messages[0]["type"] != "http.response.start":
        raise InvalidResponse("no answer")
    if messages[-1].get("more_body"):
        raise InvalidResponse("an answer without an end")
    found = {name.decode().lower(): value.decode() for name, value in messages[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in messages[1:])
    if int(found.get("content-length", len(body))) != len(body):
        raise InvalidResponse("a length that is not the body's")
    return HttpResponse(messages[0]["status"], found.get("content-type", ""), body)
