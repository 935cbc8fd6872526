"""The pooled HTTP client; every failure becomes a `WorkerError` in one place.

`Http` sends a call and returns JSON or server-sent events. `translate_errors` wraps each use and
classifies errors, so that nothing else in Podium knows a status code or an exception of the HTTP
library:

    400 404 413 422, other 4xx, 3xx   RequestRefused
    401 402 403                       AuthenticationFailed
    408 409 425, 5xx, no connection   Unavailable
    429                               RateLimited, or AuthenticationFailed without credit
    connection lost in mid-reply      Unavailable, billed
    invalid address, header, proxy    RequestRefused
    no bytes in time                  TimedOut
    not JSON, not UTF-8, too large    BadReply

Timeouts and retries belong to the engine: it cancels, and a cancelled call closes its connection.
aiohttp is imported with the first call.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from podium._util.addresses import proxy_for
from podium.core.errors import BadReply, RequestRefused, TimedOut, Unavailable, WorkerError
from podium.workers import errors, fields
from podium.workers.fields import Document, MalformedReply

if TYPE_CHECKING:
    import aiohttp

HOP_HEADER: Final = "X-Podium-Hop"

_NOT_SERVED: Final = MappingProxyType[str, str]({})

HOP: ContextVar[Mapping[str, str]] = ContextVar("podium_hop", default=_NOT_SERVED)
"""The hop header of calls, which counts the servers that a request came through."""


def hop_header() -> Mapping[str, str]:
    """Return the hop header of a call made now; empty outside a server."""
    return HOP.get()


_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One server-sent event; the name is empty if the server sent none."""

    name: str
    data: str


class EventReader:
    """Splits a byte stream, cut anywhere, into events, in linear time.

    An event that the stream ends in is dropped, as the standard says.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._after_return = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Return the events that this piece completes. Raises UnicodeDecodeError."""
        if self._after_return:  # a \r\n was cut in two, and its line is already taken
            piece = piece.removeprefix(b"\n")
        self._after_return = piece.endswith(b"\r")
        first, *rest = _LINE_END.split(piece)
        self._line.append(first)
        if not rest:
            return []
        *whole, last = rest
        lines = [b"".join(self._line), *whole]
        self._line = [last]
        return [event for line in lines if (event := self._take(line.decode())) is not None]

    def _take(self, line: str) -> ServerEvent | None:
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                self._data.append(value)
            elif field == "event":
                self._name = value
            return None
        name, data = self._name, "\n".join(self._data)
        self._name, self._data = "", []
        return ServerEvent(name, data) if data else None


MAX_REPLY_BYTES: Final = 16 * 1024 * 1024
"""Reading a reply stops here."""

MAX_ERROR_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 20.0

ERROR_SECONDS: Final = 5.0
"""Seconds to wait for the body of an error response."""

STREAM_END: Final = "[DONE]"

GRACE_SECONDS: Final = 0.1
"""Seconds for a stream to close after its last event, to keep the connection."""

_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",  # a compressed stream arrives late, and a bomb all at once
    "User-Agent": "podium",
}


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One HTTP request; `worker` names the worker in messages, `reader` splits a stream."""

    worker: str
    url: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    reader: Callable[[], EventReader] = EventReader


class Http:
    """A connection pool for all workers of a process, one session per event loop.

    Its methods raise what they meet; use them inside `translate_errors`.
    """

    def __init__(self) -> None:
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self._guards: dict[asyncio.AbstractEventLoop, AsyncGenerator[None]] = {}
        self._proxy_for = cache(proxy_for)  # reading the environment would be a tenth of a call

    async def post(self, call: HttpCall) -> Document:
        response = await self._send(call)
        try:
            body = await _Body(response, call).read()
        except BaseException:
            response.close()
            raise
        return fields.parse_object(body)

    async def events(
        self, call: HttpCall, finished: Callable[[], bool]
    ) -> AsyncGenerator[Document]:
        """Send the call and yield the JSON objects of its server-sent events.

        A server that does not stream answers with one object, which is the only event. Once
        `finished` is true, the end of the stream is not awaited.
        """
        reader = call.reader()
        async with self._open(call) as response:
            body = _Body(response, call)
            if response.content_type == "application/json":
                yield fields.parse_object(await body.read())
                return
            while piece := await body.next_piece(GRACE_SECONDS if finished() else None):
                for event in reader.feed(piece):
                    if event.data == STREAM_END:
                        await body.drain()
                        return
                    yield fields.parse_object(event.data)

    async def close(self) -> None:
        """Close the connections of this event loop and of ended ones; the client stays usable."""
        await self._forget_dead_loops()
        loop = asyncio.get_running_loop()
        if self._sessions.pop(loop, None) is not None:
            await self._guards.pop(loop).aclose()

    @asynccontextmanager
    async def _open(self, call: HttpCall) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a response with a good status; leaving early closes its connection."""
        response = await self._send(call)
        try:
            yield response
        except BaseException:
            response.close()
            raise
        await response.release()

    async def _send(self, call: HttpCall) -> aiohttp.ClientResponse:
        """Return a response with a good status; a body that is read whole frees the connection."""
        try:
            body = fields.dump_json(call.body)
        except (TypeError, ValueError) as error:
            raise RequestRefused(f"the request for {call.worker} is not JSON: {error}") from error
        session = await self._session()
        response = await session.post(
            call.url,
            data=body,
            headers={**_HEADERS, **hop_header(), **call.headers},
            allow_redirects=False,  # a redirect would carry the key to another host
            proxy=self._proxy_for(call.url),
        )
        if not 200 <= response.status < 300:
            try:
                error_body = await _read_some(response)
            finally:
                response.close()
            raise errors.error_from_status(
                call.worker, response.status, response.headers, error_body
            )
        return response

    async def _session(self) -> aiohttp.ClientSession:
        import aiohttp

        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            await self._forget_dead_loops()
            session = self._sessions[loop] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # how many at once, the engine decides
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            guard = self._guards[loop] = _close_with_loop(session)
            await anext(guard)
        return session

    async def _forget_dead_loops(self) -> None:
        for loop in [loop for loop in self._sessions if loop.is_closed()]:
            self._guards.pop(loop)
            await self._sessions.pop(loop).close()


async def _close_with_loop(session: aiohttp.ClientSession) -> AsyncGenerator[None]:
    """Close the session with this generator, which `asyncio.run` closes at its end.

    A client that is never closed then leaves no open connection and no warning.
    """
    try:
        yield
    finally:
        await session.close()


class translate_errors:  # noqa: N801 - used as a function; a generator takes three times as long
    """Turn network and vendor failures into a `WorkerError` of one line without secrets."""

    def __init__(self, worker: str, key: str = "") -> None:
        self._worker = worker
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        import aiohttp

        if not isinstance(error, WorkerError | aiohttp.ClientError | OSError | ValueError):
            return
        fault = _fault(error, self._worker)
        fault.args = (errors.clean_message(str(fault), self._key),)
        if fault is error:
            return
        if isinstance(error, aiohttp.InvalidURL | aiohttp.ClientHttpProxyError):
            raise fault from None  # the cause would show the password after all
        raise fault from error


def _fault(error: Exception, worker: str) -> WorkerError:
    import aiohttp

    match error:
        case WorkerError():
            return error
        case aiohttp.ConnectionTimeoutError():
            return Unavailable(
                f"{worker} cannot be reached within {CONNECT_SECONDS:g} s; "
                f"check its base_url and the network"
            )
        case TimeoutError():
            return TimedOut(f"{worker} did not answer in time")
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return Unavailable(
                f"{worker} cannot be reached; check its base_url and the network: {error}"
            )
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError() | OSError():
            return Unavailable(f"{worker} lost the connection: {error}", billed=True)
        case UnicodeDecodeError():
            return BadReply(f"{worker} sent bytes that are not UTF-8")
        case MalformedReply():
            return BadReply(f"{worker} sent an invalid reply: {error}")
        case ValueError():
            return RequestRefused(
                f"{worker} cannot be called: its base_url, one of its headers or the proxy of "
                f"the environment is not valid"
            )
    return BadReply(f"{worker} does not speak HTTP: {error}")


async def _read_some(response: aiohttp.ClientResponse) -> bytes:
    """Read the beginning of an error body, within a time limit."""
    error_body = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(ERROR_SECONDS):
            async for piece in response.content.iter_any():
                error_body += piece
                if len(error_body) >= MAX_ERROR_BYTES:
                    break
    return error_body[:MAX_ERROR_BYTES]


class _Body:
    """A response body up to the size limit."""

    def __init__(self, response: aiohttp.ClientResponse, call: HttpCall) -> None:
        self._content = response.content
        self._worker = call.worker
        self._received = 0

    async def _read(self) -> bytes:
        piece = await self._content.readany()
        self._received += len(piece)
        if self._received > MAX_REPLY_BYTES:
            raise BadReply(
                f"{self._worker} sent more than {MAX_REPLY_BYTES // 1024**2} MiB; "
                f"reading stopped there"
            )
        return piece

    async def read(self) -> bytes:
        pieces = []
        while piece := await self.next_piece(None):
            pieces.append(piece)
        return b"".join(pieces)

    async def next_piece(self, seconds: float | None) -> bytes:
        """Return the next piece, empty at the end.

        With `seconds`, a timeout or a lost connection also counts as the end.
        """
        if seconds is None:
            return await self._read()
        with suppress(*_connection_errors()):
            async with asyncio.timeout(seconds):
                return await self._read()
        return b""

    async def drain(self) -> None:
        """Read to the end if it is near: only then can the connection be reused."""
        with suppress(*_connection_errors()):
            async with asyncio.timeout(GRACE_SECONDS):
                while await self._read():
                    pass


def _connection_errors() -> tuple[type[Exception], ...]:
    import aiohttp

    return (TimeoutError, aiohttp.ClientError, OSError)
