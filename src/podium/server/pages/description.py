"""The description of the API for programs, from which the page `/docs` is made as well. Where keys
are asked for, they are asked for here too: not even what there is to ask is told to strangers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from podium.server.endpoints.auth import PrincipalDep

router = APIRouter(include_in_schema=False)


@router.get("/openapi.json")
async def openapi(request: Request, principal: PrincipalDep) -> dict[str, Any]:
    """The description for programs."""
    description: dict[str, Any] = request.app.openapi()
    return description
