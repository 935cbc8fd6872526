"""HTTP at the level of ASGI: one exchange, body limits, disconnects and shutdown.

The dialects' endpoints use `HttpExchange` instead of the framework's request and response, which
take as much CPU time as the rest of a plain call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Container, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic_core import to_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podium.engine.calls import Deadlines
from podium.server.access.concurrency import RETRY_AFTER_SECONDS
from podium.server.api_error import ApiError, invalid, new_request_id, request_id_headers
from podium.server.dialects.request import Dialect
from podium.workers.fields import load_json

Result = TypeVar("Result")

JSON: Final = b"application/json"
EVENTS: Final = b"text/event-stream; charset=utf-8"

NO_STORE: Final = "no-store"
"""`Cache-Control` of responses: they hold private text, and browsers are shared."""

CLIENT_CLOSED_REQUEST: Final = 499
"""The logged status of a request whose client disconnected, even after a stream began."""

MEGABYTE: Final = 1024 * 1024

BODY_SECONDS: Final = 60.0
"""Time to send a body; a slow client occupies a slot that others wait for."""

WATCH_AFTER_SECONDS: Final = 0.1
"""Work that ends sooner is not watched for a disconnect: a watcher costs more than it saves."""

SMALL_BODY_MEGABYTES: Final = 1
"""Limit of bodies that are not a dialect's, such as feedback."""


class ClientDisconnected(Exception):
    """The client closed the connection before it had the response."""


def server_stopped_error(run: str | None = None) -> ApiError:
    """Return the error for a response cut off by shutdown; `run` is the id of its stored run."""
    stored = f"; the work done is stored as {run}" if run else ""
    return ApiError(
        "overloaded",
        f"the server stopped before the response was complete{stored}; send the request again",
        retry_after=RETRY_AFTER_SECONDS,
    )


class HttpExchange:
    """One request and its response.

    `headers` have lower-case names. `status` is what was sent; `response_headers` are added, with
    the request's id.
    """

    __slots__ = (
        "_receive",
        "_send",
        "address",
        "headers",
        "request_id",
        "response_headers",
        "started",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.address = client_address(scope)
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.started = False
        self.status = CLIENT_CLOSED_REQUEST
        self.request_id = new_request_id()
        self.response_headers = request_id_headers(self.request_id)

    async def json(self, megabytes: int) -> dict[str, Any]:
        """Read the body as a JSON object."""
        return parse_json_object(
            await read_body(megabytes, self.headers.get("content-length"), self._receive)
        )

    async def respond_json(
        self, status: int, document: Any, headers: Mapping[str, str] = {}
    ) -> None:
        """Send a JSON response."""
        body = encode_json(document)
        await self._start(status, JSON, headers, len(body))
        await self._send({"type": "http.response.body", "body": body})

    async def begin_stream(self) -> None:
        """Start a stream of server-sent events."""
        await self._start(200, EVENTS, {"X-Accel-Buffering": "no"})

    async def send_chunk(self, chunk: bytes) -> None:
        """Send a part of the stream."""
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end_stream(self) -> None:
        """Close the stream."""
        await self._send({"type": "http.response.body", "body": b""})

    async def run_until_disconnect(self, work: Awaitable[Result]) -> Result:
        """Run the work in this task, and cancel it if the client disconnects."""
        return await run_until_disconnect(work, self._receive)

    async def _start(
        self, status: int, media_type: bytes, headers: Mapping[str, str], length: int | None = None
    ) -> None:
        raw = [(b"content-type", media_type), (b"cache-control", b"no-store")]
        if length is not None:
            raw.append((b"content-length", str(length).encode()))
        for name, value in {**self.response_headers, **headers}.items():
            raw.append((name.lower().encode(), value.encode("latin-1", "replace")))
        self.started = True
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": raw})


async def run_until_disconnect(work: Awaitable[Result], receive: Receive) -> Result:
    """Run the work in this task; if the client disconnects, cancel it and raise
    `ClientDisconnected`. The body must have been read."""
    task = asyncio.current_task()
    assert task is not None, "a request is served by a task"
    is_running = True
    watcher: asyncio.Task[None] | None = None

    def cancel_work(watcher: asyncio.Task[None]) -> None:
        if is_running and not watcher.cancelled():
            task.cancel()

    def watch() -> None:
        nonlocal watcher
        watcher = asyncio.create_task(_wait_for_disconnect(receive))
        watcher.add_done_callback(cancel_work)

    timer = task.get_loop().call_later(WATCH_AFTER_SECONDS, watch)
    try:
        return await work
    except asyncio.CancelledError:
        is_gone = watcher is not None and watcher.done() and not watcher.cancelled()
        if is_gone and task.uncancel() <= 0:
            raise ClientDisconnected from None
        raise
    finally:
        is_running = False
        timer.cancel()
        if watcher is not None:
            watcher.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(megabytes: int, content_length: str | None, receive: Receive) -> bytes:
    """Read a body; one that is too large is refused before it is read whole."""
    limit = megabytes * MEGABYTE
    if content_length is not None and content_length.isdigit() and int(content_length) > limit:
        raise _too_large(megabytes)
    chunks: list[bytes] = []
    length, more = 0, True
    deadlines = _deadlines(asyncio.get_running_loop())
    task = deadlines.start(BODY_SECONDS)
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunks.append(message.get("body", b""))
            length += len(chunks[-1])
            if length > limit:
                raise _too_large(megabytes)
            more = message.get("more_body", False)
    finally:
        if deadlines.stop(task):
            raise ApiError(
                "invalid", f"timed out reading the body after {BODY_SECONDS:g} s; send it faster"
            ) from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


@lru_cache(maxsize=1)
def _deadlines(loop: asyncio.AbstractEventLoop) -> Deadlines:
    return Deadlines(loop)


def _too_large(megabytes: int) -> ApiError:
    return ApiError(
        "too_large",
        f"request body too large: the limit is {megabytes} MB; send less, or have the operator "
        f"raise server.body_megabytes",
    )


def client_address(scope: Scope) -> str:
    """Return the client's address; behind a trusted proxy, the forwarded one."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def parse_json_object(body: bytes) -> dict[str, Any]:
    """Parse a body; raises `ApiError` unless it is a JSON object."""
    try:
        document = load_json(body)
    except UnicodeDecodeError:
        raise invalid("", "the body is not UTF-8; send a JSON object") from None
    except (ValueError, RecursionError) as error:
        raise invalid("", f"the body is not valid JSON: {error}; send a JSON object") from None
    if not isinstance(document, dict):
        raise invalid("", f"the body is a JSON {type(document).__name__}; send a JSON object")
    return document


def encode_json(document: Any) -> bytes:
    """Encode compactly; lone surrogates, which UTF-8 cannot hold, become escapes."""
    try:
        encoded = to_json(document)
    except ValueError:
        encoded = b"NaN"
    if b"NaN" in encoded or b"Infinity" in encoded:  # `json` refuses the numbers, not the words
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    return encoded


def route_path(scope: Scope) -> str:
    """Return the path as the application routes it, wherever it is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


_API_PATHS: Final = frozenset({"/health", "/healthz", "/readyz", "/metrics"})


def is_api_path(scope: Scope) -> bool:
    """True for paths of the API, not of the pages."""
    path = route_path(scope)
    return path.startswith("/v1/") or path in _API_PATHS


class BodyLimitMiddleware:
    """Reads bodies within a size and time limit before FastAPI does, which has neither.

    Paths in `exempt` read their own bodies.
    """

    def __init__(self, app: ASGIApp, exempt: Container[str]) -> None:
        self._app = app
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection."""
        if (
            scope["type"] == "http"
            and scope["method"] not in ("GET", "HEAD")
            and route_path(scope) not in self._exempt
        ):
            receive = _replay(await self._read(scope, receive), receive)
        await self._app(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        content_length = Headers(scope=scope).get("content-length")
        try:
            return await read_body(SMALL_BODY_MEGABYTES, content_length, receive)
        except ApiError as error:
            if error.reason != "too_large":
                raise
            raise ApiError(  # no setting raises this limit
                "too_large",
                f"request body too large: the limit is {SMALL_BODY_MEGABYTES} MB; send less",
            ) from None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, then what follows it."""
    is_sent = False

    async def replay() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def send_uncached(send: Send) -> Send:
    """Add `Cache-Control: no-store` and a request id to responses without their own."""

    async def send_with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("Cache-Control", NO_STORE)
            for name, value in request_id_headers(new_request_id()).items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_header


def send_head(send: Send) -> Send:
    """Send the headers of a response to `GET` without its body."""

    async def send_without_body(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_without_body


class ResponseTracker:
    """Sends a response and can end it properly when the server stops."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self._is_complete = False

    async def send(self, message: Message) -> None:
        """Send the next message."""
        if message["type"] == "http.response.start":
            self._started = True
        elif message["type"] == "http.response.body":
            self._is_complete = not message.get("more_body", False)
        await self._send(message)

    async def cut_off(self, scope: Scope, receive: Receive, dialect: Dialect) -> None:
        """End the response: a started one as it stands, otherwise with an error."""
        if self._is_complete:
            return
        if self._started:
            await self._send({"type": "http.response.body", "body": b""})
            return
        error = server_stopped_error()
        exchange = HttpExchange(scope, receive, self._send)
        await exchange.respond_json(error.status, dialect.format_error(error), error.headers)
