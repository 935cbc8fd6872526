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
from typing import Any, Final

from podium._version import __version__
from podium.config import Settings
from podium.config.guardrails import fingerprint as guardrails_fingerprint
from podium.core.run import Run
from podium.server.access import Principal
from podium.store import AuditLog
from podium.store.audit import AuditAction, AuditDetails, AuditEvent, local_event

AGAIN_SECONDS: Final = 600.0
"""Whoever reads the same thing again within so long is not entered again: pages look often."""

MOST_REMEMBERED: Final = 10_000

ANYONE: Final = "anyone"
"""Who it was, where no keys are asked for."""


class AuditRecorder:
    """Enters what visitors do."""

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
        """Enter an act; raises `StoreError` where that cannot be."""
        if self.log is None:
            return
        deed = AuditEvent(
            action=action,
            actor=principal.key_id or ANYONE,
            actor_name=principal.name,
            subject=subject,
            origin=principal.address,
            details=details or {},
        )
        await self.log.add(deed)

    async def record_read(
        self, action: AuditAction, principal: Principal, subject: str = ""
    ) -> None:
        """Enter that somebody reads what is another's, unless that was entered just now."""
        if self.log is None:
            return
        what, now = (principal.key_id, action, subject), self._clock()
        before = self._entered.get(what)
        if before is not None and now - before < AGAIN_SECONDS:
            return
        await self.record(action, principal, subject)
        self._entered[what] = now
        self._entered.move_to_end(what)
        while len(self._entered) > MOST_REMEMBERED:
            self._entered.popitem(last=False)

    async def record_run_read(self, action: AuditAction, principal: Principal, run: Run) -> None:
        """Enter that somebody looks into a run, where it is another's."""
        if run.owner != principal.key_id:
            await self.record_read(action, principal, run.id)

    async def record_server_action(
        self, action: AuditAction, subject: str, details: AuditDetails
    ) -> None:
        """Enter what the server does by itself."""
        if self.log is not None:
            await self.log.add(local_event(action, subject, details))

    async def record_start(self, settings: Settings) -> None:
        """Enter that the server starts, and what is not as it was when one started last."""
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
                    told = {"from": str(before.get(what, "")), "to": prints[what]}
                    await self.record_server_action(action, settings.source, told)
        details: AuditDetails = {"podium": __version__, "keys": settings.server.keys, **prints}
        await self.record_server_action("server started", settings.source, details)


def fingerprint(settings: Settings) -> str:
    """A short mark of all that a server was told, by which a change of it is seen. Left out are the
    address of the store, which may hold a password, and where the server listens, in which
    replicas differ."""
    told = {
        **asdict(settings),
        "store": settings.store.model_dump(exclude={"url"}),
        "server": settings.server.model_dump(exclude={"host", "port"}),
        "guardrails": [guardrail.model_dump() for guardrail in settings.guardrails],
    }
    written = json.dumps(told, sort_keys=True, default=plain)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def plain(value: object) -> object:
    """Convert sets and paths to JSON values; functions become null."""
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    return None if callable(value) else str(value)
