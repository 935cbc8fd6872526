"""The web pages: chat, runs, pool, spending, learning and the API reference.

`static/` is served as it is, without a build step. `files` holds it in memory, and `session`
exchanges a key for a cookie. Pages get all their data from the API, as any client does.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from podium.server.endpoints.auth import PrincipalDep
from podium.server.pages import files, session
from podium.server.pages.files import not_found_page

__all__ = ["not_found_page", "router"]

router = APIRouter()
router.include_router(session.router)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, principal: PrincipalDep) -> dict[str, Any]:
    """Return the OpenAPI description; it requires an API key where keys are required."""
    description: dict[str, Any] = request.app.openapi()
    return description


router.include_router(files.router)
