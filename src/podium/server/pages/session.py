"""Signing in: a key is exchanged once for a session in a cookie that scripts cannot read, so that
it stands in no address and in no storage of a browser."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium.server.access import Principal
from podium.server.access.request_checks import check_request
from podium.server.access.tokens import MAX_TOKEN, SESSION_SECONDS
from podium.server.api_error import ApiError
from podium.server.dialects.fields import bounded_text, read_object
from podium.server.endpoints.auth import ServiceDep, authenticate_request
from podium.server.endpoints.http import NO_STORE, SESSION_COOKIE, client_address, parse_json_object
from podium.server.endpoints.openapi import SIGN_IN, request_body

router = APIRouter(prefix="/session", tags=["session"])


def asked_by_own_page(request: Request, service: ServiceDep) -> None:
    """Refuse what a page of another origin sends: it could sign somebody in or out."""
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
    return _told(principal)


@router.post(
    "",
    dependencies=[Depends(asked_by_own_page)],
    responses={401: {"description": "The key is not one of this server's."}},
    openapi_extra=request_body(SIGN_IN),
)
async def sign_in(request: Request, service: ServiceDep) -> Response:
    """Exchange a key for a session of twelve hours, in a cookie. It may do what the key may, and
    ends with it."""
    shown = read_object(parse_json_object(await request.body())).only(("key",))
    key = shown.required("key", bounded_text(1, MAX_TOKEN))
    address = client_address(request.scope)
    begun = await service.access.sign_in(key.strip(), address)
    principal = await service.access.authenticate(begun, address)
    if begun is not None:
        await service.audit.record("signed in", replace(principal, address=address))
    response = _told(principal)
    if begun is not None:
        _set_cookie(request, response, begun, SESSION_SECONDS)
    return response


@router.delete("", status_code=204, dependencies=[Depends(asked_by_own_page)])
async def sign_out(request: Request) -> Response:
    """Have the browser forget its session, and what it kept of the pages: the next one to use it
    may be somebody else."""
    response = Response(status_code=204, headers={"Clear-Site-Data": '"cache"'})
    _set_cookie(request, response, "", 0)
    return response


def _told(principal: Principal | None) -> JSONResponse:
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
