"""Who asks, whichever way they show it; and what the endpoints that are FastAPI's have in common:
the service, and how a refusal is worded. The endpoints of the dialects do the same in `dialect`,
at less cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium.core.errors import PodiumError
from podium.server.access import Principal
from podium.server.access.request_checks import Headers, check_request
from podium.server.api_error import ApiError, Reason, api_error_boundary
from podium.server.dialects.request import Dialect
from podium.server.endpoints.http import (
    CLIENT_CLOSED_REQUEST,
    ClientDisconnected,
    client_address,
    read_session_cookie,
    read_token,
)
from podium.server.logs import LOGGER
from podium.server.service import Service

USUAL: Final = "/v1/chat/completions"
ANTHROPIC: Final = "/v1/messages"
"""The dialects, by their addresses, in which everything else is worded too."""


def get_service(request: Request) -> Service:
    """The service that this request is for."""
    service: Service = request.app.state.holder()
    return service


async def authenticate(service: Service, method: str, headers: Headers, address: str) -> Principal:
    """Who asks from that address: by a key in a header, else by the session of a browser that
    signed in. Raises `ApiError` where that must be known and is not, and where it is not they who
    ask."""
    check_request(method, headers, service.settings)
    token = read_token(headers.get("authorization"), headers.get("x-api-key"))
    return await service.access.authenticate(
        token or read_session_cookie(headers.get("cookie")), address
    )


async def authenticate_request(request: Request) -> Principal:
    """Who asks; raises `ApiError` where that must be known and is not."""
    address = client_address(request.scope)
    principal = await authenticate(get_service(request), request.method, request.headers, address)
    return replace(principal, address=address)


ServiceDep = Annotated[Service, Depends(get_service)]
PrincipalDep = Annotated[Principal, Depends(authenticate_request)]


def is_anthropic_client(request: Request) -> bool:
    """Whether the client expects Anthropic's shapes where both vendors have an address."""
    return "anthropic-version" in request.headers


def wants_html(request: Request) -> bool:
    """Whether a browser wants a page to show; programs, the pages' own among them, do not."""
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")


def add_error_handlers(
    app: FastAPI, dialects: Mapping[str, Dialect], no_such_page: Callable[[Request], Response]
) -> None:
    """Have every error worded by the dialect that the client speaks, but show a page to a person
    who opened an address that there is not."""

    def worded(
        request: Request,
        refusal: ApiError,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JSONResponse:
        path = request.url.path
        usual = ANTHROPIC if is_anthropic_client(request) else USUAL
        dialect = next((d for p, d in dialects.items() if path.startswith(p)), dialects[usual])
        told = {**error_headers(refusal), **(headers or {})}
        return JSONResponse(dialect.refused(refusal), status or refusal.status, told)

    @app.exception_handler(ApiError)
    async def refused(request: Request, refusal: ApiError) -> JSONResponse:
        return worded(request, refusal)

    @app.exception_handler(ClientDisconnected)
    async def gone(request: Request, error: ClientDisconnected) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)  # to nobody

    @app.exception_handler(PodiumError)
    async def raised(request: Request, error: PodiumError) -> JSONResponse:
        try:
            with api_error_boundary():
                raise error
        except ApiError as refusal:
            return worded(request, refusal)

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])  # of the address: bodies are read
        return worded(request, ApiError("invalid", f"{field}: {first['msg']}", field=field))

    @app.exception_handler(HTTPException)
    async def not_served(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404 and wants_html(request):
            return no_such_page(request)
        if request.headers.get("upgrade", "").lower() == "websocket":
            # Codex takes up plain HTTP at once for this status, and after six tries for any other
            told = "there are no websockets here; send POST, with stream: true for events"
            return worded(request, ApiError("invalid", told), 426, {"Upgrade": "HTTP/1.1"})
        reason: Reason = "not_found" if error.status_code == 404 else "invalid"
        message = f"{request.method} {request.url.path[:200]}: {error.detail}"
        return worded(request, ApiError(reason, message), error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        LOGGER.error("%s failed", request.url.path, exc_info=error)
        return worded(request, ApiError("failed", f"the server failed: {type(error).__name__}"))


def error_headers(refusal: ApiError) -> dict[str, str]:
    """What a refusal says in headers."""
    headers = {"X-Request-Id": refusal.request_id, "Request-Id": refusal.request_id}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after + 0.499)))
    if refusal.reason == "unauthenticated":
        headers["WWW-Authenticate"] = "Bearer"
    return headers
