"""The border to the network: one pooled HTTP client, and every fault translated once.

`Http` sends a call and hands back JSON or server-sent events. `boundary` stands around each use
of it and turns whatever goes wrong into a `WorkerError`, so that nothing inside Podium knows a
status code or an exception of the HTTP library:

    400 404 413 422, other 4xx, 3xx   RequestRefused
    401 403                           AuthenticationFailed
    408 409 425, 5xx, no connection   Unavailable
    429                               RateLimited, unless the credit is used up
    broken off in mid-reply           Unavailable, billed
    not an address, header or proxy   RequestRefused
    no bytes in time                  TimedOut
    not JSON, not UTF-8, too large    BadReply

Time limits and retries are the engine's business: it cancels, and a cancelled call closes its
connection. aiohttp is imported with the first call, not with this module.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from podium._util.addresses import proxy_for
from podium.core.errors import BadReply, RequestRefused, TimedOut, Unavailable, WorkerError
from podium.workers import errors as faults
from podium.workers import fields
from podium.workers.fields import Document, Malformed

if TYPE_CHECKING:
    import aiohttp

HEADER: Final = "X-Podium-Hop"

_NOT_SERVED: Final = MappingProxyType[str, str]({})

_header: ContextVar[Mapping[str, str]] = ContextVar("podium_hop", default=_NOT_SERVED)


@contextmanager
def come_through(servers: int) -> Iterator[None]:
    """Calls in this block, and in the tasks that it starts, are for a request that has come
    through so many servers."""
    before = _header.set({HEADER: str(servers)})
    try:
        yield
    finally:
        _header.reset(before)


def hop_header() -> Mapping[str, str]:
    """The header of a call that is made now; none outside of a server."""
    return _header.get()


_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name, empty where the server gave none, and its data as text."""

    name: str
    data: str


class EventReader:
    """Turns pieces of a byte stream, cut anywhere, into whole events.

    An event that the stream breaks off in is dropped, as the standard says. Time is linear in
    the bytes, however small the pieces are.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._after_return = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that this piece completes. Raises UnicodeDecodeError if it is not UTF-8."""
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
"""No reply is longer; reading stops there."""

MAX_ERROR_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 20.0

ERROR_SECONDS: Final = 5.0
"""How long the words of an error are waited for, once its status has come."""

STREAM_END: Final = "[DONE]"

GRACE_SECONDS: Final = 0.1
"""How long a stream may take to close after its last event, for its connection to be kept."""

_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "application/json",
    "Accept-Encoding": "identity",  # a compressed stream arrives late, and a bomb all at once
    "User-Agent": "podium",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request on the wire. `worker` is how messages name who was called."""

    worker: str
    url: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Http:
    """A pool of connections for every worker of a process, one client session an event loop.

    Its methods raise what they meet; use them inside `boundary`.
    """

    def __init__(self) -> None:
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
        self._proxy_for = cache(proxy_for)  # reading the environment would be a tenth of a call

    async def post(self, call: Call) -> Document:
        """Send the call and read the JSON object that answers it."""
        async with self._answered(call) as response:
            return fields.parse(await _Body(response, call).read())

    async def events(
        self, call: Call, finished: Callable[[], bool]
    ) -> AsyncGenerator[tuple[str, Document]]:
        """Send the call and read its server-sent events: name and JSON object of each.

        A server that does not stream answers with one object, which is then the only event. As
        soon as `finished` says that the reply is complete, the stream's end is not waited for.
        """
        reader = EventReader()
        async with self._answered(call) as response:
            body = _Body(response, call)
            if response.content_type == "application/json":
                yield "", fields.parse(await body.read())
                return
            while piece := await body.next_piece(GRACE_SECONDS if finished() else None):
                for event in reader.feed(piece):
                    if event.data == STREAM_END:
                        await body.drain()
                        return
                    yield event.name, fields.parse(event.data)

    async def close(self) -> None:
        """Close the connections of this event loop, and of those that have ended. The client
        can be used again."""
        await self._forget_dead_loops()
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _answered(self, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response whose status is good. Left early, its connection is closed."""
        try:
            body = fields.write(call.body)
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
        try:
            if not 200 <= response.status < 300:
                said = await _read_some(response)
                raise faults.from_status(call.worker, response.status, response.headers, said)
            yield response
        except BaseException:
            response.close()
            raise
        await response.release()

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
        return session

    async def _forget_dead_loops(self) -> None:
        """A program may use one loop after another and close none of their sessions."""
        for loop in [loop for loop in self._sessions if loop.is_closed()]:
            await self._sessions.pop(loop).close()


@contextmanager
def boundary(worker: str, key: str = "") -> Iterator[None]:
    """Turn what the network or the provider did wrong into a `WorkerError`, whose message is
    one line and never holds the key, nor the password of a proxy."""
    import aiohttp

    try:
        yield
    except (WorkerError, aiohttp.ClientError, OSError, ValueError) as error:
        fault = _fault(error, worker)
        fault.args = (faults.tidy(str(fault), key),)
        if fault is error:
            raise
        if isinstance(error, aiohttp.InvalidURL | aiohttp.ClientHttpProxyError):
            raise fault from None  # the cause would show the password after all
        raise fault from error


def _fault(error: Exception, worker: str) -> WorkerError:
    """The fault that an exception stands for."""
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
            return Unavailable(f"{worker} broke the connection off: {error}", billed=True)
        case UnicodeDecodeError():
            return BadReply(f"{worker} sent bytes that are not UTF-8")
        case Malformed():
            return BadReply(f"{worker} sent what cannot be understood: {error}")
        case ValueError():
            return RequestRefused(
                f"{worker} cannot be called: its base_url, one of its headers or the proxy of "
                f"the environment is not valid"
            )
    return BadReply(f"{worker} does not speak HTTP: {error}")


async def _read_some(response: aiohttp.ClientResponse) -> bytes:
    """The beginning of a body: an error that says more than this says too much, and one that
    stalls has said enough."""
    said = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(ERROR_SECONDS):
            async for piece in response.content.iter_any():
                said += piece
                if len(said) >= MAX_ERROR_BYTES:
                    break
    return said[:MAX_ERROR_BYTES]


class _Body:
    """A response's body as it arrives, up to the bound.

    Not a generator: one that is left early would need a task of its own to be closed in.
    """

    def __init__(self, response: aiohttp.ClientResponse, call: Call) -> None:
        self._pieces = response.content.iter_any()
        self._worker = call.worker
        self._received = 0

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._pieces)
        self._received += len(piece)
        if self._received > MAX_REPLY_BYTES:
            raise BadReply(
                f"{self._worker} sent more than {MAX_REPLY_BYTES // 1024**2} MiB; "
                f"reading stopped there"
            )
        return piece

    async def read(self) -> bytes:
        """All of it."""
        return b"".join([piece async for piece in self])

    async def next_piece(self, seconds: float | None) -> bytes:
        """What comes next; nothing at the end. Seconds are for who has all that matters: nothing
        also where it does not come within them, or the connection breaks."""
        if seconds is None:
            return await anext(self, b"")
        with suppress(*_broken()):
            async with asyncio.timeout(seconds):
                return await anext(self, b"")
        return b""

    async def drain(self) -> None:
        """Read on to the end, where it is near: only then can the connection be used again. One
        that breaks has said all before."""
        with suppress(*_broken()):
            async with asyncio.timeout(GRACE_SECONDS):
                async for _ in self:
                    pass


def _broken() -> tuple[type[Exception], ...]:
    """What a connection raises that is over, in whatever way."""
    import aiohttp

    return (TimeoutError, aiohttp.ClientError, OSError)
