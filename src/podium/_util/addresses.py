"""URLs: proxies, loopback, and URLs without credentials."""

from __future__ import annotations

import ipaddress
import re
import urllib.request
from typing import Final
from urllib.parse import urlsplit

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s'\"]*@")


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for a URL, or None.

    aiohttp's own `trust_env` would also read ~/.netrc, which clashes with Podium's API keys. Raises
    `ValueError` for an invalid URL.
    """
    address = urlsplit(url)
    proxy = urllib.request.getproxies().get(address.scheme)
    if not proxy or urllib.request.proxy_bypass(address.netloc):
        return None
    if is_loopback(url):
        return None  # a proxy would look for it on its own machine
    return proxy if "://" in proxy else f"http://{proxy}"


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def strip_credentials(text: str) -> str:
    """Remove user names and passwords from URLs in a text."""
    return _CREDENTIALS.sub("", text)


def redact_url(address: str) -> str:
    """Return a URL without credentials and query, which may hold a signature."""
    bare = strip_credentials(address if "://" in address else f"://{address}")
    return bare.removeprefix("://").partition("?")[0]
