"""Conversations of the page Chat, in the database of the runs: each belongs to one key."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, delete, or_, select, update

from podium.core.errors import NotFound
from podium.store.sql.database import Transaction
from podium.store.sql.tables import CHATS, Row, insert_missing, plain

SUMMARY = (
    CHATS.c.id,
    CHATS.c.title,
    CHATS.c.created_at,
    CHATS.c.updated_at,
    CHATS.c.shared,
)


class ChatStore:
    """Stores conversations; methods that name one raise `NotFound` if the owner has none such."""

    def __init__(self, transaction: Transaction, clock: Callable[[], str]) -> None:
        self._transaction = transaction
        self._clock = clock

    async def save(self, owner: str, id_: str, title: str, words: str, content: Any) -> None:
        """Create a conversation or replace its content. `words` is what a search looks at."""
        now = self._clock()
        row = {
            "title": plain(title),
            "words": plain(words),
            "updated_at": now,
            "document": json.dumps(content),
        }
        new = {**row, "id": id_, "owner": owner, "created_at": now, "shared": None}
        async with self._transaction() as connection:
            await connection.execute(insert_missing(connection.dialect.name, CHATS), [new])
            changed = await connection.execute(update(CHATS).where(_own(owner, id_)).values(row))
            if changed.rowcount == 0:
                raise _not_found(id_)

    async def list(self, owner: str, text: str | None = None, limit: int = 100) -> list[Row]:
        """List conversations without their content, the latest first."""
        query = select(*SUMMARY).where(CHATS.c.owner == owner)
        for word in plain(text or "").split():
            found = [c.icontains(word, autoescape=True) for c in (CHATS.c.title, CHATS.c.words)]
            query = query.where(or_(*found))
        query = query.order_by(CHATS.c.updated_at.desc(), CHATS.c.id).limit(limit)
        async with self._transaction() as connection:
            return [dict(row) for row in (await connection.execute(query)).mappings()]

    async def get(self, owner: str, id_: str) -> Row:
        """Return a conversation with its content."""
        return await self._one(_own(owner, id_), id_)

    async def get_shared(self, token: str) -> Row:
        """Return the conversation that is shared under this token; raises `NotFound`."""
        return await self._one(CHATS.c.shared == plain(token), token)

    async def share(self, owner: str, id_: str, *, is_shared: bool) -> Row:
        """Share a conversation under a new token, or revoke its token."""
        token = secrets.token_urlsafe(24) if is_shared else None
        async with self._transaction() as connection:
            statement = update(CHATS).where(_own(owner, id_)).values(shared=token)
            await connection.execute(statement)
        return await self.get(owner, id_)

    async def delete(self, owner: str, id_: str) -> None:
        """Delete a conversation; its runs stay."""
        async with self._transaction() as connection:
            if (await connection.execute(delete(CHATS).where(_own(owner, id_)))).rowcount == 0:
                raise _not_found(id_)

    async def delete_before(self, moment: str) -> None:
        """Delete conversations that nobody has continued since the moment."""
        async with self._transaction() as connection:
            await connection.execute(delete(CHATS).where(CHATS.c.updated_at < moment))

    async def _one(self, condition: ColumnElement[bool], id_: str) -> Row:
        query = select(*SUMMARY, CHATS.c.document).where(condition)
        async with self._transaction() as connection:
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            raise _not_found(id_)
        return {**row, "document": json.loads(row["document"])}


def _own(owner: str, id_: str) -> ColumnElement[bool]:
    return (CHATS.c.id == plain(id_)) & (CHATS.c.owner == owner)


def _not_found(id_: str) -> NotFound:
    return NotFound(f"conversation not found: {id_[:80]!r}")
