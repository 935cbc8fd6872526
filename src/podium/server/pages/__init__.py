"""The pages that `podium serve` shows to people: playground, runs, pool, spend, learning, and the
API's own description.

What is served is `static/`, files as they are: plain modules for the browser, with no build step.
`files` holds them in memory, `addresses` says which address shows what, `description` is the API's
own, and `session` exchanges a key for a cookie. The pages get everything that they show from the
API, as any client would.
"""

from __future__ import annotations

from fastapi import APIRouter

from podium.server.pages import description, session
from podium.server.pages import files as addresses
from podium.server.pages.files import not_found_page

__all__ = ["not_found_page", "router"]

router = APIRouter()
router.include_router(session.router)
router.include_router(description.router)
router.include_router(addresses.router)
