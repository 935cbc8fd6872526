"""The border to the network: one pooled HTTP client, and every fault translated once.

`Http` sends a call and hands back JSON or server-sent events. `boundary` stands around each use
of it and turns whatever goes wrong into a `WorkerError`, so that nothing inside Podium knows a
status code or an exception of the HTTP library:

    400 404 413 422, other 4xx, 3xx   RequestRefused
    401 403                           AuthenticationFailed
    408 409 425, 5xx, no connection   Unavailable
    429                               RateLimited
    broken off in mid-reply           Unavailable, billed
    no bytes in time                  TimedOut
    not JSON, not UTF-8, too large    BadReply

Time limits and retries are the engine's business: it cancels, and a cancelled call closes its
connection. aiohttp is imported with the first call, not with this module.
"""

from __future__ import annotations

import asyncio
import urllib.request
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from podium.errors import BadReply, RequestRefused, TimedOut, Unavailable
from podium.providers import faults, wire
from podium.providers.sse import EventReader, ServerEvent
from podium.providers.wire import Document

if TYPE_CHECKING:
    import aiohttp

MAX_REPLY_BYTES: Final = 16 * 1024 * 1024
"""No reply is longer; reading stops there."""

MAX_ERROR_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 20.0
STREAM_END: Final = "[DONE]"


@dataclass(frozen=True, slots=True)
class Call:
    """One request on the wire. `worker` is how messages name who was called; `key` is what
    they must never contain."""

    worker: str
    url: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: str = field(default="", repr=False)


class Http:
    """A pool of connections for every worker of a process, one client session an event loop."""

    def __init__(self) -> None:
        self._sessions: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, aiohttp.ClientSession
        ] = weakref.WeakKeyDictionary()
        self._proxies: Mapping[str, str] | None = None

    async def post(self, call: Call) -> Document:
        """Send the call and read the JSON object that answers it."""
        async with self._answered(call) as response:
            return wire.parse(await _read_all(response, call))

    async def events(self, call: Call) -> AsyncGenerator[tuple[str, Document]]:
        """Send the call and read its server-sent events: name and JSON object of each."""
        async with self._answered(call) as response:
            if response.content_type == "application/json":
                found = str(wire.parse(await _read_all(response, call)))[:80]
                raise BadReply(f"{call.worker} was asked to stream and sent one object: {found}")
            async for event in _read_events(response, call):
                if event.data == STREAM_END:
                    return
                yield event.name, wire.parse(event.data)

    async def close(self) -> None:
        """Close the connections of this event loop. The client can be used again."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _answered(self, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response whose status is good. Left early, its connection is closed."""
        try:
            body = wire.write(call.body)
        except ValueError as error:
            raise RequestRefused(f"the request for {call.worker} is not JSON: {error}") from error
        response = await self._session().post(
            call.url,
            data=body,
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity"}
            | dict(call.headers),
            allow_redirects=False,  # a redirect would carry the key to another host
            proxy=self._proxy(call.url),
        )
        try:
            if not 200 <= response.status < 300:
                raw = await response.content.read(MAX_ERROR_BYTES)
                raise faults.from_status(
                    call.worker, response.status, response.headers, raw, call.key
                )
            yield response
        except BaseException:
            response.close()
            raise
        await response.release()

    def _session(self) -> aiohttp.ClientSession:
        import aiohttp

        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.closed:
            session = self._sessions[loop] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),  # how many at once, the engine decides
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return session

    def _proxy(self, url: str) -> str | None:
        """The proxy that the environment names for this address.

        aiohttp's own `trust_env` would also read ~/.netrc and clash with the worker's key.
        """
        if self._proxies is None:
            self._proxies = urllib.request.getproxies()
        address = urlsplit(url)
        proxy = self._proxies.get(address.scheme)
        if proxy is None or urllib.request.proxy_bypass(address.netloc):
            return None
        return proxy


@contextmanager
def boundary(worker: str) -> Iterator[None]:
    """Turn what the network or the provider did wrong into a `WorkerError`."""
    import aiohttp

    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise Unavailable(
            f"{worker} cannot be reached within {CONNECT_SECONDS:g} s; "
            f"check its base_url and the network"
        ) from error
    except TimeoutError as error:
        raise TimedOut(f"{worker} did not answer in time") from error
    except aiohttp.ClientConnectorError as error:
        raise Unavailable(
            f"{worker} cannot be reached: {error}; check its base_url and the network"
        ) from error
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
        raise Unavailable(
            f"{worker} broke the connection off: {faults.one_line(str(error))}", billed=True
        ) from error
    except aiohttp.ClientError as error:
        raise BadReply(f"{worker} does not speak HTTP: {faults.one_line(str(error))}") from error
    except UnicodeDecodeError as error:
        raise BadReply(f"{worker} sent bytes that are not UTF-8") from error
    except wire.Malformed as error:
        raise BadReply(f"{worker} sent what cannot be understood: {error}") from error


async def _read_all(response: aiohttp.ClientResponse, call: Call) -> bytes:
    pieces = [piece async for piece in _pieces(response, call)]
    return b"".join(pieces)


async def _read_events(response: aiohttp.ClientResponse, call: Call) -> AsyncIterator[ServerEvent]:
    reader = EventReader()
    async for piece in _pieces(response, call):
        for event in reader.feed(piece):
            yield event


async def _pieces(response: aiohttp.ClientResponse, call: Call) -> AsyncIterator[bytes]:
    """The body as it arrives, up to the bound."""
    received = 0
    async for piece in response.content.iter_any():
        received += len(piece)
        if received > MAX_REPLY_BYTES:
            raise BadReply(
                f"{call.worker} sent more than {MAX_REPLY_BYTES // 1024**2} MiB; "
                f"reading stopped there"
            )
        yield piece
