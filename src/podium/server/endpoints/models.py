"""The list of models, in OpenAI's or Anthropic's format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
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
    """List the tiers and the workers; in Anthropic's format with the header `anthropic-version`."""
    entries = list(_visible(service, principal))
    if not is_anthropic_client(request):
        return {"object": "list", "data": [_openai(entry, service) for entry in entries]}
    return {
        "data": [_anthropic(entry, service) for entry in entries],
        "has_more": False,
        "first_id": entries[0].name if entries else None,
        "last_id": entries[-1].name if entries else None,
    }


@router.get("/{name:path}")
async def model(
    request: Request, name: str, service: ServiceDep, principal: PrincipalDep
) -> dict[str, Any]:
    """Return one model, also by its pinned name."""
    listed = service.catalog.find(name).name
    for item in _visible(service, principal):
        if item.name == listed:
            entry = replace(item, name=name)
            return (_anthropic if is_anthropic_client(request) else _openai)(entry, service)
    raise ApiError("not_found", f"model not found for this API key: {name[:200]!r}", field="model")


def _visible(service: Service, principal: Principal) -> Iterable[ModelEntry]:
    return (item for item in service.catalog if principal.can_list(item.name, item.owner))


def _openai(entry: ModelEntry, service: Service) -> dict[str, Any]:
    return {
        "id": entry.name,
        "object": "model",
        "created": int(service.started),
        "owned_by": entry.owner,
    }


def _anthropic(entry: ModelEntry, service: Service) -> dict[str, Any]:
    created = datetime.fromtimestamp(service.started, UTC).isoformat(timespec="seconds")
    return {
        "type": "model",
        "id": entry.name,
        "display_name": entry.description or entry.name,
        "created_at": created.replace("+00:00", "Z"),
    }
