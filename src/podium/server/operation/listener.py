"""Taking an address to listen on, before anything else is done, and saying so once it answers."""

from __future__ import annotations

import errno
import socket

import uvicorn

from podium.config import ServerSettings
from podium.errors import ConfigError
from podium.server.logs import LOGGER


def bound(server: ServerSettings) -> socket.socket:
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


def address_of(bound: socket.socket) -> str:
    """What clients call, such as `http://127.0.0.1:7755`."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class AnnouncedServer(uvicorn.Server):
    """A server that says where it listens as soon as it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        for listening in sockets or ():
            announce(listening)


def announce(listening: socket.socket) -> None:
    """Say in the log where the server is found."""
    LOGGER.info("running on %s; Ctrl-C stops it", address_of(listening))


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
