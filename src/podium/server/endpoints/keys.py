"""API keys over HTTP: create, list, change and revoke them.

Managing keys requires the scope `admin`. A key with the scope `runs:read` sees itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request

from podium.config.problems import suggest
from podium.config.workers import PROVIDERS
from podium.server.access.keys import (
    KeyDraft,
    KeyInfo,
    KeyManager,
    apply_draft,
    draft_schema,
    parse_draft,
)
from podium.server.api_error import ApiError, invalid
from podium.server.endpoints.http import PrincipalDep, ServiceDep, parse_json_object
from podium.server.endpoints.openapi import request_body
from podium.store.audit import AuditAction, AuditDetails
from podium.store.keys import Key, Rules

router = APIRouter(prefix="/v1/keys", tags=["keys"])

Force = Annotated[bool, Query(description="also for the last active key with the scope admin")]

NEW: Final = Rules()
"""A new key has no names that were checked before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyList:
    """A list of keys, by name."""

    object: Literal["list"] = "list"
    data: list[KeyInfo]


class KeyAccess:
    """The keys as the caller of a request may see and manage them."""

    def __init__(self, service: ServiceDep, principal: PrincipalDep) -> None:
        self.service = service
        self.principal = principal

    async def open(self) -> KeyManager:
        """Return the manager, after writing all usage so far."""

        async def record(action: AuditAction, key_id: str, details: AuditDetails) -> None:
            await self.service.audit.record(action, self.principal, key_id, details)

        await self.service.access.flush()
        return KeyManager((await self.service.store.flush()).keys, record)

    async def find(self, key_id: str) -> Key:
        """Return a key that the caller may see; raises `ApiError` not_found."""
        found = None
        if self.principal.can_see(key_id):
            found = await (await self.open()).store.key(key_id)
        if found is None:
            message = f"key not found: {key_id[:80]!r}; GET /v1/keys lists the keys"
            raise ApiError("not_found", message)
        return found

    async def describe(self, key: Key) -> KeyInfo:
        (info,) = await (await self.open()).describe([key])
        return info

    async def check(self, draft: KeyDraft, before: Rules) -> None:
        """Refuse misspelt names, and rules that allow more than the caller's own key does. Names
        that the key had before may be of another server on the same store."""
        names = (await self.service.podium.open()).excludable_names | set(PROVIDERS)
        new = draft.exclude - before.exclude
        _check_known("exclude", new, names, "worker, provider or mcp:SERVER")
        new = (draft.workers or frozenset()) - (before.workers or frozenset())
        _check_known("workers", new, self.service.pool.names, "worker")
        self.principal.check_grant(draft.rules)


KeyDep = Annotated[KeyAccess, Depends()]


@router.get("")
async def keys(asked: KeyDep) -> KeyList:
    """List the keys with their rules, usage and what is left of their caps: all for `admin`, else
    the caller's own. Revoked keys are included. Requires the scope `runs:read`."""
    asked.principal.require("runs:read")
    infos = await (await asked.open()).describe_all()
    seen = [info for info in infos if asked.principal.can_see(info.id)]
    return KeyList(data=sorted(seen, key=lambda info: (info.name, info.id)))


@router.get("/{key_id}")
async def key(key_id: str, asked: KeyDep) -> KeyInfo:
    """Return a key with its rules, usage and what is left of its caps. Requires the scope
    `runs:read`, and `admin` for another key than the caller's."""
    asked.principal.require("runs:read")
    return await asked.describe(await asked.find(key_id))


@router.post("", status_code=201, openapi_extra=request_body(draft_schema()))
async def create(request: Request, asked: KeyDep) -> KeyInfo:
    """Create a key. Its token is in this response and cannot be shown again. Requires the scope
    `admin`; a key cannot allow more than the caller's own does."""
    asked.principal.require("admin")
    draft = parse_draft(parse_json_object(await request.body()))
    await asked.check(draft, NEW)
    made = await (await asked.open()).create(draft.name, draft.rules, draft.expiry)
    return replace(await asked.describe(made.key), token=made.token)


@router.patch("/{key_id}", openapi_extra=request_body(draft_schema(is_change=True)))
async def change(key_id: str, request: Request, asked: KeyDep, force: Force = False) -> KeyInfo:
    """Change a key. Fields that are left out stay as they are; null removes a cap or a limit.
    Running servers follow within seconds. Requires the scope `admin`."""
    asked.principal.require("admin")
    found = await asked.find(key_id)
    draft = parse_draft(parse_json_object(await request.body()), found)
    after = apply_draft(found, draft)
    if after.rules != found.rules:
        await asked.check(draft, found.rules)
    await (await asked.open()).change(found, after, force=force)
    asked.service.access.refresh(key_id)
    return await asked.describe(after)


@router.delete("/{key_id}")
async def revoke(key_id: str, asked: KeyDep, force: Force = False) -> KeyInfo:
    """Revoke a key for good. Running servers refuse it within seconds. Requires the scope
    `admin`."""
    asked.principal.require("admin")
    found = await asked.find(key_id)
    await (await asked.open()).revoke(found, force=force)
    asked.service.access.refresh(key_id)
    return await asked.describe(await asked.find(key_id))


def _check_known(field: str, given: Collection[str], known: Collection[str], expected: str) -> None:
    for name in sorted(set(given) - set(known)):
        raise invalid(field, f"{field}: unknown {expected} {name[:80]!r}; {suggest(name, known)}")
