"""Podium must not call itself: a pool may name another Podium as a worker, but one that names this
server would have every question asked again by each of its answers.

What is plain from the configuration is refused when the server starts (`refuse_own_address`). A way
back over other servers shows only in the requests, which say how many they have come through
(`hop`).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final
from urllib.parse import urlsplit

from podium._util.addresses import shown
from podium.config import ServerSettings, Settings
from podium.core.errors import ConfigError
from podium.server.access.sessions import Headers
from podium.server.api_error import ApiError, invalid
from podium.server.logs import LOGGER
from podium.workers.http import HEADER, come_through

MOST_HOPS: Final = 2
"""Servers that a request may have come through before this one: a team's, behind a company's."""

_PORTS: Final = {"http": 80, "https": 443}


def hop(headers: Headers) -> AbstractContextManager[None]:
    """A block for the calls of one request; raises `ApiError` where it has come too far."""
    said = headers.get(HEADER.lower())
    if said is None:
        return come_through(1)
    if not (said.isascii() and said.isdigit() and len(said) < 5):
        raise invalid(HEADER, f"{HEADER}: expected a whole number, got {said[:40]!r}; leave it out")
    if int(said) > MOST_HOPS:
        problem = (
            f"this request has come through {said} Podium servers, and {MOST_HOPS} are the most: "
            f"a pool seems to name Podium itself as a worker; check the base_url of its workers"
        )
        LOGGER.warning("refused: %s", problem)  # whoever runs the server has to act
        raise ApiError("invalid", problem)
    return come_through(int(said) + 1)


def refuse_own_address(settings: Settings, environment: Mapping[str, str]) -> None:
    """Raise `ConfigError` where a worker's address is the one that this server listens on."""
    planner = settings.conductor.worker
    for worker in (*settings.workers, *((planner,) if planner is not None else ())):
        address = worker.endpoint(environment).base_url
        if address and _is_own(address, settings.server):
            raise ConfigError(
                f"{settings.source}: worker {worker.profile.name!r} is at {shown(address)}, which "
                f"is this very server, so it would ask itself; give the worker another base_url, "
                f"or serve with another --port"
            )


def _is_own(address: str, server: ServerSettings) -> bool:
    """Whether who calls that address reaches the server. A port that is yet to be chosen is
    nobody's address."""
    parts = urlsplit(address)
    if server.port == 0 or (parts.port or _PORTS.get(parts.scheme)) != server.port:
        return False
    called, listening = _numbers(parts.hostname or ""), _numbers(server.host)
    if any(ipaddress.ip_address(number).is_unspecified for number in listening):
        listening = _numbers(socket.gethostname()) | {"127.0.0.1", "::1"}
    return bool(called & listening)


def _numbers(host: str) -> set[str]:
    """The numbers that a host's name stands for; none where nobody knows it."""
    try:
        return {str(found[4][0]).partition("%")[0] for found in socket.getaddrinfo(host, None)}
    except OSError:
        return set()
