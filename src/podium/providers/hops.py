"""How many Podium servers a request has come through. Every call that is made for it says so in a
header, by which a pool that names Podium itself is found out instead of asking on and on.

What is too many is for the server to say: `podium.server.access.hops`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

HEADER: Final = "X-Podium-Hop"

_NOT_SERVED: Final = MappingProxyType[str, str]({})

_header: ContextVar[Mapping[str, str]] = ContextVar("podium_hop", default=_NOT_SERVED)


@contextmanager
def come_through(servers: int) -> Iterator[None]:
    """Calls in this block, and in the tasks that it starts, are for a request that has come
    through so many servers."""
    before = _header.set({HEADER: str(servers)})
    try:
        yield
    finally:
        _header.reset(before)


def hop_header() -> Mapping[str, str]:
    """The header of a call that is made now; none outside of a server."""
    return _header.get()
