"""Taking an address to listen on, before anything else is done; saying so once it answers, and
that it stops, with how long what goes on may take to end."""

from __future__ import annotations

import asyncio
import errno
import socket
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from podium.config import ServerSettings
from podium.core.errors import ConfigError
from podium.server.logs import LOGGER

LARGEST_HEAD: Final = 64 * 1024
"""Bytes of a request's line and headers, and again of its trailers."""

HEAD_SECONDS: Final = 60.0
"""How long they may take to arrive, from when the connection is open or the first of them came."""

TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\n\r\n"
    b"the line and headers of this request are over 64 KiB; send less"
)


class BoundedHttp(HttpToolsProtocol):
    """The web server's protocol, which hangs up on heads without end."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._got_somewhere = False
        self._for_nothing = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there, and has yet to say anything."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().connection_lost(exc)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        """Take what came, and see whether it got anywhere."""
        self._got_somewhere = False
        super().data_received(data)
        if self._got_somewhere:
            self._for_nothing = 0
            self._stop_waiting()
            return
        self._for_nothing += len(data)
        if self._for_nothing > LARGEST_HEAD and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self._patience is None:
            self._wait()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: whoever asks for a websocket is answered that there is none, and the log need
        not tell the operator to install any."""

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._got_somewhere = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._got_somewhere = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._got_somewhere = True
        super().on_message_complete()

    def _wait(self) -> None:
        self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def bind_socket(server: ServerSettings) -> socket.socket:
    """A socket that has the server's address; raises `ConfigError` where it cannot be had."""
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


def format_address(bind_socket: socket.socket) -> str:
    """What clients call, such as `http://127.0.0.1:7755`."""
    host, port = bind_socket.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class StoppableServer(uvicorn.Server):
    """A server that, told to stop a second time, cuts off what goes on, and then closes what is
    open as it would have."""

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
        """Stop: what goes on may end first, unless there is a second Ctrl-C."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    def _cut_off(self) -> None:
        for task in self.server_state.tasks:
            task.cancel()


class AnnouncedServer(StoppableServer):
    """A server that says where it listens as soon as it does, and when it stops."""

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
        """What answers in it."""
        if self._server is None:
            self._server = StoppableServer(self.config)
        return self._server


class AnnouncedProcesses(Multiprocess):
    """Several processes of a server; says when they stop. One that takes the place of another that
    died is the web server's own kind, which a second Ctrl-C ends without a word to its clients."""

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
    """Say in the log where the server is found."""
    LOGGER.info(
        "running on %s, where a browser finds its pages; Ctrl-C stops it", format_address(listening)
    )


def shutdown_message(requests: int | None, configuration: uvicorn.Config) -> str:
    """The line on what is still to end; None where that is not known here."""
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
