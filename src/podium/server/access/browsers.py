"""What must not be done through somebody's browser behind their back.

A page of another origin can make a browser send requests here, with the cookie of whoever is signed
in, or to a server that asks for no key because only its own machine can reach it. So what a browser
sends on behalf of another origin is refused; and where a server is reached by loopback alone and
asks for no key, so is a name that could be anybody's (a name whose address changes to 127.0.0.1
makes any page an own one). Clients that are no browsers send none of what is looked at here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import urlsplit

from podium.config import ServerSettings
from podium.local.addresses import is_loopback
from podium.server.refusal import Refusal

HARMLESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; what they answer, a page of another origin cannot read."""

OWN: Final = frozenset({"same-origin", "none"})
"""What a browser says of requests from our own pages, and from nobody's."""

NEVER_PUBLIC: Final = (".localhost", ".local", ".internal", ".test", ".home.arpa")
"""Endings of names that nobody can register, and so cannot lead somewhere else."""

_LABEL: Final = re.compile(r"[a-z0-9_-]+")

FORM: Final = "application/x-www-form-urlencoded"
"""What curl says of a body where nobody tells it what it is."""


class Headers(Protocol):
    """Headers of a request, by their names in lower case."""

    def get(self, name: str, /) -> str | None:
        """The header, or None."""
        ...


def check_request(method: str, headers: Headers, settings: ServerSettings) -> None:
    """Refuse what another origin sends through a browser, and bodies that are not JSON."""
    if not settings.keys:
        _check_host(headers.get("host") or "", settings)
    if method in HARMLESS:
        return
    if headers.get("authorization") is None and headers.get("x-api-key") is None:
        # Who shows a key means it: a browser adds neither header by itself.
        _check_origin(headers, settings.hosts)
    _check_type(headers)


def _check_host(host: str, settings: ServerSettings) -> None:
    if host and not _is_answered(host, settings.host, settings.hosts):
        raise Refusal(
            "forbidden",
            f"this server asks for no keys and is for its own machine, which is not known as "
            f"{host[:100]!r}; ask at http://127.0.0.1, or add the name to server.hosts",
        )


@lru_cache(maxsize=256)  # a request must not pay for what is the same with every one
def _is_answered(host: str, listens_at: str, hosts: tuple[str, ...]) -> bool:
    if not is_loopback(f"http://{_bracketed(listens_at)}"):
        return True
    name = _name_of(f"//{host}")
    return name in hosts or _is_this_machine(name)


def _check_origin(headers: Headers, hosts: Collection[str]) -> None:
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site in OWN or (site is None and origin is None):
        return
    name = _name_of(origin or "")
    if name and name in hosts:
        return
    if site is None and origin is not None:
        own = headers.get("host") or ""
        if urlsplit(origin).netloc.lower() == own.lower() and own:
            return
    raise Refusal(
        "forbidden",
        f"a page of {(origin or 'another origin')[:100]!r} asks through a browser, and is not "
        f"one of this server's; ask with a key in the header Authorization, or add the page's "
        f"host to server.hosts",
    )


def _check_type(headers: Headers) -> None:
    given = headers.get("content-type")
    if given is None:
        return
    kind = given.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return
    from_browser = headers.get("origin") is not None or headers.get("sec-fetch-site") is not None
    if kind in ("", FORM) and not from_browser:
        return
    raise Refusal(
        "invalid",
        f"the body is said to be {kind[:100]!r}; send JSON, with Content-Type: application/json",
    )


def _is_this_machine(name: str) -> bool:
    """Whether that name can only have been meant for this machine: an address in figures, a name
    without dots, or one that nobody can register."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(_LABEL.fullmatch(name)) or name.endswith(NEVER_PUBLIC)
    return True


def _name_of(address: str) -> str:
    """The name in an address; one that cannot be read stands for itself."""
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return address


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
