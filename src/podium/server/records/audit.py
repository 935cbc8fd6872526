"""Record administrative actions in the audit log before they happen.

An action that cannot be recorded is not done. Without a database there is no audit log.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from podium._version import __version__
from podium.config import Settings
from podium.config.guardrails import fingerprint as guardrails_fingerprint
from podium.core.run import Run
from podium.server.access import Principal
from podium.store.audit import AuditAction, AuditDetails, AuditEvent, local_event

if TYPE_CHECKING:
    from podium.store.sql.records import AuditLog

REPEAT_SECONDS: Final = 600.0
"""Repeated reads within this time are recorded once: pages poll."""

MAX_REMEMBERED: Final = 10_000

ANONYMOUS: Final = "anyone"
"""The actor where no keys are required."""


class AuditRecorder:
    """Records actions of principals and of the server."""

    def __init__(
        self, log: AuditLog | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.log = log
        self._clock = clock
        self._entered: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    async def record(
        self,
        action: AuditAction,
        principal: Principal,
        subject: str = "",
        details: AuditDetails | None = None,
    ) -> None:
        if self.log is None:
            return
        event = AuditEvent(
            action=action,
            actor=principal.key_id or ANONYMOUS,
            actor_name=principal.name,
            subject=subject,
            origin=principal.address,
            details=details or {},
        )
        await self.log.add(event)

    async def record_read(
        self, action: AuditAction, principal: Principal, subject: str = ""
    ) -> None:
        """Record that the principal reads data of others, unless it was recorded recently."""
        if self.log is None:
            return
        what, now = (principal.key_id, action, subject), self._clock()
        before = self._entered.get(what)
        if before is not None and now - before < REPEAT_SECONDS:
            return
        await self.record(action, principal, subject)
        self._entered[what] = now
        self._entered.move_to_end(what)
        while len(self._entered) > MAX_REMEMBERED:
            self._entered.popitem(last=False)

    async def record_run_read(self, action: AuditAction, principal: Principal, run: Run) -> None:
        """Record a read of a run of another key."""
        if run.owner != principal.key_id:
            await self.record_read(action, principal, run.id)

    async def record_server_action(
        self, action: AuditAction, subject: str, details: AuditDetails
    ) -> None:
        if self.log is not None:
            await self.log.add(local_event(action, subject, details))

    async def record_start(self, settings: Settings) -> None:
        """Record the start of the server, and which settings changed since the last start."""
        if self.log is None:
            return
        prints = {
            "settings": fingerprint(settings),
            "guardrails": guardrails_fingerprint(settings.guardrails),
        }
        last = await self.log.entries(action="server started", limit=1)
        before: dict[str, Any] = json.loads(last[0].details) if last else {}
        if before:
            actions: dict[str, AuditAction] = {
                "settings": "settings changed",
                "guardrails": "guardrails changed",
            }
            for what, action in actions.items():
                if before.get(what) != prints[what]:
                    change = {"from": str(before.get(what, "")), "to": prints[what]}
                    await self.record_server_action(action, settings.source, change)
        details: AuditDetails = {
            "podium": __version__,
            "require_keys": settings.server.require_keys,
            **prints,
        }
        await self.record_server_action("server started", settings.source, details)


def fingerprint(settings: Settings) -> str:
    """Hash the settings, without the store's URL, which may hold a password, and the address, in
    which replicas differ."""
    document = {
        **asdict(settings),
        "store": settings.store.model_dump(exclude={"url"}),
        "server": settings.server.model_dump(exclude={"host", "port"}),
        "guardrails": [guardrail.model_dump() for guardrail in settings.guardrails],
    }
    written = json.dumps(document, sort_keys=True, default=to_json_value)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def to_json_value(value: object) -> object:
    """Convert sets and paths to JSON values; functions become null."""
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    return None if callable(value) else str(value)
