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


class Unfit(Exception):
    """What is wrong with an answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as it was sent."""

    status: int
    media_type: str
    body: bytes


async def post(
    app: FastAPI, path: str, pieces: Sequence[bytes], headers: Iterable[tuple[bytes, bytes]]
) -> Said:
    """Post a body in these pieces and return the answer; raise `Unfit` where it is not whole."""
    incoming = iter(enumerate(pieces, start=1))
    heard: list[Message] = []
    is_over = asyncio.Event()

    async def receive() -> Message:
        for number, piece in incoming:
            return {"type": "http.request", "body": piece, "more_body": number < len(pieces)}
        await is_over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        heard.append(message)

    own: dict[str, Any] = {"path": path, "raw_path": path.encode(), "headers": list(headers)}
    try:
        await app({**_SCOPE, **own, "state": {}}, receive, send)
    finally:
        is_over.set()
    if not heard or heard[0]["type"] != "http.response.start":
        raise Unfit("no answer")
    if heard[-1].get("more_body"):
        raise Unfit("an answer without an end")
    found = {name.decode().lower(): value.decode() for name, value in heard[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in heard[1:])
    if int(found.get("content-length", len(body))) != len(body):
        raise Unfit("a length that is not the body's")
    return Said(heard[0]["status"], found.get("content-type", ""), body)
