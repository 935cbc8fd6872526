"""The audit log, for keys with the scope `admin`."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from podium.core.run import timestamp
from podium.server.endpoints.auth import Admitted, Serving

router = APIRouter(prefix="/v1/audit", tags=["audit"])

MOST_LISTED: Final = 1_000


@router.get("")
async def audit(
    service: Serving,
    principal: Admitted,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
    before: Annotated[int | None, Query(ge=1)] = None,
    since: datetime | None = None,
    actor: Annotated[str | None, Query(max_length=200)] = None,
) -> dict[str, Any]:
    """Administrative acts, the newest first: who did what, when, to what and from where. `before`
    is the number of the last entry of the page before, `who` the id or the name of a key, or a user
    of the server's machine as `user:NAME`; moments without a time zone are meant in UTC. Takes the
    scope `admin`."""
    principal.require("admin")
    log = service.audit.log
    if log is None:
        return {"object": "list", "data": [], "has_more": False}
    moment = None if since is None else _utc(since)
    found = await log.entries(since=moment, actor=actor, before=before, limit=limit + 1)
    return {
        "object": "list",
        "data": [
            {**asdict(entry), "details": json.loads(entry.details)} for entry in found[:limit]
        ],
        "has_more": len(found) > limit,
    }


def _utc(moment: datetime) -> str:
    return timestamp(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
