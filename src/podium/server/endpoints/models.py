"""The list of models, in the shape of whichever vendor the client takes us for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request

from podium.server.access import Principal
from podium.server.api_error import ApiError
from podium.server.endpoints.auth import PrincipalDep, ServiceDep, is_anthropic_client
from podium.server.model_catalog import ModelEntry
from podium.server.service import Service

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("")
async def models(request: Request, service: ServiceDep, principal: PrincipalDep) -> dict[str, Any]:
    """The tiers, their pinned aliases, and every worker by its name; with the header
    `anthropic-version` in Anthropic's shape."""
    listed = list(_shown(service, principal))
    if not is_anthropic_client(request):
        return {"object": "list", "data": [_openai(each, service) for each in listed]}
    return {
        "data": [_anthropic(each, service) for each in listed],
        "has_more": False,
        "first_id": listed[0].name if listed else None,
        "last_id": listed[-1].name if listed else None,
    }


@router.get("/{name:path}")
async def model(
    request: Request, name: str, service: ServiceDep, principal: PrincipalDep
) -> dict[str, Any]:
    """One of them."""
    for each in _shown(service, principal):
        if each.name == name:
            return (_anthropic if is_anthropic_client(request) else _openai)(each, service)
    service.catalog.find(name)  # says what there is instead
    raise ApiError("not_found", f"there is no model {name[:200]!r} for this key", field="model")


def _shown(service: Service, principal: Principal) -> Iterable[ModelEntry]:
    return (each for each in service.catalog if principal.can_list(each.name, each.owner))


def _openai(listed: ModelEntry, service: Service) -> dict[str, Any]:
    return {
        "id": listed.name,
        "object": "model",
        "created": int(service.started),
        "owned_by": listed.owner,
    }


def _anthropic(listed: ModelEntry, service: Service) -> dict[str, Any]:
    created = datetime.fromtimestamp(service.started, UTC).isoformat(timespec="seconds")
    return {
        "type": "model",
        "id": listed.name,
        "display_name": listed.description or listed.name,
        "created_at": created.replace("+00:00", "Z"),
    }
