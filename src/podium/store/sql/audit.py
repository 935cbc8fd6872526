"""The audit log in the database that keeps the runs. Made by `sql`, whose transactions it uses.

Entries are added one after another, whichever process adds them: each needs the digest of the one
before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, insert, or_, select

from podium.store.audit import (
    GENESIS_DIGEST,
    USER,
    AuditEntry,
    AuditEvent,
    AuditVerification,
    entered,
    verified,
)
from podium.store.sql.keys import Transaction
from podium.store.sql.rows import plain
from podium.store.sql.tables import AUDIT

_LOCKS: Final = {
    # A write of nothing, so that who reads the last entry is the next to write.
    "sqlite": "DELETE FROM audit WHERE number < 0",
    "postgresql": "SELECT pg_advisory_xact_lock(7063488612)",
}

PAGE: Final = 1_000
"""Entries that are read at once."""


class SqlAuditLog:
    """Keeps the log in SQLite or Postgres."""

    def __init__(self, transaction: Transaction, clock: Callable[[], str]) -> None:
        self._transaction = transaction
        self._clock = clock

    async def add(self, deed: AuditEvent) -> AuditEntry:
        """Enter what is done."""
        async with self._transaction() as connection:
            return await connection.run_sync(append, deed, self._clock())

    async def entries(
        self,
        *,
        since: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Entries, the newest first."""
        query = select(AUDIT).order_by(AUDIT.c.number.desc()).limit(limit)
        if since is not None:
            query = query.where(AUDIT.c.at >= since)
        if actor is not None:
            known = plain(actor)
            query = query.where(
                or_(AUDIT.c.actor.in_((known, f"{USER}{known}")), AUDIT.c.actor_name == known)
            )
        if action is not None:
            query = query.where(AUDIT.c.action == action)
        if before is not None:
            query = query.where(AUDIT.c.number < before)
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [AuditEntry(**row) for row in rows]

    async def verify(self) -> AuditVerification:
        """Check every entry against the one before it."""
        found: list[AuditEntry] = []
        while True:
            last = found[-1].number if found else None
            query = select(AUDIT).order_by(AUDIT.c.number).limit(PAGE)
            if last is not None:
                query = query.where(AUDIT.c.number > last)
            async with self._transaction() as connection:
                rows = (await connection.execute(query)).mappings().all()
            found += [AuditEntry(**row) for row in rows]
            if len(rows) < PAGE:
                return verified(found)


def append(connection: Connection, deed: AuditEvent, at: str) -> AuditEntry:
    """Add an entry within a transaction of somebody's."""
    connection.exec_driver_sql(_LOCKS[connection.dialect.name])
    newest = select(AUDIT.c.number, AUDIT.c.digest).order_by(AUDIT.c.number.desc()).limit(1)
    last = connection.execute(newest).first()
    number, before = (0, GENESIS_DIGEST) if last is None else (last.number, last.digest)
    kept = AuditEvent(
        action=deed.action,
        actor=plain(deed.actor),
        actor_name=plain(deed.actor_name),
        subject=plain(deed.subject),
        origin=plain(deed.origin),
        details=deed.details,
    )
    entry = entered(kept, number + 1, at, before)
    connection.execute(insert(AUDIT), asdict(entry))
    return entry
