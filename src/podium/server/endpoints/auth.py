"""Authentication of requests, and the dependencies of FastAPI's endpoints."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from podium.server.access import Principal
from podium.server.access.request_checks import Headers, check_request
from podium.server.endpoints.http import client_address, read_session_cookie, read_token
from podium.server.service import Service


def get_service(request: Request) -> Service:
    """Return the service of the application."""
    service: Service = request.app.state.holder()
    return service


async def authenticate(service: Service, method: str, headers: Headers, address: str) -> Principal:
    """Authenticate by the API key in a header, else by a browser's session cookie."""
    check_request(method, headers, service.settings)
    token = read_token(headers.get("authorization"), headers.get("x-api-key"))
    session = read_session_cookie(headers.get("cookie"))
    return await service.access.authenticate(token or session, address)


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
