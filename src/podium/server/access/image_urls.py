"""Pictures by their addresses: which addresses may be handed on to workers.

A picture's address is looked up by whoever works on it. A hosted model's vendor looks from outside,
but a model of one's own looks from inside the network that it runs in, where a client may not: at
this machine, at its neighbours, at what a cloud tells its machines about themselves. So addresses
that are not public are refused, unless the settings allow them. So are names that lead to such
addresses, as far as can be known from here: a name that nobody here knows leads nowhere within this
network either, and one that leads elsewhere when it is looked up again is for who fetches it to
stop. Podium itself fetches no picture.
"""

from __future__ import annotations

import asyncio
import socket
import unicodedata
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import urlsplit

from podium.core.request import Image, Message, ToolResult
from podium.server.access.sessions import NEVER_PUBLIC
from podium.server.api_error import ApiError, invalid

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


async def check_pictures(messages: Iterable[Message], *, private: bool) -> None:
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
