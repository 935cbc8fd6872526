"""Checks on a request before it is served.

`count_hop` and `refuse_own_address` keep Podium from calling itself: one refuses a request
that came through too many Podium servers, the other a worker whose address is this server's.

`check_image_urls` refuses images at private addresses. Workers fetch them: a local model would do
so from inside the network. Host names are resolved here as far as possible; the program that
fetches an image must check a name that resolves differently later. Podium itself fetches no image.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Token
from functools import cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import urlsplit

from podium._util.addresses import redact_url
from podium.config import ServerSettings, Settings
from podium.core.errors import ConfigError
from podium.core.request import Image, Message, ToolResult
from podium.server.api_error import ApiError, invalid
from podium.server.logs import LOGGER
from podium.workers.http import HOP, HOP_HEADER

RESERVED_SUFFIXES: Final = (".localhost", ".local", ".internal", ".test", ".home.arpa")
"""Suffixes that cannot be registered, and so cannot be pointed elsewhere."""

PRIVATE_SUFFIXES: Final = (*RESERVED_SUFFIXES, ".lan", ".home", ".corp", ".intranet", ".private")
"""Suffixes that are used within one network only."""

MAX_HOPS: Final = 2
"""Podium servers that a request may have come through: a team's, behind a company's."""

RESOLVE_SECONDS: Final = 3.0
"""The timeout of resolving a host, whose DNS server the client may control."""

MAX_HOSTS: Final = 20
"""Hosts of images that one request may name."""

RESOLVER_THREADS: Final = 8
"""Threads that resolve hosts, apart from others: one that gets no answer stays blocked."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_IPV4_COMPATIBLE: Final = IPv6Network("::/96")

_IDEOGRAPHIC_STOP: Final = "\u3002"
"""Separates labels as "." does; NFKC maps the other two such characters to either."""

_INVISIBLE_LETTERS: Final = frozenset("\u115f\u1160")
"""Fillers, which some URL parsers drop."""

_NEVER_IN_HOST: Final = frozenset("\\%^<>{}|`\"' ")
"""Characters on which URL parsers disagree."""


def count_hop(headers: Mapping[str, str]) -> Token[Mapping[str, str]]:
    """Count this server in the calls of a request, until the token is reset; raises `ApiError`
    after too many."""
    value = headers.get(HOP_HEADER.lower(), "0")
    if not (value.isascii() and value.isdigit() and len(value) < 5):
        raise invalid(HOP_HEADER, f"{HOP_HEADER}: expected a whole number, got {value[:40]!r}")
    if int(value) > MAX_HOPS:
        problem = (
            f"this request came through {value} Podium servers, more than {MAX_HOPS}: a pool seems "
            f"to name Podium itself as a worker; check the base_url of its workers"
        )
        LOGGER.warning("refused: %s", problem)  # the operator must act
        raise ApiError("invalid", problem)
    return HOP.set({HOP_HEADER: str(int(value) + 1)})


def refuse_own_address(settings: Settings, environment: Mapping[str, str]) -> None:
    """Raise `ConfigError` if a worker's address is the one that this server listens on."""
    planner = settings.conductor.worker
    workers = (*settings.workers, *((planner,) if planner is not None else ()))
    for worker in (target for configured in workers for target in configured.targets):
        address = worker.endpoint(environment).base_url
        if address and _is_own_address(address, settings.server):
            raise ConfigError(
                f"{settings.source}: worker {worker.profile.name!r} is at {redact_url(address)}, "
                f"which "
                f"is this server; give the worker another base_url, or serve with another --port"
            )


def _is_own_address(address: str, server: ServerSettings) -> bool:
    parts = urlsplit(address)
    if server.port == 0 or (parts.port or _DEFAULT_PORTS.get(parts.scheme)) != server.port:
        return False
    called, listening = set(resolve(parts.hostname or "")), set(resolve(server.host))
    if any(ipaddress.ip_address(number).is_unspecified for number in listening):
        listening = {*resolve(socket.gethostname()), "127.0.0.1", "::1"}
    return bool(called & listening)


def resolve(host: str) -> list[str]:
    """Return the IP addresses of a host; empty if it is unknown."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return []
    return [str(item[4][0]).partition("%")[0] for item in found]


async def check_image_urls(messages: Iterable[Message], *, private: bool) -> None:
    """Refuse images at addresses that are not public, unless `private` ones are allowed."""
    if private:
        return
    urls = {image.url for image in _images(messages) if image.url}
    if not urls:
        return
    hosts: dict[str, str] = {}
    for url in urls:
        if not is_public(url):
            raise _not_public(url)
        host = urlsplit(url).hostname or ""
        if _parse_address(host) is None:
            hosts[host] = url
    if len(hosts) > MAX_HOSTS:
        raise invalid(
            "messages",
            f"images at {len(hosts)} hosts, more than {MAX_HOSTS}; send some of them as "
            f"data:image/png;base64,…",
        )
    for host, found in zip(hosts, await asyncio.gather(*map(_resolve_image, hosts)), strict=True):
        if not all(_is_global(address) for address in found):
            raise _not_public(hosts[host])


async def _resolve_image(host: str) -> list[IPv4Address | IPv6Address]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await loop.run_in_executor(_resolvers(), resolve, host)
    except TimeoutError:
        raise invalid(
            "messages",
            f"timeout: the image host {host[:100]!r} could not be resolved within "
            f"{RESOLVE_SECONDS:g} s; send the image as data:image/png;base64,…",
        ) from None
    parsed = [_parse_address(text) for text in found]
    return [address for address in parsed if address is not None]


@cache
def _resolvers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="podium-resolver")


def _not_public(url: str) -> ApiError:
    return invalid(
        "messages",
        f"the image URL {url[:100]!r} is not public; send the image as data:image/png;base64,…, "
        f"or set server.allow_private_image_urls",
    )


def is_public(url: str) -> bool:
    """True if an http(s) URL can be that of a host on the internet."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    host = _fold(host).rstrip(".")
    if not host or _NEVER_IN_HOST & set(url.partition("://")[2].partition("/")[0]):
        return False
    address = _parse_address(host)
    if address is not None:
        return _is_global(address)
    return "." in host and not host.endswith(PRIVATE_SUFFIXES)


def _fold(host: str) -> str:
    """Normalise the host as a resolver may read it: lower case, NFKC, without invisible letters."""
    folded = unicodedata.normalize("NFKC", host).lower().replace(_IDEOGRAPHIC_STOP, ".")
    return "".join(
        letter
        for letter in folded
        if unicodedata.category(letter) not in ("Cf", "Mn") and letter not in _INVISIBLE_LETTERS
    )


def _images(messages: Iterable[Message]) -> Iterator[Image]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, Image):
                yield part
            elif isinstance(part, ToolResult):
                yield from part.images


def _parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address in any notation: 127.1 and 0x7f000001 are 127.0.0.1."""
    try:
        return IPv6Address(host.partition("%")[0])
    except AddressValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        if address in _LOCAL_NAT64:
            return False
        embedded = address.ipv4_mapped or address.sixtofour
        if address in _NAT64 or address in _IPV4_COMPATIBLE:
            embedded = IPv4Address(int(address) & 0xFFFFFFFF)
        if embedded is not None:
            return _is_global(embedded)
    return address.is_global and not address.is_multicast
