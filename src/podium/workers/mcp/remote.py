"""A server that listens: each message is a POST, answered by JSON or by a stream of events.

A stream that ends before its answer is a fault; it is not taken up again. What a server would say
without being asked (its lists have changed) is not listened to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from podium._util.addresses import proxy_for
from podium.config import McpSettings
from podium.workers.http import EventReader
from podium.workers.mcp.rpc import (
    CANCELLED,
    LARGEST_MESSAGE,
    McpFault,
    SessionGone,
    answer_to,
    notification,
    number_of,
    one_line,
    request,
    result_of,
    understood,
)
from podium.workers.wire import Document, parse, write

if TYPE_CHECKING:
    import aiohttp

PARTING_SECONDS: Final = 2.0
"""How long a server may take to hear that a request is cancelled, or that a session ends."""

_SESSION: Final = "Mcp-Session-Id"


class Remote:
    """One session with a server that listens."""

    def __init__(self, settings: McpSettings, environment: Mapping[str, str]) -> None:
        self.version = ""
        self._name = settings.name
        self._url = settings.url
        self._key = environment.get(settings.key_env, "").strip() if settings.key_env else ""
        if settings.key_env and not self._key:
            raise McpFault(f"{settings.name} needs {settings.key_env}; set it in the environment")
        self._session = ""
        self._numbers = count(1)
        self._client: aiohttp.ClientSession | None = None
        self._partings: set[asyncio.Task[None]] = set()
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the server has forgotten the session."""
        return self._ended

    async def request(self, method: str, params: Mapping[str, Any]) -> Document:
        """The result of a request."""
        number = next(self._numbers)
        try:
            async with self._posted(request(number, method, params)) as response:
                if method == "initialize":
                    self._session = response.headers.get(_SESSION, "")
                return result_of(await self._awaited(number, response), self._name, (self._key,))
        except asyncio.CancelledError:
            if self.version:
                parting = asyncio.create_task(self._tell_cancelled(number))
                self._partings.add(parting)
                parting.add_done_callback(self._partings.discard)
            raise

    async def notify(self, method: str) -> None:
        """Tell the server something."""
        await self._tell(notification(method))

    async def close(self) -> None:
        """End the session."""
        if self._partings:
            await asyncio.gather(*self._partings)
        client, self._client, self._ended = self._client, None, True
        if client is None:
            return
        if self._session:
            with suppress(OSError, _client_error()):
                async with asyncio.timeout(PARTING_SECONDS):
                    proxy = proxy_for(self._url)
                    headers = self._headers()
                    await client.delete(
                        self._url, headers=headers, proxy=proxy, allow_redirects=False
                    )
        await client.close()

    async def _tell(self, message: Document) -> None:
        async with self._posted(message):
            return

    async def _tell_cancelled(self, number: int) -> None:
        with suppress(McpFault, TimeoutError):
            async with asyncio.timeout(PARTING_SECONDS):
                await self._tell(notification(CANCELLED, {"requestId": number}))

    @asynccontextmanager
    async def _posted(self, message: Document) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response whose status is good; faults of the network become `McpFault`."""
        import aiohttp

        if self._client is None:
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), cookie_jar=aiohttp.DummyCookieJar()
            )
        try:
            async with self._client.post(
                self._url,
                data=write(message),
                headers=self._headers(),
                allow_redirects=False,  # a redirect would carry the key to another host
                proxy=proxy_for(self._url),
            ) as response:
                await self._check(response)
                with understood(self._name, (self._key,)):
                    yield response
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise McpFault(f"{self._name} cannot be reached: {self._tidy(str(error))}") from error

    def _headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Accept-Encoding": "identity",
            "User-Agent": "podium",
        }
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        if self._session:
            headers[_SESSION] = self._session
        if self.version:
            headers["MCP-Protocol-Version"] = self.version
        return headers

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if 200 <= response.status < 300:
            return
        if response.status == 404 and self._session:
            self._ended = True
            raise SessionGone(f"{self._name} has forgotten the session")
        if response.status in (401, 403):
            raise McpFault(
                f"{self._name} does not accept the key (status {response.status}); check key_env"
            )
        said = self._tidy((await response.content.read(1024)).decode(errors="replace"))
        raise McpFault(f"{self._name} answered with status {response.status}: {said}")

    async def _awaited(self, number: int, response: aiohttp.ClientResponse) -> Document:
        """The message that answers the request of that number."""
        is_stream = response.content_type == "text/event-stream"
        body = bytearray()
        received = 0
        reader = EventReader()
        async for piece in response.content.iter_any():
            received += len(piece)
            if received > LARGEST_MESSAGE:
                raise McpFault(f"{self._name} sent more than {LARGEST_MESSAGE // 1024**2} MiB")
            if not is_stream:
                body += piece
                continue
            for event in reader.feed(piece):
                message = parse(event.data)
                if number_of(message) == number:
                    return message
                if (said := answer_to(message)) is not None:
                    await self._tell(said)
        if is_stream:
            raise McpFault(f"{self._name} ended its stream without an answer")
        return parse(bytes(body))

    def _tidy(self, said: str) -> str:
        """What was said, in a line that never holds the key."""
        return one_line(said, (self._key,))


def _client_error() -> type[Exception]:
    import aiohttp

    return aiohttp.ClientError
