"""API keys over HTTP: create, list, change and revoke them.

Managing keys requires the scope `admin`. A key with the scope `runs:read` sees itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request

from podium.config.problems import suggest
from podium.config.workers import PROVIDERS
from podium.server.access import Principal
from podium.server.access.keys import (
    KeyDraft,
    KeyInfo,
    KeyManager,
    NewKeyInfo,
    apply_draft,
    draft_schema,
    parse_draft,
    with_token,
)
from podium.server.api_error import ApiError, invalid
from podium.server.endpoints.auth import PrincipalDep, ServiceDep
from podium.server.endpoints.http import parse_json_object
from podium.server.endpoints.openapi import request_body
from podium.server.service import Service
from podium.store import keys_in
from podium.store.audit import AuditAction, AuditDetails
from podium.store.keys import Key
from podium.store.sql.keys import KeyStore

router = APIRouter(prefix="/v1/keys", tags=["keys"])

Force = Annotated[bool, Query(description="also for the last active key with the scope admin")]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyList:
    """A list of keys, by name."""

    object: Literal["list"] = "list"
    data: list[KeyInfo]


@router.get("")
async def keys(service: ServiceDep, principal: PrincipalDep) -> KeyList:
    """List the keys with their rules, usage and what is left of their caps: all for `admin`, else
    the caller's own. Revoked keys are included. Requires the scope `runs:read`."""
    principal.require("runs:read")
    infos = await _manager(await _store(service), service, principal).describe_all()
    seen = [info for info in infos if principal.can_see(info.id)]
    return KeyList(data=sorted(seen, key=lambda info: (info.name, info.id)))


@router.get("/{key_id}")
async def key(key_id: str, service: ServiceDep, principal: PrincipalDep) -> KeyInfo:
    """Return a key with its rules, usage and what is left of its caps. Requires the scope
    `runs:read`, and `admin` for another key than the caller's."""
    principal.require("runs:read")
    store = await _store(service)
    return await _describe(await _find(key_id, store, principal), store, service, principal)


@router.post("", status_code=201, openapi_extra=request_body(draft_schema()))
async def create(request: Request, service: ServiceDep, principal: PrincipalDep) -> NewKeyInfo:
    """Create a key. Its token is in this response and cannot be shown again. Requires the scope
    `admin`; a key cannot allow more than the caller's own does."""
    principal.require("admin")
    draft = parse_draft(parse_json_object(await request.body()))
    await _check_names(draft, service, principal)
    store = await _store(service)
    made = await _manager(store, service, principal).create(draft.name, draft.rules, draft.expiry)
    return with_token(await _describe(made.key, store, service, principal), made.token)


@router.patch("/{key_id}", openapi_extra=request_body(draft_schema(is_change=True)))
async def change(
    key_id: str,
    request: Request,
    service: ServiceDep,
    principal: PrincipalDep,
    force: Force = False,
) -> KeyInfo:
    """Change a key. Fields that are left out stay as they are; null removes a cap or a limit.
    Running servers follow within seconds. Requires the scope `admin`."""
    principal.require("admin")
    store = await _store(service)
    found = await _find(key_id, store, principal)
    draft = parse_draft(parse_json_object(await request.body()), found)
    after = apply_draft(found, draft)
    if after.rules != found.rules:
        await _check_names(draft, service, principal, found)
    await _manager(store, service, principal).change(found, after, force=force)
    service.access.refresh(key_id)
    return await _describe(after, store, service, principal)


@router.delete("/{key_id}")
async def revoke(
    key_id: str, service: ServiceDep, principal: PrincipalDep, force: Force = False
) -> KeyInfo:
    """Revoke a key for good. Running servers refuse it within seconds. Requires the scope
    `admin`."""
    principal.require("admin")
    store = await _store(service)
    found = await _find(key_id, store, principal)
    await _manager(store, service, principal).revoke(found, force=force)
    service.access.refresh(key_id)
    return await _describe(await _find(key_id, store, principal), store, service, principal)


async def _store(service: Service) -> KeyStore:
    """Return the store of keys, with all usage so far."""
    await service.access.flush()
    return keys_in(await service.store.flush())


def _manager(store: KeyStore, service: Service, principal: Principal) -> KeyManager:
    async def record(action: AuditAction, key_id: str, details: AuditDetails) -> None:
        await service.audit.record(action, principal, key_id, details)

    return KeyManager(store, record)


async def _find(key_id: str, store: KeyStore, principal: Principal) -> Key:
    found = await store.key(key_id) if principal.can_see(key_id) else None
    if found is None:
        raise ApiError("not_found", f"key not found: {key_id[:80]!r}; GET /v1/keys lists the keys")
    return found


async def _describe(key: Key, store: KeyStore, service: Service, principal: Principal) -> KeyInfo:
    (info,) = await _manager(store, service, principal).describe([key])
    return info


async def _check_names(
    draft: KeyDraft, service: Service, principal: Principal, before: Key | None = None
) -> None:
    """Refuse misspelt names, and rules that allow more than the caller's own key does. Names that
    the key has already may be of another server on the same store."""
    runtime = await service.podium.open()
    known = runtime.excludable_names | set(PROVIDERS)
    had = frozenset[str]() if before is None else before.rules.exclude
    _check_known("exclude", draft.exclude - had, known, "worker, provider or mcp:SERVER")
    had = frozenset[str]() if before is None else before.rules.workers or frozenset()
    _check_known("workers", (draft.workers or frozenset()) - had, service.pool.names, "worker")
    principal.check_grant(draft.rules)


def _check_known(field: str, given: Collection[str], known: Collection[str], expected: str) -> None:
    for name in sorted(set(given) - set(known)):
        raise invalid(field, f"{field}: unknown {expected} {name[:80]!r}; {suggest(name, known)}")
