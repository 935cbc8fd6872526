"""Sign in: exchange a key for a session cookie that scripts cannot read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium.server.access import Principal
from podium.server.access.tokens import MAX_TOKEN, SESSION_SECONDS
from podium.server.api_error import ApiError
from podium.server.dialects.fields import bounded_text, read_object
from podium.server.endpoints.auth import (
    SESSION_COOKIE,
    ServiceDep,
    authenticate_request,
    check_request,
)
from podium.server.endpoints.http import NO_STORE, client_address, parse_json_object
from podium.server.endpoints.openapi import SIGN_IN, request_body

router = APIRouter(prefix="/session", tags=["session"])


def check_same_origin(request: Request, service: ServiceDep) -> None:
    """Refuse requests of other origins, which could sign a user in or out."""
    check_request(request.method, request.headers, service.settings)


@router.get("")
async def session(request: Request) -> JSONResponse:
    """Return who is signed in. `name` is null without a key; `keys`: keys are required."""
    try:
        principal: Principal | None = await authenticate_request(request)
    except ApiError as refusal:
        if refusal.reason != "unauthenticated":
            raise
        principal = None
    return _session_document(principal)


@router.post(
    "",
    dependencies=[Depends(check_same_origin)],
    responses={401: {"description": "The API key is unknown, revoked or expired."}},
    openapi_extra=request_body(SIGN_IN),
)
async def sign_in(request: Request, service: ServiceDep) -> Response:
    """Exchange a key for a session of twelve hours, in a cookie. It may do what the key may, and
    ends with it."""
    body = read_object(parse_json_object(await request.body())).only(("key",))
    key = body.required("key", bounded_text(1, MAX_TOKEN))
    address = client_address(request.scope)
    token = await service.access.sign_in(key.strip(), address)
    principal = await service.access.authenticate(token, address)
    if token is not None:
        await service.audit.record("signed in", replace(principal, address=address))
    response = _session_document(principal)
    if token is not None:
        _set_cookie(request, response, token, SESSION_SECONDS)
    return response


@router.delete("", status_code=204, dependencies=[Depends(check_same_origin)])
async def sign_out(request: Request) -> Response:
    """Delete the session cookie and the browser's cache, which another user may share."""
    response = Response(status_code=204, headers={"Clear-Site-Data": '"cache"'})
    _set_cookie(request, response, "", 0)
    return response


def _session_document(principal: Principal | None) -> JSONResponse:
    document: dict[str, Any] = {"object": "session", "keys": True, "name": None, "scopes": []}
    if principal is not None:
        document["keys"] = bool(principal.key_id)
        document["name"] = principal.name
        document["scopes"] = sorted(principal.scopes)
    return JSONResponse(document, headers={"Cache-Control": NO_STORE})


def _set_cookie(request: Request, response: Response, value: str, seconds: int) -> None:
    response.set_cookie(
        SESSION_COOKIE,
        value,
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
