"""What stands around every endpoint that is FastAPI's: a body within its limit, and answers that no
browser keeps. The endpoints of the dialects see to both themselves, in `exchange`."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podium.server.api_error import ApiError
from podium.server.endpoints.exchange import NOT_KEPT, body_within

MEGABYTES: Final = 1
"""The most that is read: a key or a comment is far less."""

_WITHOUT_BODY: Final = ("GET", "HEAD")


def path_in(scope: Scope) -> str:
    """The address as the application knows it, wherever it is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class BodyGuard:
    """Reads the body before anybody else does. The framework would read all of it, however much
    that is and however long it takes, before it asks who sends it. `own` are the addresses that
    read theirs within a limit of their own."""

    def __init__(self, app: ASGIApp, own: Container[str]) -> None:
        self._app = app
        self._own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection."""
        if (
            scope["type"] == "http"
            and scope["method"] not in _WITHOUT_BODY
            and path_in(scope) not in self._own
        ):
            receive = _again(await _read(scope, receive), receive)
        await self._app(scope, receive, send)


async def _read(scope: Scope, receive: Receive) -> bytes:
    announced = Headers(scope=scope).get("content-length")
    try:
        return await body_within(MEGABYTES, announced, receive)
    except ApiError as refusal:
        if refusal.reason != "too_large":
            raise
        raise ApiError(  # no setting raises this limit
            "too_large", f"the body is over {MEGABYTES} MB, the most that is read here; send less"
        ) from None


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read, and then what comes after it."""
    is_given = False

    async def again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def not_kept(send: Send) -> Send:
    """Sends responses as ones that nobody is to keep, unless they say themselves who may."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).setdefault("Cache-Control", NOT_KEPT)
        await send(message)

    return sending
