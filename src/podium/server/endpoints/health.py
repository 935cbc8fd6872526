"""Whether the server lives, whether it takes requests, and what it has done."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from podium._version import __version__
from podium.server.endpoints.auth import PrincipalDep, ServiceDep
from podium.server.records.metrics import MEDIA_TYPE
from podium.server.service import Service

router = APIRouter(tags=["operation"])


@router.get("/healthz")
async def healthz() -> dict[str, Any]:
    """Whether the process answers. Asks for no key."""
    return {"status": "alive", "version": __version__}


@router.get("/readyz", responses={503: {"description": "It starts, loads, or is about to stop."}})
async def readyz(request: Request) -> Response:
    """Whether requests are taken. Asks for no key."""
    service: Service | None = request.app.state.holder.service
    if service is None:
        return JSONResponse({"status": "starting"}, 503)
    if service.limiter.closed:
        return JSONResponse({"status": "stopping"}, 503)
    if service.loader.is_going_on:
        return JSONResponse({"status": "loading"}, 503)
    return JSONResponse({"status": "ready"})


@router.get("/metrics", response_class=Response)
async def metrics(service: ServiceDep, principal: PrincipalDep) -> Response:
    """What this server has done so far, as Prometheus reads it: all of its processes together,
    but for what is in flight and waiting, which is this process's alone. Takes the scope
    `metrics`."""
    principal.require("metrics")
    limiter = service.limiter
    page = service.metrics.render(
        requests_in_flight=limiter.in_flight, requests_waiting=limiter.waiting
    )
    return Response(page, media_type=MEDIA_TYPE)
