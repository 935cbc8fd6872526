"""The audit log in the database that keeps the runs. Made by `sql`, whose transactions it uses.

Entries are added one after another, whichever process adds them: each needs the digest of the one
before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, insert, or_, select

from podium.store.audit import FIRST, USER, Deed, Entry, Verification, entered, verified
from podium.store.rows import plain
from podium.store.sql_keys import Transaction
from podium.store.tables import AUDIT

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

    async def add(self, deed: Deed) -> Entry:
        """Enter what is done."""
        async with self._transaction() as connection:
            return await connection.run_sync(append, deed, self._clock())

    async def entries(
        self,
        *,
        since: str | None = None,
        who: str | None = None,
        act: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        """Entries, the newest first."""
        query = select(AUDIT).order_by(AUDIT.c.number.desc()).limit(limit)
        if since is not None:
            query = query.where(AUDIT.c.at >= since)
        if who is not None:
            known = plain(who)
            query = query.where(
                or_(AUDIT.c.who.in_((known, f"{USER}{known}")), AUDIT.c.name == known)
            )
        if act is not None:
            query = query.where(AUDIT.c.act == act)
        if before is not None:
            query = query.where(AUDIT.c.number < before)
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [Entry(**row) for row in rows]

    async def verify(self) -> Verification:
        """Check every entry against the one before it."""
        found: list[Entry] = []
        while True:
            last = found[-1].number if found else None
            query = select(AUDIT).order_by(AUDIT.c.number).limit(PAGE)
            if last is not None:
                query = query.where(AUDIT.c.number > last)
            async with self._transaction() as connection:
                rows = (await connection.execute(query)).mappings().all()
            found += [Entry(**row) for row in rows]
            if len(rows) < PAGE:
                return verified(found)


def append(connection: Connection, deed: Deed, at: str) -> Entry:
    """Add an entry within a transaction of somebody's."""
    connection.exec_driver_sql(_LOCKS[connection.dialect.name])
    newest = select(AUDIT.c.number, AUDIT.c.digest).order_by(AUDIT.c.number.desc()).limit(1)
    last = connection.execute(newest).first()
    number, before = (0, FIRST) if last is None else (last.number, last.digest)
    kept = Deed(
        act=deed.act,
        who=plain(deed.who),
        name=plain(deed.name),
        subject=plain(deed.subject),
        origin=plain(deed.origin),
        facts=deed.facts,
    )
    entry = entered(kept, number + 1, at, before)
    connection.execute(insert(AUDIT), asdict(entry))
    return entry
