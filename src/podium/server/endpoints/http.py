"""HTTP at the level of ASGI: one exchange, body limits, disconnects, shutdown, authentication.

The dialects' endpoints use `HttpExchange` instead of the framework's request and response, which
take as much CPU time as the rest of a plain call. `check_request` refuses requests of foreign pages
(CSRF, DNS rebinding) and bodies that are not JSON.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import secrets
from collections.abc import Awaitable, Collection, Container, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends
from pydantic_core import to_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podium._util.addresses import is_loopback
from podium.config import ServerSettings
from podium.server.access import Principal
from podium.server.access.request_checks import RESERVED_SUFFIXES
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.request import Dialect
from podium.server.service import ANY_ORIGIN, RETRY_AFTER_SECONDS, Service
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


def new_request_id() -> str:
    """Make an id for a request, which is sent to the client and logged."""
    return f"req_{secrets.token_hex(8)}"


def request_id_headers(request_id: str) -> dict[str, str]:
    """Return the id under OpenAI's and Anthropic's names."""
    return {"X-Request-Id": request_id, "Request-Id": request_id}


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
        return parse_json_object(
            await read_body(megabytes, self.headers.get("content-length"), self._receive)
        )

    async def respond_json(
        self, status: int, document: Any, headers: Mapping[str, str] = {}
    ) -> None:
        body = encode_json(document)
        await self._send(self._head(status, JSON, headers, len(body)))
        await self._send({"type": "http.response.body", "body": body})

    async def begin_stream(self) -> None:
        await self._send(self._head(200, EVENTS, {"X-Accel-Buffering": "no"}))

    async def send_chunk(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end_stream(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def run_until_disconnect(self, work: Awaitable[Result]) -> Result:
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
            watcher = asyncio.create_task(_wait_for_disconnect(self._receive))
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

    def _head(
        self, status: int, media_type: bytes, headers: Mapping[str, str], length: int | None = None
    ) -> Message:
        raw = [(b"content-type", media_type), (b"cache-control", b"no-store")]
        if length is not None:
            raw.append((b"content-length", str(length).encode()))
        for name, value in {**self.response_headers, **headers}.items():
            raw.append((name.lower().encode(), value.encode("latin-1", "replace")))
        self.started = True
        self.status = status
        return {"type": "http.response.start", "status": status, "headers": raw}


class ResponseTransport:
    """A transport for one response: its head is written with what follows it at once.

    A head with a length waits for its body.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._is_begun = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write the data, or hold a head for the next call."""
        if self._is_begun:
            self._transport.write(data)
        elif self._head:
            self._is_begun = True
            self._transport.write(self._head + data)
        else:
            self._head = data
            if b"\r\ncontent-length: " not in data:
                self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close the connection after what was held."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._transport.write(self._head)


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
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                chunks.append(message.get("body", b""))
                length += len(chunks[-1])
                if length > limit:
                    raise _too_large(megabytes)
                more = message.get("more_body", False)
    except TimeoutError:
        raise ApiError(
            "invalid", f"timed out reading the body after {BODY_SECONDS:g} s; send it faster"
        ) from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


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
        error.request_id = exchange.request_id
        await exchange.respond_json(error.status, dialect.format_error(error), error.headers)


SESSION_COOKIE: Final = "podium_session"

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; a page of another origin cannot read their responses."""

OWN_SITES: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for our own pages, and for no page."""

FORM: Final = "application/x-www-form-urlencoded"
_LABEL: Final = re.compile(r"[a-z0-9_-]+")


def get_service(request: Request) -> Service:
    service: Service = request.app.state.holder()
    return service


async def authenticate(
    service: Service, method: str, headers: Mapping[str, str], address: str
) -> Principal:
    """Authenticate by the API key in a header, else by a browser's session cookie."""
    check_request(method, headers, service.settings)
    token = read_token(headers)
    if token is None and not _is_cors_page(headers, service.settings):
        token = cookie_parser(headers.get("cookie", "")).get(SESSION_COOKIE)
    principal = await service.access.authenticate(token, address)
    disabled = service.disabled.names
    return replace(principal, disabled=disabled) if disabled else principal


def read_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key, where OpenAI's or Anthropic's clients send it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key")


def _is_cors_page(headers: Mapping[str, str], settings: ServerSettings) -> bool:
    """True for a page of another origin in `server.cors`, which never has the user's session."""
    origin = headers.get("origin")
    if origin is None or not settings.cors or _is_own_page(headers):
        return False
    return origin in settings.cors or ANY_ORIGIN in settings.cors


def _is_own_page(headers: Mapping[str, str]) -> bool:
    """True for a page of this server, and for a client that is no browser."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None or origin is None:
        return site is None or site in OWN_SITES
    own = headers.get("host") or ""
    return bool(own) and origin.partition("://")[2].lower() == own.lower()


async def authenticate_request(request: Request) -> Principal:
    address = client_address(request.scope)
    principal = await authenticate(get_service(request), request.method, request.headers, address)
    return replace(principal, address=address)


ServiceDep = Annotated[Service, Depends(get_service)]
PrincipalDep = Annotated[Principal, Depends(authenticate_request)]


def is_anthropic_client(request: Request) -> bool:
    """True if the client expects Anthropic's format where both vendors share a path."""
    return "anthropic-version" in request.headers


def check_request(method: str, headers: Mapping[str, str], settings: ServerSettings) -> None:
    """Refuse requests that another origin sends through a browser, and bodies that are not JSON."""
    if not settings.require_keys:
        _check_host(headers.get("host") or "", settings)
    if method in SAFE_METHODS:
        return
    # A browser adds neither header by itself, so a request with one is meant.
    has_key = headers.get("authorization") is not None or headers.get("x-api-key") is not None
    if not has_key and not _is_cors_page(headers, settings):
        _check_origin(headers, settings.allowed_hosts)
    _check_content_type(headers)


def _check_host(host: str, settings: ServerSettings) -> None:
    if host and not _is_own_host(host, settings.host, settings.allowed_hosts):
        raise ApiError(
            "forbidden",
            f"host {host[:100]!r} is not this machine, and this server requires no API keys; "
            f"use http://127.0.0.1, or add the host to server.allowed_hosts",
        )


@lru_cache(maxsize=256)
def _is_own_host(host: str, listens_at: str, hosts: tuple[str, ...]) -> bool:
    bracketed = f"[{listens_at}]" if ":" in listens_at else listens_at
    if not is_loopback(f"http://{bracketed}"):
        return True
    name = _hostname(f"//{host}")
    return name in hosts or _is_local_name(name)


def _check_origin(headers: Mapping[str, str], hosts: Collection[str]) -> None:
    origin = headers.get("origin")
    if _is_own_page(headers):
        return
    name = _hostname(origin or "")
    if name and name in hosts:
        return
    raise ApiError(
        "forbidden",
        f"cross-origin request from {(origin or 'another origin')[:100]!r}; to let this page use "
        f"the API, add its origin to server.cors",
    )


def _check_content_type(headers: Mapping[str, str]) -> None:
    given = headers.get("content-type")
    if given is None:
        return
    kind = given.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return
    from_browser = headers.get("origin") is not None or headers.get("sec-fetch-site") is not None
    if kind in ("", FORM) and not from_browser:
        return
    raise ApiError(
        "invalid",
        f"unsupported content type {kind[:100]!r}; send JSON, with Content-Type: application/json",
    )


def _is_local_name(name: str) -> bool:
    """True for an IP address, a name without dots, or one that cannot be registered."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(_LABEL.fullmatch(name)) or name.endswith(RESERVED_SUFFIXES)
    return True


def _hostname(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return address
