"""What keys are called: runs and sums know the ids of their keys alone."""

from __future__ import annotations

from podium.server.access import Visitor
from podium.server.service import Service
from podium.store import keys_in


async def key_names(service: Service, visitor: Visitor) -> dict[str, str]:
    """The names of the keys that the visitor may know of, by their ids: their own, or every one
    for `admin`."""
    if not visitor.may("admin"):
        return {visitor.key_id: visitor.name}
    return {key.id: key.name for key in await keys_in(await service.keeper.settled()).keys()}
