"""Bind the address, run uvicorn with limits on request heads, and log start and stop."""

from __future__ import annotations

import asyncio
import errno
import socket
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from podium.config import ServerSettings
from podium.core.errors import ConfigError
from podium.server.logs import LOGGER

LARGEST_HEAD: Final = 64 * 1024
"""Bytes of a request's line and headers, and of its trailers."""

HEAD_SECONDS: Final = 60.0
"""The time limit for receiving them."""

TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\n\r\n"
    b"the line and headers of this request are over 64 KiB; send less"
)


class _JoinedWrites:
    """A transport for one response: a head with a length is written with the body that follows."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
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
        elif b"\r\ncontent-length: " in data:
            self._head = data
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection after what was held."""
        if not self._is_begun:
            self._transport.write(self._head)
        self._transport.close()


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on the size and time of request heads."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._has_progress = False
        self._unparsed_bytes = 0
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout."""
        super().connection_made(transport)
        self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        super().connection_lost(exc)
        self._stop_timeout()

    def data_received(self, data: bytes) -> None:
        """Parse the data, and close the connection if the head is too large."""
        self._has_progress = False
        super().data_received(data)
        if self._has_progress:
            self._unparsed_bytes = 0
            self._stop_timeout()
            return
        self._unparsed_bytes += len(data)
        if self._unparsed_bytes > LARGEST_HEAD and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self._timeout is None:
            self._start_timeout()

    def _unsupported_upgrade_warning(self) -> None:
        """Do not log that websockets are not installed."""

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._has_progress = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._has_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._has_progress = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] != "HEAD":  # which has no body
            cycle.transport = _JoinedWrites(self.transport)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def _start_timeout(self) -> None:
        self._timeout = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


def bind_socket(server: ServerSettings) -> socket.socket:
    """Bind a socket to the server's address; raise `ConfigError` if that fails."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    taken = socket.socket(family)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((server.host, server.port))
        taken.set_inheritable(True)  # by the processes that answer
    except OSError as error:
        taken.close()
        raise ConfigError(_reason(error, server)) from error
    return taken


def format_address(bound: socket.socket) -> str:
    """Return the URL of a socket, such as `http://127.0.0.1:7755`."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class StoppableServer(uvicorn.Server):
    """A server that cancels running requests on the second stop signal, then closes cleanly."""

    _loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal to stop."""
        super().handle_exit(sig, frame)
        if self.force_exit and self._loop is not None:
            self._loop.call_soon_threadsafe(self._cut_off)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; running requests may end first, unless Ctrl-C is pressed again."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    def _cut_off(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()


class AnnouncedServer(StoppableServer):
    """A server that logs its address when it listens, and when it stops."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        for listening in sockets or ():
            log_address(listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, and say so."""
        LOGGER.info(shutdown_message(len(self.server_state.tasks), self.config))
        await super().shutdown(sockets)
        LOGGER.info("stopped")


class _Process(Process):
    """One of several processes of a server."""

    @property
    def server(self) -> uvicorn.Server:
        """The server of the process."""
        if self._server is None:
            self._server = StoppableServer(self.config)
        return self._server


class AnnouncedProcesses(Multiprocess):
    """Several worker processes, whose stop is logged. A process that replaces a dead one is
    uvicorn's own, which a second Ctrl-C ends without answering its clients."""

    def init_processes(self) -> None:
        """Start every process."""
        for _ in range(self.processes_num):
            process = _Process(self.config, self.sockets)
            process.start()
            self.processes.append(process)

    def terminate_all(self) -> None:
        """Tell every process to stop."""
        LOGGER.info(shutdown_message(None, self.config))
        super().terminate_all()

    def join_all(self) -> None:
        """Wait until they have."""
        super().join_all()
        LOGGER.info("stopped")


def log_address(listening: socket.socket) -> None:
    """Log the server's address."""
    LOGGER.info("running on %s, open it in a browser; Ctrl-C stops it", format_address(listening))


def shutdown_message(requests: int | None, configuration: uvicorn.Config) -> str:
    """Return the log line for a shutdown; `requests` is None if unknown."""
    if requests == 0:
        return "stopping"
    count = {None: "requests", 1: "1 request"}.get(requests, f"{requests} requests")
    seconds = configuration.timeout_graceful_shutdown
    return f"stopping: {count} may end within {seconds} s; Ctrl-C again stops now"


def _reason(error: OSError, server: ServerSettings) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {server.port} of {server.host} is taken, perhaps by another podium serve; "
                f"stop what listens there, or choose another port with --port N"
            )
        case errno.EACCES:
            return (
                f"port {server.port} is not for ordinary users; choose one from 1024 on with "
                f"--port N"
            )
        case errno.EADDRNOTAVAIL | socket.EAI_NONAME | socket.EAI_NODATA:
            return (
                f"this machine has no address {server.host!r}; name one that it has with --host, "
                f"or 0.0.0.0 for all of them"
            )
    return f"cannot listen on {server.host} port {server.port}: {error.strerror}; choose another"
