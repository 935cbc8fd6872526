"""Authentication of requests, and the dependencies of FastAPI's endpoints.

`check_request` refuses requests of foreign pages (CSRF, DNS rebinding) and bodies that are not
JSON.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends
from starlette.requests import Request, cookie_parser

from podium._util.addresses import is_loopback
from podium.config import ServerSettings
from podium.server.access import Principal
from podium.server.access.request_checks import RESERVED_SUFFIXES
from podium.server.api_error import ApiError
from podium.server.endpoints.http import client_address
from podium.server.service import ANY_ORIGIN, Service

SESSION_COOKIE: Final = "podium_session"

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; a page of another origin cannot read their responses."""

OWN_SITES: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for our own pages, and for no page."""

FORM: Final = "application/x-www-form-urlencoded"
"""The content type that curl sends by default."""

_LABEL: Final = re.compile(r"[a-z0-9_-]+")


def get_service(request: Request) -> Service:
    """Return the service of the application."""
    service: Service = request.app.state.holder()
    return service


async def authenticate(
    service: Service, method: str, headers: Mapping[str, str], address: str
) -> Principal:
    """Authenticate by the API key in a header, else by a browser's session cookie."""
    check_request(method, headers, service.settings)
    token = read_token(headers)
    if token is None and not _is_listed_page(headers, service.settings):
        token = cookie_parser(headers.get("cookie", "")).get(SESSION_COOKIE)
    principal = await service.access.authenticate(token, address)
    disabled = service.disabled.names
    return replace(principal, disabled=disabled) if disabled else principal


def read_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key, where OpenAI's or Anthropic's clients send it."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key")


def _is_listed_page(headers: Mapping[str, str], settings: ServerSettings) -> bool:
    """True for a page of another origin in `server.cors`, which never has the user's session."""
    origin = headers.get("origin")
    if origin is None or not settings.cors or _is_own_page(headers):
        return False
    return origin in settings.cors or ANY_ORIGIN in settings.cors


def _is_own_page(headers: Mapping[str, str]) -> bool:
    """True for a page of this server, and for a client that is no browser."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None or origin is None:
        return site is None or site in OWN_SITES
    own = headers.get("host") or ""
    return bool(own) and origin.partition("://")[2].lower() == own.lower()


async def authenticate_request(request: Request) -> Principal:
    """Authenticate a request to one of FastAPI's endpoints."""
    address = client_address(request.scope)
    principal = await authenticate(get_service(request), request.method, request.headers, address)
    return replace(principal, address=address)


ServiceDep = Annotated[Service, Depends(get_service)]
PrincipalDep = Annotated[Principal, Depends(authenticate_request)]


def is_anthropic_client(request: Request) -> bool:
    """True if the client expects Anthropic's format where both vendors share a path."""
    return "anthropic-version" in request.headers


def check_request(method: str, headers: Mapping[str, str], settings: ServerSettings) -> None:
    """Refuse requests that another origin sends through a browser, and bodies that are not JSON."""
    if not settings.keys:
        _check_host(headers.get("host") or "", settings)
    if method in SAFE_METHODS:
        return
    # A browser adds neither header by itself, so a request with one is meant.
    has_key = headers.get("authorization") is not None or headers.get("x-api-key") is not None
    if not has_key and not _is_listed_page(headers, settings):
        _check_origin(headers, settings.hosts)
    _check_content_type(headers)


def _check_host(host: str, settings: ServerSettings) -> None:
    if host and not _is_own_host(host, settings.host, settings.hosts):
        raise ApiError(
            "forbidden",
            f"host {host[:100]!r} is not this machine, and this server requires no API keys; "
            f"use http://127.0.0.1, or add the host to server.hosts",
        )


@lru_cache(maxsize=256)
def _is_own_host(host: str, listens_at: str, hosts: tuple[str, ...]) -> bool:
    bracketed = f"[{listens_at}]" if ":" in listens_at else listens_at
    if not is_loopback(f"http://{bracketed}"):
        return True
    name = _hostname(f"//{host}")
    return name in hosts or _is_local_name(name)


def _check_origin(headers: Mapping[str, str], hosts: Collection[str]) -> None:
    origin = headers.get("origin")
    if _is_own_page(headers):
        return
    name = _hostname(origin or "")
    if name and name in hosts:
        return
    raise ApiError(
        "forbidden",
        f"cross-origin request from {(origin or 'another origin')[:100]!r}; to let this page use "
        f"the API, add its origin to server.cors",
    )


def _check_content_type(headers: Mapping[str, str]) -> None:
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
        f"unsupported content type {kind[:100]!r}; send JSON, with Content-Type: application/json",
    )


def _is_local_name(name: str) -> bool:
    """True for an IP address, a name without dots, or one that cannot be registered."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(_LABEL.fullmatch(name)) or name.endswith(RESERVED_SUFFIXES)
    return True


def _hostname(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return address
