"""Addresses on the network: which are this machine, the proxy before one, how one is shown."""

from __future__ import annotations

import ipaddress
import re
import urllib.request
from typing import Final
from urllib.parse import urlsplit

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s'\"]*@")


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address, or None where there is none.

    aiohttp's own `trust_env` would also read ~/.netrc, and clash with the keys and tokens that
    Podium sends itself. Raises `ValueError` for an address that is not one.
    """
    address = urlsplit(url)
    proxy = urllib.request.getproxies().get(address.scheme)
    if not proxy or urllib.request.proxy_bypass(address.netloc):
        return None
    if is_loopback(url):
        return None  # a proxy would look for it on its own machine
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def without_credentials(text: str) -> str:
    """A text in which no address says with what name and password one gets in there."""
    return _CREDENTIALS.sub("", text)


def shown(address: str) -> str:
    """An address without what lets someone in: its credentials, and its query, which may be a
    signature."""
    bare = without_credentials(address if "://" in address else f"://{address}")
    return bare.removeprefix("://").partition("?")[0]
