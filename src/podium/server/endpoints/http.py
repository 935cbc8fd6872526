"""One request and its response on the wire: headers, a body within its limit, JSON or a stream
out, and a client that goes away. What is asked and answered is nothing to this module.

The hot endpoints use it in the place of the framework's own request and response, which cost as
much as the rest of a plain call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Container, Mapping
from typing import Any, Final, TypeVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podium.server.api_error import ApiError, invalid

Result = TypeVar("Result")

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream; charset=utf-8"

NO_STORE: Final = "no-store"
"""What `Cache-Control` says of answers: they hold what somebody asked, and others may use the same
browser."""

CLIENT_CLOSED_REQUEST: Final = 499
"""The status that is logged where the client went away before it had its answer, whether or not
a stream had begun with another."""

SESSION_COOKIE: Final = "podium_session"

MEGABYTE: Final = 1024 * 1024

BODY_SECONDS: Final = 60.0
"""How long a client may take to send a body: it has a place meanwhile that others wait for."""


class ClientDisconnected(Exception):
    """Nobody waits for the answer any more."""


class HttpExchange:
    """One request, and the one response to it. `status` is what was sent, once something was;
    `notes` are headers to be sent with it."""

    __slots__ = ("_headers", "_receive", "_scope", "_send", "notes", "started", "status")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self.started = False
        self.status = CLIENT_CLOSED_REQUEST
        self.notes: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        """A header of the request; `name` in lower case."""
        value = self._headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    @property
    def address(self) -> str:
        """Where the client is."""
        return client_address(self._scope)

    async def json(self, megabytes: int) -> dict[str, Any]:
        """The body as a JSON object."""
        return parse_json_object(
            await read_body(megabytes, self.get("content-length"), self._receive)
        )

    async def respond(
        self, status: int, body: bytes, *, media_type: bytes = JSON, headers: Mapping[str, str] = {}
    ) -> None:
        """Send a whole response."""
        await self._start(status, media_type, headers, len(body))
        await self._send({"type": "http.response.body", "body": body})

    async def respond_json(
        self, status: int, document: Any, headers: Mapping[str, str] = {}
    ) -> None:
        """Send a JSON document."""
        await self.respond(status, encode_json(document), headers=headers)

    async def begin_stream(self) -> None:
        """Open a stream of events."""
        await self._start(200, EVENTS, {"X-Accel-Buffering": "no"})

    async def piece(self, piece: bytes) -> None:
        """Send a piece of the stream."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end_stream(self) -> None:
        """Close the stream."""
        await self._send({"type": "http.response.body", "body": b""})

    async def run_until_disconnect(self, work: Awaitable[Result]) -> Result:
        """Do the work in this task, and stop it should the client go away meanwhile."""
        return await run_until_disconnect(work, self._receive)

    async def _start(
        self, status: int, media_type: bytes, headers: Mapping[str, str], length: int | None = None
    ) -> None:
        raw = [(b"content-type", media_type), (b"cache-control", NO_STORE.encode())]
        if length is not None:
            raw.append((b"content-length", str(length).encode()))
        for name, value in (*self.notes.items(), *headers.items()):
            raw.append((name.lower().encode(), value.encode("latin-1", "replace")))
        self.started = True
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": raw})


async def run_until_disconnect(work: Awaitable[Result], receive: Receive) -> Result:
    """Do the work in this task. Should the client go away meanwhile, the work is cancelled and
    `ClientDisconnected` raised. The body must have been read before."""
    task = asyncio.current_task()
    assert task is not None, "a request is served by a task"
    going_on = True

    def gone(watch: asyncio.Task[None]) -> None:
        if going_on and not watch.cancelled():
            task.cancel()

    watch = asyncio.create_task(_until_gone(receive))
    watch.add_done_callback(gone)
    try:
        return await work
    except asyncio.CancelledError:
        if watch.done() and not watch.cancelled() and task.uncancel() <= 0:
            raise ClientDisconnected from None
        raise
    finally:
        going_on = False
        watch.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(megabytes: int, announced: str | None, receive: Receive) -> bytes:
    """The body of a request; one that is too large is refused before it is read whole."""
    limit = megabytes * MEGABYTE
    if announced is not None and announced.isdigit() and int(announced) > limit:
        raise _too_large(megabytes)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _body(limit, megabytes, receive)
    except TimeoutError:
        raise ApiError(
            "invalid", f"the body was not there after {BODY_SECONDS:g} s; send it faster"
        ) from None


async def _body(limit: int, megabytes: int, receive: Receive) -> bytes:
    pieces: list[bytes] = []
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        piece: bytes = message.get("body", b"")
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            raise _too_large(megabytes)
        more = message.get("more_body", False)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def client_address(scope: Scope) -> str:
    """Where the client of a connection is; behind a proxy that is trusted, where that says."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def read_token(authorization: str | None, x_api_key: str | None) -> str | None:
    """The key that is in these headers."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else x_api_key


def read_session_cookie(cookie: str | None) -> str | None:
    """The session that is in this header, of a browser that signed in."""
    for pair in (cookie or "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == SESSION_COOKIE:
            return value
    return None


def parse_json_object(body: bytes) -> dict[str, Any]:
    """A body as a JSON object."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid("", f"the body is not JSON: {error}; send a JSON object") from None
    if not isinstance(document, dict):
        raise invalid("", f"the body is a JSON {type(document).__name__}; send a JSON object")
    return document


def encode_json(document: Any) -> bytes:
    """A document as JSON; half of a surrogate pair, which UTF-8 cannot hold, as an escape."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _too_large(megabytes: int) -> ApiError:
    return ApiError(
        "too_large",
        f"the body is over {megabytes} MB, the most that is read here; send less, or have "
        f"server.body_megabytes raised",
    )


MEGABYTES: Final = 1
"""The most that is read: a key or a comment is far less."""

_WITHOUT_BODY: Final = ("GET", "HEAD")


def route_path(scope: Scope) -> str:
    """The address as the application knows it, wherever it is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class BodyLimitMiddleware:
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
            and route_path(scope) not in self._own
        ):
            receive = _again(await _read(scope, receive), receive)
        await self._app(scope, receive, send)


async def _read(scope: Scope, receive: Receive) -> bytes:
    announced = Headers(scope=scope).get("content-length")
    try:
        return await read_body(MEGABYTES, announced, receive)
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


def send_uncached(send: Send) -> Send:
    """Sends responses as ones that nobody is to keep, unless they say themselves who may."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).setdefault("Cache-Control", NO_STORE)
        await send(message)

    return sending
