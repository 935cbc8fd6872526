"""Podium must not call itself: a pool may name another Podium as a worker, but one that names this
server would have every question asked again by each of its answers.

What is plain from the configuration is refused when the server starts (`refuse_own_address`). A way
back over other servers shows only in the requests, which say how many they have come through
(`enter_hop`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import urlsplit

from podium._util.addresses import shown
from podium.config import ServerSettings, Settings
from podium.core.errors import ConfigError
from podium.core.request import Image, Message, ToolResult
from podium.server.access.sessions import NEVER_PUBLIC, Headers
from podium.server.api_error import ApiError, invalid
from podium.server.logs import LOGGER
from podium.workers.http import HEADER, count_hops

PRIVATE_ENDINGS: Final = (*NEVER_PUBLIC, ".lan", ".home", ".corp", ".intranet", ".private")
"""Endings of names that mean something only within one network."""

_TRANSLATED: Final = IPv6Network("64:ff9b::/96")
"""Addresses of version 4 within version 6, as translators write them."""

_TRANSLATED_HERE: Final = IPv6Network("64:ff9b:1::/48")
"""Such addresses where each network decides for itself what they lead to."""

_COMPATIBLE: Final = IPv6Network("::/96")
"""Addresses of version 4 within version 6, as they were once written."""

_FULL_STOP: Final = "\u3002"
"""Stands between the parts of a name as "." does; the other two that do are folded into either."""

_FILLERS: Final = frozenset("\u115f\u1160")
"""Letters that cannot be seen, and that some readers of names leave out."""

_NEVER_IN_A_HOST: Final = frozenset("\\%^<>{}|`\"' ")
"""What some readers of addresses take for an end of the host, or for another character."""


LOOK_UP_SECONDS: Final = 3.0
"""How long a name may take to be looked up; the client may have chosen who answers for it."""

MOST_HOSTS: Final = 20
"""How many names one request may have looked up."""

LOOKERS: Final = 8
"""How many names are looked up at once. They have threads of their own: a name that nobody answers
for keeps its thread, and calls to workers need theirs."""


async def check_image_urls(messages: Iterable[Message], *, private: bool) -> None:
    """Refuse pictures at addresses that are not public, unless `private` ones are allowed."""
    if private:
        return
    addresses = {image.url for image in _pictures(messages) if image.url}
    if not addresses:
        return
    for url in addresses:
        if not is_public(url):
            raise _not_public(url)
    names: dict[str, str] = {}
    for url in addresses:
        host = urlsplit(url).hostname or ""
        if _address(host) is None:
            names[host] = url
    if len(names) > MOST_HOSTS:
        raise invalid(
            "messages",
            f"there are pictures at {len(names)} hosts, and {MOST_HOSTS} are the most; send some "
            f"of them as data:image/png;base64,…",
        )
    for host, found in zip(names, await asyncio.gather(*map(looked_up, names)), strict=True):
        if not all(_is_global(address) for address in found):
            raise _not_public(names[host])


async def looked_up(host: str) -> list[IPv4Address | IPv6Address]:
    """The addresses that a name leads to from here; none where it is not known."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            found = await loop.run_in_executor(_lookers(), addresses_of, host)
    except TimeoutError:
        raise invalid(
            "messages",
            f"the host {host[:100]!r} of a picture could not be looked up within "
            f"{LOOK_UP_SECONDS:g} s; send the picture as data:image/png;base64,…",
        ) from None
    parsed = [_address(text) for text in found]
    return [address for address in parsed if address is not None]


def addresses_of(host: str) -> list[str]:
    """What the system's resolver says of a name."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None)]
    except (OSError, UnicodeError):
        return []


@cache
def _lookers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(LOOKERS, thread_name_prefix="podium-names")


def _not_public(url: str) -> ApiError:
    return invalid(
        "messages",
        f"the picture at {url[:100]!r} is not at a public address, which is what workers are asked "
        f"to look at; send it as data:image/png;base64,…, or have server.private_images set",
    )


def is_public(url: str) -> bool:
    """Whether an http or https address can be that of a host on the internet: no name that means
    something only here, and no address of this machine or of a network of one's own."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    host = _folded(host).rstrip(".")
    if not host or _NEVER_IN_A_HOST & set(url.partition("://")[2].partition("/")[0]):
        return False
    address = _address(host)
    if address is not None:
        return _is_global(address)
    return "." in host and not host.endswith(PRIVATE_ENDINGS)


def _folded(host: str) -> str:
    """The host as whoever looks it up may come to read it: in lower case, with plain letters,
    figures and dots, and less what is not seen. It is there to be judged, not to be looked up."""
    folded = unicodedata.normalize("NFKC", host).lower().replace(_FULL_STOP, ".")
    return "".join(letter for letter in folded if not _is_left_out(letter))


def _is_left_out(letter: str) -> bool:
    return unicodedata.category(letter) in ("Cf", "Mn") or letter in _FILLERS


def _pictures(messages: Iterable[Message]) -> Iterator[Image]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, Image):
                yield part
            elif isinstance(part, ToolResult):
                yield from part.images


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that the host is in figures, in any of the ways of writing one: 127.1 and
    0x7f000001 are 127.0.0.1."""
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
        if address in _TRANSLATED_HERE:
            return False
        within = address.ipv4_mapped or address.sixtofour
        if address in _TRANSLATED or address in _COMPATIBLE:
            within = IPv4Address(int(address) & 0xFFFFFFFF)
        if within is not None:
            return _is_global(within)
    return address.is_global and not address.is_multicast


MOST_HOPS: Final = 2
"""Servers that a request may have come through before this one: a team's, behind a company's."""

_PORTS: Final = {"http": 80, "https": 443}


def enter_hop(headers: Headers) -> AbstractContextManager[None]:
    """A block for the calls of one request; raises `ApiError` where it has come too far."""
    said = headers.get(HEADER.lower())
    if said is None:
        return count_hops(1)
    if not (said.isascii() and said.isdigit() and len(said) < 5):
        raise invalid(HEADER, f"{HEADER}: expected a whole number, got {said[:40]!r}; leave it out")
    if int(said) > MOST_HOPS:
        problem = (
            f"this request has come through {said} Podium servers, and {MOST_HOPS} are the most: "
            f"a pool seems to name Podium itself as a worker; check the base_url of its workers"
        )
        LOGGER.warning("refused: %s", problem)  # whoever runs the server has to act
        raise ApiError("invalid", problem)
    return count_hops(int(said) + 1)


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
