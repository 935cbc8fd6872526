"""One session with an MCP server, spoken by the official `mcp` SDK (extra `mcp`).

The SDK speaks the protocol. This module bounds what a server may send, gives a program no more of
the environment than it needs, and turns every failure into `McpServerError`. Requests of the
server (sampling, roots, elicitation) are declined by the SDK: Podium offers none of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    ErrorData,
    Implementation,
    JSONRPCError,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from podium._util.addresses import proxy_for
from podium._version import __version__
from podium.workers.errors import redact_key
from podium.workers.fields import Document
from podium.workers.mcp import McpServerError, McpSessionExpired, McpSettings

LARGEST_MESSAGE: Final = 4 * 1024 * 1024
"""Bytes of one message of a server."""

INHERITED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "TERM",
    "TMPDIR",
    "TZ",
    "SYSTEMROOT",
    "TEMP",
    "APPDATA",
    "LOCALAPPDATA",
    "USERPROFILE",
)
"""Environment variables that every program gets: it cannot run without them."""

STOP_SECONDS: Final = 2.0
"""Seconds for a program to exit after its input ends, and again after SIGTERM."""

DELETE_SECONDS: Final = 2.0
"""Seconds for a server to confirm the end of a session."""

MAX_STRAY_LINES: Final = 1000
"""Lines of a program that are not messages: many print a greeting."""

_POLL_SECONDS: Final = 0.02
_STDERR_BYTES: Final = 4096
_LONGEST_MESSAGE_TEXT: Final = 500
_TOO_LARGE: Final = f"sent more than {LARGEST_MESSAGE // 1024**2} MiB"

# JSON-RPC codes of our own, for what a server's HTTP responses mean.
_HTTP_FAILURE: Final = 17_001
_SESSION_EXPIRED: Final = 17_002

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]

# Its errors quote what a server sent, secrets included; ours are redacted.
logging.getLogger("mcp.client.streamable_http").setLevel(logging.CRITICAL + 1)


class McpConnection:
    """One session. A task of its own owns it: `anyio` scopes must end in the task they began in."""

    def __init__(self, settings: McpSettings, environment: Mapping[str, str]) -> None:
        self._name = settings.name
        self._url = settings.url
        self._key = environment.get(settings.key_env, "").strip() if settings.key_env else ""
        missing = [name for name in settings.env if name not in environment]
        if settings.key_env and not self._key:
            missing.append(settings.key_env)
        if missing:
            raise McpServerError(f"{self._name} needs {missing[0]}; set it in the environment")
        self._secrets = [*(environment[name] for name in settings.env), self._key]
        self._program = _Program(settings, environment) if settings.command else None
        self._expired = False
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dispatcher: JSONRPCDispatcher[Any] | None = None

    @property
    def is_closed(self) -> bool:
        """True if the program has exited or the server has dropped the session."""
        return self._expired or (self._program is not None and self._program.problem is not None)

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
            async with self._transport() as (incoming, outgoing):
                dispatcher = JSONRPCDispatcher(incoming, outgoing)
                async with ClientSession(dispatcher=dispatcher, client_info=info) as session:
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
        finally:
            if not opened.done():
                opened.set_exception(McpServerError(f"{self._name} could not be opened"))

    async def _initialize(self, session: ClientSession) -> McpServerError | None:
        try:
            await session.initialize()
        except (MCPError, ValidationError, RuntimeError) as error:
            return self._classify(error)
        return None

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        return self._program.streams() if self._program is not None else self._http_streams()

    @asynccontextmanager
    async def _http_streams(self) -> AsyncIterator[Any]:
        headers = {"Accept-Encoding": "identity", "User-Agent": "podium"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        network = httpx2.AsyncHTTPTransport(proxy=proxy_for(self._url), trust_env=False)
        async with (
            httpx2.AsyncClient(
                transport=_BoundedTransport(network), headers=headers, timeout=None, trust_env=False
            ) as client,
            streamable_http_client(
                self._url, http_client=client, max_sse_event_size=LARGEST_MESSAGE
            ) as streams,
        ):
            yield streams

    def _classify(self, error: Exception) -> McpServerError:
        """Turn an SDK error into ours, in one line without secrets."""
        if isinstance(error, ValidationError):
            reason = _shorten(_first_problem(error), self._secrets)
            return McpServerError(f"{self._name} sent an invalid message: {reason}")
        message = _shorten(str(error), self._secrets) or "no reason given"
        match getattr(error, "code", None):
            case None:
                return McpServerError(f"{self._name}: {message}")
            case code if code == CONNECTION_CLOSED:
                problem = self._program.problem if self._program is not None else None
                return McpServerError(problem or f"{self._name} closed the connection: {message}")
            case code if code == PARSE_ERROR:
                return McpServerError(f"{self._name} sent an invalid message: {message}")
            case code if code == _HTTP_FAILURE:
                return McpServerError(f"{self._name} {message}")
            case code if code == _SESSION_EXPIRED:
                self._expired = True
                return McpSessionExpired(f"{self._name} {message}")
        return McpServerError(f"{self._name} returned an error: {message}")


class _Program:
    """A server that is a program: a transport over its standard input and output.

    The SDK's own transport reads lines without a limit and inherits standard error.
    """

    def __init__(self, settings: McpSettings, environment: Mapping[str, str]) -> None:
        self.problem: str | None = None
        self._settings = settings
        names = [*(name for name in INHERITED if name in environment), *settings.env]
        self._environment = {name: environment[name] for name in names}
        self._secrets = [environment[name] for name in settings.env]
        self._stderr = b""
        self._stray_lines = 0
        self._read_to_the_end = asyncio.Event()

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Streams]:
        """Start the program and yield its messages and the way to it; then stop it."""
        process = await self._start()
        assert process.stdin is not None, "started with pipes"
        assert process.stdout is not None, "started with pipes"
        assert process.stderr is not None, "started with pipes"
        incoming, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        sent, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        stderr = asyncio.create_task(self._read_stderr(process.stderr))
        reader = asyncio.create_task(self._read(process, stderr, incoming))
        writer = asyncio.create_task(self._write(process.stdin, outgoing, incoming))
        try:
            yield received, sent
        finally:
            received.close()
            sent.close()
            await self._stop(process)
            for task in (stderr, reader, writer):
                task.cancel()
            await asyncio.gather(stderr, reader, writer, return_exceptions=True)
            for stream in (incoming, outgoing):
                stream.close()

    async def _start(self) -> asyncio.subprocess.Process:
        """Start the program in a process group of its own, so that it can be stopped whole."""
        try:
            return await asyncio.create_subprocess_exec(
                self._settings.command,
                *self._settings.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                limit=LARGEST_MESSAGE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = _shorten(str(error))
            raise McpServerError(
                f"{self._settings.name} cannot be started: {reason}; check its command"
            ) from error

    async def _read(
        self,
        process: asyncio.subprocess.Process,
        stderr: asyncio.Task[None],
        incoming: Incoming,
    ) -> None:
        assert process.stdout is not None, "started with pipes"
        name = self._settings.name
        problem = f"{name} is stopped"
        try:
            while line := await process.stdout.readline():
                if (message := self._parse(line)) is not None:
                    await incoming.send(message)
                await asyncio.sleep(0)  # a program that floods must not hold up others
            await asyncio.wait({stderr}, timeout=STOP_SECONDS)
            await _wait_for_exit(process)
            problem = f"{name} has exited{self._exit_reason(process)}"
        except ValueError:
            problem = f"{name} {_TOO_LARGE}"
        except McpServerError as error:
            problem = str(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session has ended
        finally:
            self.problem = self.problem or problem
            self._read_to_the_end.set()
            incoming.close()

    async def _write(
        self,
        stdin: asyncio.StreamWriter,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        incoming: Incoming,
    ) -> None:
        try:
            async for message in outgoing:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(line.encode() + b"\n")
                await stdin.drain()
        except (OSError, RuntimeError):
            try:  # a program that has exited has a better reason in a moment
                await asyncio.wait_for(self._read_to_the_end.wait(), STOP_SECONDS)
            except TimeoutError:
                self.problem = self.problem or f"{self._settings.name} closed its input"
            incoming.close()

    def _parse(self, line: bytes) -> SessionMessage | None:
        """Return a message; an invalid answer becomes the error of its request."""
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValidationError as error:
            number = _request_id(line)
            if number is not None:
                problem = ErrorData(code=PARSE_ERROR, message=_first_problem(error))
                return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=problem))
        self._stray_lines += 1
        if self._stray_lines > MAX_STRAY_LINES:
            raise McpServerError(f"{self._settings.name} writes lines that are not messages")
        return None

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while piece := await stderr.read(_STDERR_BYTES):
            self._stderr = (self._stderr + piece)[-_STDERR_BYTES:]

    def _exit_reason(self, process: asyncio.subprocess.Process) -> str:
        code = f" with exit code {process.returncode}" if process.returncode else ""
        lines = self._stderr.decode(errors="replace").strip().splitlines()
        return f"{code}: {_shorten(lines[-1], self._secrets)}" if lines else code

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        """End the program's input, then send SIGTERM, then SIGKILL, to all it has started."""
        assert process.stdin is not None, "started with pipes"
        process.stdin.close()
        if not await _wait_for_exit(process):
            _send_signal(process, signal.SIGTERM)
            await _wait_for_exit(process)
        if sys.platform != "win32":
            _send_signal(process, signal.SIGKILL)
        await _wait_for_exit(process)


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Bounds responses, and answers a failed HTTP request with a JSON-RPC error.

    Redirects are failures: following one could carry the key to another host. The stream of
    messages that no request asked for (GET) is not opened.
    """

    def __init__(self, network: httpx2.AsyncHTTPTransport) -> None:
        self._network = network

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return a response that the SDK can take as it is."""
        if request.method == "GET":
            return httpx2.Response(405)
        try:
            async with asyncio.timeout(DELETE_SECONDS if request.method == "DELETE" else None):
                response = await self._network.handle_async_request(request)
                return await self._checked(request, response)
        except (httpx2.HTTPError, OSError) as error:
            return _failure(request, f"cannot be reached: {error or type(error).__name__}")

    async def aclose(self) -> None:
        await self._network.aclose()

    async def _checked(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        status = response.status_code
        if status == 202 or (request.method == "DELETE" and status < 300):
            return response
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_encoded = response.headers.get("content-encoding", "identity") != "identity"
        if 200 <= status < 300 and kind == "text/event-stream" and not is_encoded:
            stream = _BoundedStream(response)
            return httpx2.Response(status, headers=response.headers, stream=stream)
        try:
            if not 200 <= status < 300:
                return await self._refusal(request, response)
            if is_encoded:
                return _failure(request, "sent a compressed response, which was not accepted")
            if kind != "application/json":
                return _failure(request, f"sent an invalid message: content type {kind!r}")
            body = b"".join([piece async for piece in _BoundedStream(response)])
            return httpx2.Response(status, headers=_without_length(response), content=body)
        except httpx2.SSEError as error:
            return _failure(request, str(error))
        finally:
            await response.aclose()

    async def _refusal(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        status = response.status_code
        if status == 404 and "mcp-session-id" in request.headers:
            return _failure(request, "has dropped the session", _SESSION_EXPIRED)
        if status in (401, 403):
            return _failure(request, f"rejected the key (status {status}); check key_env")
        body = b""
        async for piece in _BoundedStream(response):
            body += piece
            if len(body) >= 1024:
                break
        said = body[:1024].decode(errors="replace")
        return _failure(request, f"answered with status {status}: {said}")


class _BoundedStream(httpx2.AsyncByteStream):
    """A response's bytes, up to `LARGEST_MESSAGE`."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for piece in self._response.aiter_raw():
            received += len(piece)
            if received > LARGEST_MESSAGE:
                raise httpx2.SSEError(_TOO_LARGE)
            yield piece

    async def aclose(self) -> None:
        await self._response.aclose()


def _without_length(response: httpx2.Response) -> dict[str, str]:
    return {k: v for k, v in response.headers.items() if k in ("content-type", "mcp-session-id")}


def _failure(request: httpx2.Request, message: str, code: int = _HTTP_FAILURE) -> httpx2.Response:
    number = _request_id(request.content, is_answer=False)
    if number is None:
        return httpx2.Response(202)
    error = {"code": code, "message": message}
    return httpx2.Response(200, json={"jsonrpc": "2.0", "id": number, "error": error})


def _request_id(document: bytes, *, is_answer: bool = True) -> int | None:
    try:
        message = json.loads(document)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or ("method" in message) == is_answer:
        return None
    number = message.get("id")
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _shorten(message: str, secrets: Sequence[str] = ()) -> str:
    """Return a server's words in one line of bounded length, without the secrets it was given."""
    for secret in secrets:
        message = redact_key(message, secret)
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST_MESSAGE_TEXT else f"{line[:_LONGEST_MESSAGE_TEXT]}…"


async def _wait_for_exit(process: asyncio.subprocess.Process) -> bool:
    """Return True if the program exits within `STOP_SECONDS`.

    Polls: `wait()` also waits for pipes, which the program's children may hold open.
    """
    deadline = asyncio.get_running_loop().time() + STOP_SECONDS
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True


def _send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, number)
    except ProcessLookupError:
        return
