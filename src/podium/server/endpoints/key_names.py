"""What keys are called: runs and sums know the ids of their keys alone."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from podium.server.access import Principal
from podium.server.endpoints.auth import Admitted, Serving
from podium.server.service import Service
from podium.store import keys_in

router = APIRouter(prefix="/v1/keys", tags=["runs"])


@router.get("")
async def keys(service: Serving, principal: Admitted) -> dict[str, Any]:
    """The names of the keys of which you may see the runs: your own, or every one for `admin`."""
    principal.require("runs:read")
    names = await key_names(service, principal)
    in_order = sorted(names.items(), key=lambda named: (named[1], named[0]))
    return {
        "object": "list",
        "data": [{"object": "key", "id": key_id, "name": name} for key_id, name in in_order],
    }


async def key_names(service: Service, principal: Principal) -> dict[str, str]:
    """The names of the keys that the visitor may know of, by their ids: their own, or every one
    for `admin`."""
    if not principal.has_scope("admin"):
        return {principal.key_id: principal.name}
    return {key.id: key.name for key in await keys_in(await service.keeper.flush()).keys()}
