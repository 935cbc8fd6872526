"""From settings to a listening server.

With several worker processes, each creates its application (`from_environment`) from options that
the parent passes in an environment variable.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from fastapi import FastAPI

from podium._util.addresses import is_loopback
from podium.client.client import AsyncPodium
from podium.config import ServerSettings, Settings, discover_settings
from podium.core.errors import ConfigError, PodiumError, install_command
from podium.server.access import AccessPolicy, KeyAuthenticator
from podium.server.access.tokens import Sessions, new_secret
from podium.server.app import create_app
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import Dialect
from podium.server.dialects.responses import RESPONSES
from podium.server.logs import LOGGER, configure_logging, default_log_format
from podium.server.operation.listener import (
    AnnouncedProcesses,
    AnnouncedServer,
    BoundedHttp,
    log_address,
)
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

Find = Callable[[], Awaitable[Settings]]
"""Finds the settings as a server starts."""

SERVE_OPTIONS: Final = "PODIUM_SERVE"
"""The variable with the options for worker processes."""

SESSIONS: Final = "PODIUM_SESSION_SECRET"
"""The variable with the secret of browser sessions; set it for several servers at one address."""

BACKLOG: Final = 2048
"""Connections that wait to be accepted."""

MAX_CONNECTIONS: Final = 65_536
"""Open connections and files of a process, where the system allows it."""

YOUNG_OBJECTS: Final = 10_000
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
        """Load the settings with these options."""
        settings = await discover_settings(
            os.environ,
            config=Path(self.config) if self.config else None,
            pool=Path(self.pool) if self.pool else None,
            is_server=True,
        )
        return replace(settings, server=settings.server.model_copy(update=dict(self.server)))


def create_application(find: Find) -> FastAPI:
    """Create the application; `find` loads its settings at startup."""

    async def opening(stack: AsyncExitStack) -> Service:
        try:
            return await _open(find, stack)
        except PodiumError as error:
            LOGGER.error("cannot start: %s", error)
            raise

    return create_app(opening, DIALECTS)


async def _open(find: Find, stack: AsyncExitStack) -> Service:
    """Open the service and everything it needs."""
    settings = await find()
    store = await open_store(
        settings.store.url or settings.store.path, lease_seconds=settings.store.lease_seconds
    )
    shared = settings.server.workers > 1 or bool(settings.store.url)
    buffered = BufferedRunStore(store, shared=shared, lease_seconds=settings.store.lease_seconds)
    stack.push_async_callback(buffered.close)
    access = AccessPolicy()
    if settings.server.keys:
        access = KeyAuthenticator(
            store.keys,
            settings.pool,
            shared=shared,
            lease_seconds=settings.store.lease_seconds,
            sessions=Sessions(os.environ.get(SESSIONS, "")),
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
    mini = assembly.router()
    if mini is not None:
        await mini.warm_up(settings.pool)
    conductor = assembly.conductor
    await audit.record_start(settings)  # last: everything else may prevent the start
    service.loader.begin((*assembly.workers, conductor.worker, conductor.reader))
    if settings.server.recover:
        every = min(SEARCH_SECONDS, settings.store.lease_seconds / HEARTBEATS_PER_LEASE)
        recovery = RunRecovery(service, every_seconds=every)
        stack.push_async_callback(recovery.close)
        recovery.start()
    return service


def from_environment() -> FastAPI:
    """Create the application of a worker process."""
    chosen = ServeOptions(**json.loads(os.environ[SERVE_OPTIONS]))
    configure_logging(chosen.server["log"])
    _tune_garbage_collection()
    return create_application(chosen.settings)


def serve(chosen: ServeOptions, server: ServerSettings, bound: socket) -> None:
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
    os.environ.setdefault(SESSIONS, new_secret())
    configuration = _configuration(
        "podium.server.operation.startup:from_environment",
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
    try:
        from podium.server.records.traces import create_otlp_recorder
    except ImportError as error:
        raise ConfigError(
            f"server.traces needs the extra otel; install it: {install_command('otel')}"
        ) from error
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
    gc.set_threshold(YOUNG_OBJECTS)


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
