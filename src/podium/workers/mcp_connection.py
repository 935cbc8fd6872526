"""One session with an MCP server, spoken by the official `mcp` SDK (extra `mcp`).

The SDK starts programs, gives them no more of the environment than they need, and stops them. This
module keeps the session in a task of its own and turns every failure into `McpServerError`.
Requests of the server (sampling, roots, elicitation) are declined by the SDK.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import IO, Any, Final

import httpx2
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR, Implementation
from pydantic import ValidationError

from podium._util.addresses import proxy_for
from podium._version import __version__
from podium.workers.errors import redact_key
from podium.workers.fields import Document
from podium.workers.mcp import McpServerError, McpSessionExpired, McpSettings

LARGEST_MESSAGE: Final = 4 * 1024 * 1024
"""Bytes of one response of a server that is reached over HTTP."""

_LONGEST_MESSAGE_TEXT: Final = 500
_SESSION_ENDED: Final = 404

# Their errors quote what a server sent, secrets included; ours are redacted.
for _transport in ("stdio", "streamable_http"):
    logging.getLogger(f"mcp.client.{_transport}").setLevel(logging.CRITICAL + 1)


class McpConnection:
    """One session. A task of its own owns it: `anyio` scopes must end in the task they began in."""

    def __init__(self, settings: McpSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._name = settings.name
        self._key = environment.get(settings.key_env, "").strip() if settings.key_env else ""
        missing = [name for name in settings.env if name not in environment]
        if settings.key_env and not self._key:
            missing.append(settings.key_env)
        if missing:
            raise McpServerError(f"{self._name} needs {missing[0]}; set it in the environment")
        self._variables = {name: environment[name] for name in settings.env}
        self._secrets = [*self._variables.values(), self._key]
        self._failed_status = 0
        self._stderr: IO[str] | None = None
        self._incoming: Any = None
        self._expired = False
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dispatcher: JSONRPCDispatcher[Any] | None = None

    @property
    def is_closed(self) -> bool:
        """True if the program has exited or the server has dropped the session."""
        has_exited = self._stderr is not None and self._incoming.statistics().open_send_streams == 0
        return self._expired or has_exited

    async def open(self) -> None:
        """Start or reach the server and agree on a protocol version."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(opened))
        try:
            await opened
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def request(self, method: str, params: Document) -> Document:
        """Return the result of a request; cancelling the caller cancels the request."""
        assert self._dispatcher is not None, "open() comes first"
        self._failed_status = 0
        try:
            return await self._dispatcher.send_raw_request(method, params)
        except MCPError as error:
            raise self._classify(error) from error

    async def close(self) -> None:
        self._stopping.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, opened: asyncio.Future[None]) -> None:
        info = Implementation(name="podium", version=__version__)
        try:
            async with AsyncExitStack() as stack:
                self._incoming, outgoing = await self._connect(stack)
                dispatcher = JSONRPCDispatcher(self._incoming, outgoing)
                session = await stack.enter_async_context(
                    ClientSession(dispatcher=dispatcher, client_info=info)
                )
                problem = await self._initialize(session)
                if problem is None:
                    self._dispatcher = dispatcher
                    opened.set_result(None)
                    await self._stopping.wait()
                elif not opened.done():
                    opened.set_exception(problem)
        except McpServerError as error:
            if not opened.done():
                opened.set_exception(error)
        except Exception as error:  # noqa: BLE001 - the SDK raises groups of transport errors
            if not opened.done():
                reason = _shorten(str(_first_error(error)), self._secrets)
                opened.set_exception(McpServerError(f"{self._name} cannot be reached: {reason}"))
        finally:
            if not opened.done():
                opened.set_exception(McpServerError(f"{self._name} could not be opened"))

    async def _initialize(self, session: ClientSession) -> McpServerError | None:
        try:
            await session.initialize()
        except (MCPError, ValidationError, RuntimeError) as error:
            return self._classify(error)
        return None

    async def _connect(self, stack: AsyncExitStack) -> Any:
        settings = self._settings
        if not settings.command:
            client = await stack.enter_async_context(self._http_client())
            return await stack.enter_async_context(
                streamable_http_client(
                    settings.url, http_client=client, max_sse_event_size=LARGEST_MESSAGE
                )
            )
        stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - the stack closes it
        self._stderr = stack.enter_context(stderr)
        program = StdioServerParameters(
            command=settings.command,
            args=list(settings.args),
            env=self._variables,
            encoding_error_handler="replace",
        )
        try:
            return await stack.enter_async_context(stdio_client(program, self._stderr))
        except (OSError, ValueError) as error:
            reason = _shorten(str(error))
            raise McpServerError(
                f"{self._name} cannot be started: {reason}; check its command"
            ) from error

    def _http_client(self) -> httpx2.AsyncClient:
        headers = {"User-Agent": "podium", "Accept-Encoding": "identity"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return httpx2.AsyncClient(
            headers=headers,
            timeout=None,
            transport=_BoundedTransport(proxy=proxy_for(self._settings.url), trust_env=False),
            trust_env=False,
            event_hooks={"response": [self._note_status]},
        )

    async def _note_status(self, response: httpx2.Response) -> None:
        """Keep the status of a failed request, which the SDK's error does not say."""
        if response.status_code >= 400 and response.request.method == "POST":
            self._failed_status = response.status_code
            self._expired = (
                response.status_code == _SESSION_ENDED
                and "mcp-session-id" in response.request.headers
            )

    def _classify(self, error: Exception) -> McpServerError:
        """Turn an SDK error into ours, in one line without secrets."""
        if isinstance(error, ValidationError):
            problem = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, problem["loc"]))
            reason = _shorten(f"{where}: {problem['msg']}", self._secrets)
            return McpServerError(f"{self._name} sent an invalid message: {reason}")
        message = _shorten(str(error), self._secrets) or "no reason given"
        if self._expired:
            return McpSessionExpired(f"{self._name} has dropped the session")
        if self._failed_status in (401, 403):
            status = f"status {self._failed_status}"
            return McpServerError(f"{self._name} rejected the key ({status}); check key_env")
        if self._failed_status:
            status = f"status {self._failed_status}"
            return McpServerError(f"{self._name} answered with {status}: {message}")
        match getattr(error, "code", None):
            case None:
                return McpServerError(f"{self._name}: {message}")
            case code if code == CONNECTION_CLOSED and self._stderr is not None:
                return McpServerError(f"{self._name} has exited{self._last_words()}")
            case code if code == CONNECTION_CLOSED:
                return McpServerError(f"{self._name} closed the connection: {message}")
            case code if code in (PARSE_ERROR, INVALID_REQUEST):
                return McpServerError(f"{self._name} sent an invalid message: {message}")
        return McpServerError(f"{self._name} returned an error: {message}")

    def _last_words(self) -> str:
        """Return the last line that the program wrote to standard error."""
        assert self._stderr is not None, "only a program has a standard error"
        self._stderr.seek(0)
        lines = self._stderr.read().strip().splitlines()
        return f": {_shorten(lines[-1], self._secrets)}" if lines else ""


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """Breaks off responses that are longer than `LARGEST_MESSAGE`, or that are compressed."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("sent a compressed response, which was not accepted")
        response.stream = _BoundedStream(response.stream)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for piece in self._stream:
            received += len(piece)
            if received > LARGEST_MESSAGE:
                raise httpx2.StreamError(f"sent more than {LARGEST_MESSAGE // 1024**2} MiB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


def _first_error(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _shorten(message: str, secrets: Sequence[str] = ()) -> str:
    """Return a server's words in one line of bounded length, without the secrets it was given."""
    for secret in secrets:
        message = redact_key(message, secret)
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_MESSAGE_TEXT else f"{line[:_LONGEST_MESSAGE_TEXT]}…"
