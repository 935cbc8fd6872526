"""From settings to a listening server.

With several worker processes, each creates its application (`from_environment`) from options that
the parent passes in an environment variable.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from podium._util.addresses import is_loopback
from podium.client.client import AsyncPodium
from podium.config import ServerSettings, Settings, discover_settings
from podium.core.errors import ConfigError, PodiumError, needs_extra
from podium.server.access import AccessPolicy, KeyAuthenticator
from podium.server.access.keys import Sessions, new_secret
from podium.server.app import create_app
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import Dialect
from podium.server.dialects.responses import RESPONSES
from podium.server.endpoints.http import ResponseTransport
from podium.server.logs import LOGGER, configure_logging, default_log_format
from podium.server.records.audit import AuditRecorder
from podium.server.records.buffered_store import BufferedRunStore
from podium.server.records.maintenance import SEARCH_SECONDS, RunRecovery
from podium.server.records.metrics import METRICS_DIRECTORY
from podium.server.service import Service, open_service
from podium.store import HEARTBEATS_PER_LEASE, open_store

if TYPE_CHECKING:
    from podium.server.records.traces import TraceRecorder


DIALECTS: Final = MappingProxyType[str, Dialect](
    {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
)

LoadSettings = Callable[[], Awaitable[Settings]]
"""Finds the settings as a server starts."""

SERVE_OPTIONS: Final = "PODIUM_SERVE"
SESSION_VARIABLE: Final = "PODIUM_SESSION_SECRET"
"""The variable with the secret of browser sessions; set it for several servers at one address."""

BACKLOG: Final = 2048
"""Connections that wait to be accepted."""

MAX_CONNECTIONS: Final = 65_536
"""Open connections and files of a process, where the system allows it."""

GC_THRESHOLD: Final = 10_000
"""New objects before a garbage collection; with the default of 700 it takes a sixth of the CPU
time of a plain call."""

KEEP_ALIVE_SECONDS: Final = 75
"""How long an idle connection stays open: longer than clients keep theirs, so that they close it
and no request meets a closed connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `podium serve`: files, and overrides of the table `[server]`."""

    config: str | None = None
    pool: str | None = None
    server: dict[str, Any]

    async def settings(self) -> Settings:
        settings = await discover_settings(
            os.environ,
            config=Path(self.config) if self.config else None,
            pool=Path(self.pool) if self.pool else None,
            is_server=True,
        )
        return replace(settings, server=settings.server.model_copy(update=dict(self.server)))


def create_application(find: LoadSettings) -> FastAPI:
    """Create the application; `find` loads its settings at startup."""

    async def open_or_log(stack: AsyncExitStack) -> Service:
        try:
            return await _open(find, stack)
        except PodiumError as error:
            LOGGER.error("cannot start: %s", error)
            raise

    return create_app(open_or_log, DIALECTS)


async def _open(find: LoadSettings, stack: AsyncExitStack) -> Service:
    settings = await find()
    store = await open_store(
        settings.store.url or settings.store.path, lease_seconds=settings.store.lease_seconds
    )
    shared = settings.server.workers > 1 or bool(settings.store.url)
    buffered = BufferedRunStore(store, shared=shared, lease_seconds=settings.store.lease_seconds)
    stack.push_async_callback(buffered.close)
    access = AccessPolicy()
    if settings.server.require_keys:
        access = KeyAuthenticator(
            store.keys,
            settings.pool,
            shared=shared,
            lease_seconds=settings.store.lease_seconds,
            sessions=Sessions(os.environ.get(SESSION_VARIABLE, "")),
        )
    stack.push_async_callback(access.close)
    traces = _traces() if settings.server.traces else None
    if traces is not None:
        stack.push_async_callback(traces.close)
    podium = AsyncPodium(settings=settings, store=buffered)
    stack.push_async_callback(podium.close)
    audit = AuditRecorder(store.audit)
    service = await open_service(podium, buffered, access, settings.server, traces, settings, audit)
    stack.push_async_callback(service.loader.stop)
    assembly = (await podium.open()).assembly
    mini = assembly.load_router()
    if mini is not None:
        await mini.warm_up(settings.pool)
    conductor = assembly.conductor
    await audit.record_start(settings)  # last: everything else may prevent the start
    service.loader.begin((*assembly.workers, conductor.worker, conductor.local_model))
    if settings.server.recover:
        every = min(SEARCH_SECONDS, settings.store.lease_seconds / HEARTBEATS_PER_LEASE)
        recovery = RunRecovery(service, every_seconds=every)
        stack.push_async_callback(recovery.close)
        recovery.start()
    return service


def from_environment() -> FastAPI:
    chosen = ServeOptions(**json.loads(os.environ[SERVE_OPTIONS]))
    configure_logging(chosen.server["log"])
    _tune_garbage_collection()
    return create_application(chosen.settings)


def serve(chosen: ServeOptions, server: ServerSettings, bound: socket.socket) -> None:
    """Serve on the socket until stopped; running requests may end first."""
    form = server.log or default_log_format()
    configure_logging(form)
    _tune_garbage_collection()
    _allow_many_connections()
    if server.workers == 1:
        AnnouncedServer(_configuration(create_application(chosen.settings), server)).run([bound])
        return
    options = replace(chosen, server={**chosen.server, "log": form})
    os.environ[SERVE_OPTIONS] = json.dumps(asdict(options))
    os.environ.setdefault(SESSION_VARIABLE, new_secret())
    configuration = _configuration(
        "podium.server.startup:from_environment",
        server,
        factory=True,
        workers=server.workers,
    )
    with TemporaryDirectory(prefix="podium-") as directory:
        os.environ[METRICS_DIRECTORY] = directory
        log_address(bound)
        AnnouncedProcesses(configuration, [bound]).run()


def is_public(host: str) -> bool:
    """True if other machines can reach a server on this host."""
    return not is_loopback(f"http://{f'[{host}]' if ':' in host else host}")


def _traces() -> TraceRecorder:
    with needs_extra("otel", "server.traces"):
        from podium.server.records.traces import create_otlp_recorder
    return create_otlp_recorder()


def _configuration(app: Any, server: ServerSettings, **more: Any) -> uvicorn.Config:
    fast_loop = "uvloop" if find_spec("uvloop") is not None else "asyncio"
    return uvicorn.Config(
        app,
        host=server.host,
        port=server.port,
        loop=fast_loop,
        http=BoundedHttp,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(server.drain_seconds)),
        **more,
    )


def _tune_garbage_collection() -> None:
    """Exclude objects that exist before the first request from garbage collection."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def _allow_many_connections() -> None:
    """Raise the limit on open files, usually 1024: a request takes two connections."""
    try:
        import resource
    except ImportError:  # where there is no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, MAX_CONNECTIONS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes of a request's line and headers, and of its trailers."""

HEAD_SECONDS: Final = 60.0
"""The time limit for receiving them."""

TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"connection: close\r\n\r\n"
    b"the line and headers of this request are over 64 KiB; send less"
)


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol with limits on the size and time of request heads."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._has_progress = False
        self._unparsed_bytes = 0
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
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
        if self._unparsed_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(TOO_LARGE)
            self.transport.close()
        elif self._timeout is None:
            self._start_timeout()

    def _unsupported_upgrade_warning(self) -> None:
        """Do not log that websockets are not installed."""

    def on_headers_complete(self) -> None:
        self._has_progress = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._has_progress = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] != "HEAD":  # which has no body
            cycle.transport = ResponseTransport(self.transport, self.loop)  # type: ignore[assignment]
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
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
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
        await super().startup(sockets)
        for listening in sockets or ():
            log_address(listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        LOGGER.info(shutdown_message(len(self.server_state.tasks), self.config))
        await super().shutdown(sockets)
        LOGGER.info("stopped")


class _Process(Process):
    """One of several processes of a server."""

    @property
    def server(self) -> uvicorn.Server:
        if self._server is None:
            self._server = StoppableServer(self.config)
        return self._server


class AnnouncedProcesses(Multiprocess):
    """Several worker processes, whose stop is logged. A process that replaces a dead one is
    uvicorn's own, which a second Ctrl-C ends without answering its clients."""

    def init_processes(self) -> None:
        for _ in range(self.processes_num):
            process = _Process(self.config, self.sockets)
            process.start()
            self.processes.append(process)

    def terminate_all(self) -> None:
        LOGGER.info(shutdown_message(None, self.config))
        super().terminate_all()

    def join_all(self) -> None:
        super().join_all()
        LOGGER.info("stopped")


def log_address(listening: socket.socket) -> None:
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
