"""Sessions: what a browser holds in the place of a key, for some hours.

    ps_4f9a1c2b77d0_1790000000_9f2c…    ps, the key's number, when it ends, and a signature

A page must not keep a key where its scripts can read it, so the key is exchanged once for a
session, which travels in a cookie. A session is signed and held nowhere: every process of a server
knows a good one by itself, and nothing grows with the number of visitors. The signature covers the
key's digest, and the key is looked up with each request, so a session ends with its key, however
that ends. The secret to sign with is not in the store, so whoever reads the store can make none.

Signing out makes the browser forget the session. A copy of it would work until it ends by itself.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Callable, Collection
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from podium._util.addresses import is_loopback
from podium.config import ServerSettings
from podium.server.access.tokens import ID_PREFIX, LONGEST_TOKEN
from podium.server.api_error import ApiError
from podium.store.keys import Key

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
        raise ApiError(
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
    raise ApiError(
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
    raise ApiError(
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


SESSION_PREFIX: Final = "ps_"
SESSION_SECONDS: Final = 12 * 3600
"""How long somebody stays signed in: a working day."""

_SECRET_BYTES: Final = 32


class ParsedSession(NamedTuple):
    """What a session claims: whose it is, and until when."""

    key_id: str
    ends: int
    signature: str


class Sessions:
    """Makes sessions and knows them again. Processes that answer at one address share a `secret`;
    without one, a new one is made, and nobody stays signed in beyond this process."""

    def __init__(self, secret: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self._secret = (secret or new_secret()).encode()
        self._clock = clock

    def begin(self, key: Key) -> str:
        """A session for whoever has shown that key."""
        ends = int(self._clock()) + SESSION_SECONDS
        number = key.id.removeprefix(ID_PREFIX)
        return f"{SESSION_PREFIX}{number}_{ends}_{self._signature(key, ends)}"

    def is_good(self, claim: ParsedSession, key: Key) -> bool:
        """Whether the session is one that was begun here for that key, and still lasts."""
        signed = hmac.compare_digest(claim.signature, self._signature(key, claim.ends))
        return signed and self._clock() < claim.ends

    def _signature(self, key: Key, ends: int) -> str:
        signed = f"podium session, version 1\0{key.id}\0{key.digest}\0{ends}"
        return hmac.new(self._secret, signed.encode(), sha256).hexdigest()


def new_secret() -> str:
    """Something to sign with that nobody can guess."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def parse_session(shown: str) -> ParsedSession | None:
    """What a session claims, or None where it is none; whether it is true is `Sessions.is_good`."""
    if not shown.startswith(SESSION_PREFIX) or len(shown) > LONGEST_TOKEN or not shown.isascii():
        return None
    number, _, rest = shown.removeprefix(SESSION_PREFIX).partition("_")
    ends, _, signature = rest.partition("_")
    if not number or not ends.isdigit() or not signature:
        return None
    return ParsedSession(f"{ID_PREFIX}{number}", int(ends), signature)
