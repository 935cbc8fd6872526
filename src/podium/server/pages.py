"""The description of the API, for people and for programs. Where keys are asked for, they are
asked for here as well: not even what there is to ask is told to strangers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse

from podium.server.visiting import Admitted

router = APIRouter(include_in_schema=False)

OPENAPI = "/openapi.json"


@router.get(OPENAPI)
async def openapi(request: Request, visitor: Admitted) -> dict[str, Any]:
    """The description for programs."""
    description: dict[str, Any] = request.app.openapi()
    return description


@router.get("/docs")
async def docs(visitor: Admitted) -> HTMLResponse:
    """The description for people."""
    return get_swagger_ui_html(openapi_url=OPENAPI, title="Podium")
