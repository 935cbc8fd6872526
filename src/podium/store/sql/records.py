"""API keys, conversations, the audit log, feedback and idempotent requests, beside the runs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Executable, delete, func, insert, or_, select, update
from sqlalchemy import Row as SqlRow
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.errors import ConfigError, NotFound, StoreError
from podium.core.run import timestamp
from podium.store.audit import (
    GENESIS_DIGEST,
    USER_PREFIX,
    AuditEntry,
    AuditEvent,
    AuditVerification,
    chain_entry,
    verify_entries,
)
from podium.store.base import Feedback, IdempotentRequest
from podium.store.keys import Key, KeyUsage, Rules
from podium.store.sql.database import DatabasePart
from podium.store.sql.quotas import QuotaStore
from podium.store.sql.tables import (
    AUDIT,
    CHATS,
    DISABLED_WORKERS,
    FEEDBACK,
    IDEMPOTENT_REQUESTS,
    KEY_USAGE,
    KEYS,
    RUNS,
    Row,
    dialect_insert,
    insert_missing,
    storable_text,
)

_APPEND_LOCKS: Final = {
    # A write that changes nothing takes SQLite's write lock before the last entry is read.
    "sqlite": "DELETE FROM audit WHERE number < 0",
    "postgresql": "SELECT pg_advisory_xact_lock(7063488612)",
}

PAGE: Final = 1_000
"""Audit entries read at once."""

IDEMPOTENCY_HOURS: Final = 24
"""The time for which an idempotency key names its run."""


class AuditLog(DatabasePart):
    """Stores audit entries, one after another across processes."""

    async def add(self, event: AuditEvent) -> AuditEntry:
        event = replace(
            event,
            actor=storable_text(event.actor),
            actor_name=storable_text(event.actor_name),
            subject=storable_text(event.subject),
            origin=storable_text(event.origin),
        )
        newest = select(AUDIT.c.number, AUDIT.c.digest).order_by(AUDIT.c.number.desc()).limit(1)
        async with self._transaction() as connection:
            await connection.exec_driver_sql(_APPEND_LOCKS[connection.dialect.name])
            last = (await connection.execute(newest)).first()
            number, before = (0, GENESIS_DIGEST) if last is None else (last.number, last.digest)
            entry = chain_entry(event, number + 1, self._clock(), before)
            await connection.execute(insert(AUDIT), asdict(entry))
        return entry

    async def entries(
        self,
        *,
        since: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """List entries, newest first. `actor` is an id or a name, with or without `user:`."""
        query = select(AUDIT).order_by(AUDIT.c.number.desc()).limit(limit)
        if since is not None:
            query = query.where(AUDIT.c.at >= since)
        if actor is not None:
            name = storable_text(actor)
            is_actor = AUDIT.c.actor.in_((name, f"{USER_PREFIX}{name}"))
            query = query.where(or_(is_actor, AUDIT.c.actor_name == name))
        if action is not None:
            query = query.where(AUDIT.c.action == action)
        if before is not None:
            query = query.where(AUDIT.c.number < before)
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [AuditEntry(**row) for row in rows]

    async def verify(self, expected_head: str | None = None) -> AuditVerification:
        """Check the digest of each entry against the one before, and that one has the digest that
        was `expected_head`."""
        found: list[AuditEntry] = []
        while True:
            query = select(AUDIT).order_by(AUDIT.c.number).limit(PAGE)
            if found:
                query = query.where(AUDIT.c.number > found[-1].number)
            async with self._transaction() as connection:
                rows = (await connection.execute(query)).mappings().all()
            found += [AuditEntry(**row) for row in rows]
            if len(rows) < PAGE:
                return verify_entries(found, expected_head)


class DisabledWorkerStore(DatabasePart):
    """Stores which workers get no new runs."""

    async def names(self) -> frozenset[str]:
        async with self._transaction() as connection:
            rows = await connection.execute(select(DISABLED_WORKERS.c.worker))
            return frozenset(rows.scalars())

    async def disable(self, worker: str) -> None:
        async with self._transaction() as connection:
            statement = insert_missing(connection.dialect.name, DISABLED_WORKERS)
            row = {"worker": storable_text(worker), "disabled_at": timestamp()}
            await connection.execute(statement, [row])

    async def enable(self, worker: str) -> None:
        async with self._transaction() as connection:
            gone = delete(DISABLED_WORKERS).where(
                DISABLED_WORKERS.c.worker == storable_text(worker)
            )
            await connection.execute(gone)


class FeedbackStore(DatabasePart):
    """Stores feedback beside the runs; deleting a run deletes its feedback."""

    async def save(self, feedback: Feedback) -> None:
        """Replace the run's feedback, unless that is a person's and this a grader's; raises
        `NotFound`."""
        texts = {
            name: storable_text(getattr(feedback, name)) for name in ("comment", "grader", "task")
        }
        row = {**asdict(feedback), **texts}
        known = select(RUNS.c.id).where(RUNS.c.id == storable_text(feedback.run_id))
        async with self._transaction() as connection:
            if (await connection.execute(known)).first() is None:
                raise NotFound(f"run not found: {feedback.run_id!r}")
            await connection.execute(_replace_feedback(connection.dialect.name), [row])

    async def delete(self, run_id: str) -> None:
        """Delete the run's feedback; raises `NotFound` if it has none."""
        statement = delete(FEEDBACK).where(FEEDBACK.c.run_id == storable_text(run_id))
        async with self._transaction() as connection:
            if (await connection.execute(statement)).rowcount == 0:
                raise NotFound(f"run {run_id!r} has no feedback")

    async def get(self, run_id: str) -> Feedback | None:
        query = select(FEEDBACK).where(FEEDBACK.c.run_id == storable_text(run_id))
        async with self._transaction() as connection:
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else Feedback(**row)

    async def page(self, after: str = "", *, limit: int = 500) -> Sequence[Feedback]:
        """List feedback by run id, after that id; without runs that expire."""
        query = (
            select(FEEDBACK)
            .join(RUNS, RUNS.c.id == FEEDBACK.c.run_id)
            .where(FEEDBACK.c.run_id > storable_text(after), RUNS.c.expires_at.is_(None))
            .order_by(FEEDBACK.c.run_id)
            .limit(limit)
        )
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [Feedback(**row) for row in rows]


def _replace_feedback(dialect: str) -> Executable:
    statement = dialect_insert(dialect, FEEDBACK)
    values = {
        column.name: statement.excluded[column.name]
        for column in FEEDBACK.columns
        if not column.primary_key
    }
    replaceable = or_(FEEDBACK.c.grader != "", statement.excluded.grader == "")
    return statement.on_conflict_do_update(
        index_elements=FEEDBACK.primary_key, set_=values, where=replaceable
    )


class IdempotencyStore(DatabasePart):
    """Stores idempotent requests for a day."""

    async def register(self, request: IdempotentRequest) -> IdempotentRequest:
        """Store the request unless its key exists; return the stored one."""
        row = {**asdict(request), "key": storable_text(request.key), "created_at": self._clock()}
        table = IDEMPOTENT_REQUESTS.c
        same_key = (table.owner == request.owner) & (table.key == row["key"])
        query = select(IDEMPOTENT_REQUESTS).where(same_key)
        async with self._transaction() as connection:
            await self.prune(connection, same_key)
            dialect = connection.dialect.name
            await connection.execute(insert_missing(dialect, IDEMPOTENT_REQUESTS), [row])
            found = (await connection.execute(query)).mappings().one()
        return IdempotentRequest(**found)

    async def take_over(self, found: IdempotentRequest, process: str) -> IdempotentRequest | None:
        """Assign a request whose process died to another; None if it is alive or another took it
        first."""
        if self._database.is_alive(found.process, found.created_at):
            return None
        taken = replace(found, process=process, created_at=self._clock())
        values = {"process": taken.process, "created_at": taken.created_at}
        statement = update(IDEMPOTENT_REQUESTS).where(_is_unchanged(found)).values(values)
        async with self._transaction() as connection:
            return taken if (await connection.execute(statement)).rowcount else None

    async def remove(self, request: IdempotentRequest) -> None:
        """Delete a request that began no run, unless another process took it over."""
        async with self._transaction() as connection:
            await connection.execute(delete(IDEMPOTENT_REQUESTS).where(_is_unchanged(request)))

    async def prune(
        self, connection: AsyncConnection, among: ColumnElement[bool] | None = None
    ) -> None:
        """Delete expired requests, or those among some."""
        oldest = self._database.time_before(IDEMPOTENCY_HOURS * 3600)
        old = IDEMPOTENT_REQUESTS.c.created_at < oldest
        await connection.execute(
            delete(IDEMPOTENT_REQUESTS).where(old if among is None else old & among)
        )


def _is_unchanged(found: IdempotentRequest) -> ColumnElement[bool]:
    table = IDEMPOTENT_REQUESTS.c
    return (
        (table.owner == found.owner)
        & (table.key == storable_text(found.key))
        & (table.run_id == found.run_id)
        & (table.process == found.process)
        & (table.created_at == found.created_at)
    )


SUMMARY = (
    CHATS.c.id,
    CHATS.c.title,
    CHATS.c.created_at,
    CHATS.c.updated_at,
    CHATS.c.share_token,
)


class ChatStore(DatabasePart):
    """Stores conversations; methods that name one raise `NotFound` if the owner has none such."""

    async def save(self, owner: str, id_: str, title: str, search_text: str, content: Any) -> None:
        """Create a conversation or replace its content. `search_text` is what a search looks at."""
        now = self._clock()
        row = {
            "title": storable_text(title),
            "search_text": storable_text(search_text),
            "updated_at": now,
            "document": json.dumps(content),
        }
        new = {**row, "id": id_, "owner": owner, "created_at": now, "share_token": None}
        async with self._transaction() as connection:
            await connection.execute(insert_missing(connection.dialect.name, CHATS), [new])
            changed = await connection.execute(update(CHATS).where(_is_own(owner, id_)).values(row))
            if changed.rowcount == 0:
                raise _not_found(id_)

    async def list(self, owner: str, text: str | None = None, limit: int = 100) -> list[Row]:
        """List conversations without their content, the latest first."""
        query = select(*SUMMARY).where(CHATS.c.owner == owner)
        for word in storable_text(text or "").split():
            found = [
                c.icontains(word, autoescape=True) for c in (CHATS.c.title, CHATS.c.search_text)
            ]
            query = query.where(or_(*found))
        query = query.order_by(CHATS.c.updated_at.desc(), CHATS.c.id).limit(limit)
        async with self._transaction() as connection:
            return [dict(row) for row in (await connection.execute(query)).mappings()]

    async def get(self, owner: str, id_: str) -> Row:
        """Return a conversation with its content."""
        return await self._one(_is_own(owner, id_), id_)

    async def get_shared(self, token: str) -> Row:
        """Return the conversation that is shared under this token; raises `NotFound`."""
        return await self._one(CHATS.c.share_token == storable_text(token), token)

    async def share(self, owner: str, id_: str, *, is_shared: bool) -> Row:
        """Share a conversation under a new token, or revoke its token."""
        token = secrets.token_urlsafe(24) if is_shared else None
        async with self._transaction() as connection:
            statement = update(CHATS).where(_is_own(owner, id_)).values(share_token=token)
            await connection.execute(statement)
        return await self.get(owner, id_)

    async def delete(self, owner: str, id_: str) -> None:
        """Delete a conversation; its runs stay."""
        async with self._transaction() as connection:
            if (await connection.execute(delete(CHATS).where(_is_own(owner, id_)))).rowcount == 0:
                raise _not_found(id_)

    async def delete_before(self, moment: str) -> None:
        """Delete conversations not continued since the moment."""
        async with self._transaction() as connection:
            await connection.execute(delete(CHATS).where(CHATS.c.updated_at < moment))

    async def _one(self, condition: ColumnElement[bool], id_: str) -> Row:
        query = select(*SUMMARY, CHATS.c.document).where(condition)
        async with self._transaction() as connection:
            row = (await connection.execute(query)).mappings().first()
        if row is None:
            raise _not_found(id_)
        return {**row, "document": json.loads(row["document"])}


def _is_own(owner: str, id_: str) -> ColumnElement[bool]:
    return (CHATS.c.id == storable_text(id_)) & (CHATS.c.owner == owner)


def _not_found(id_: str) -> NotFound:
    return NotFound(f"conversation not found: {id_[:80]!r}")


class KeyStore(DatabasePart):
    """Stores keys and their usage; methods raise `StoreError`."""

    @property
    def quotas(self) -> QuotaStore:
        return QuotaStore(self._database)

    async def add(self, key: Key) -> None:
        row = {**asdict(key), "name": storable_text(key.name), "rules": _dump_rules(key.rules)}
        async with self._transaction() as connection:
            await connection.execute(insert(KEYS), row)

    async def key(self, key_id: str) -> Key | None:
        """Return the key, revoked ones included, or None."""
        async with self._transaction() as connection:
            found = await connection.execute(select(KEYS).where(KEYS.c.id == storable_text(key_id)))
            row = found.one_or_none()
        return None if row is None else _read_key(row)

    async def keys(self) -> list[Key]:
        """List all keys, revoked ones included, newest first."""
        newest_first = select(KEYS).order_by(KEYS.c.created_at.desc(), KEYS.c.id)
        async with self._transaction() as connection:
            rows = (await connection.execute(newest_first)).all()
        return [_read_key(row) for row in rows]

    async def revoke(self, key_id: str) -> None:
        """Revoke a key for good; raises `NotFound`. The first time counts."""
        first = func.coalesce(KEYS.c.revoked_at, self._clock())
        statement = update(KEYS).where(KEYS.c.id == storable_text(key_id)).values(revoked_at=first)
        async with self._transaction() as connection:
            if (await connection.execute(statement)).rowcount == 0:
                raise _key_not_found(key_id)

    async def change(self, key: Key) -> None:
        """Replace the name, rules and expiry of a key; raises `NotFound`."""
        values = {
            "name": storable_text(key.name),
            "rules": _dump_rules(key.rules),
            "expires_at": key.expires_at,
        }
        async with self._transaction() as connection:
            statement = update(KEYS).where(KEYS.c.id == storable_text(key.id)).values(values)
            if (await connection.execute(statement)).rowcount == 0:
                raise _key_not_found(key.id)

    async def usage(
        self, *, key_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> list[KeyUsage]:
        """List usage by day, key and model; `since` and `until` are days, both included."""
        columns = [column for column in KEY_USAGE.columns if column.name != "used_at"]
        query = select(*columns).order_by(KEY_USAGE.c.day, KEY_USAGE.c.key_id, KEY_USAGE.c.model)
        if key_id is not None:
            query = query.where(KEY_USAGE.c.key_id == key_id)
        if since is not None:
            query = query.where(KEY_USAGE.c.day >= since)
        if until is not None:
            query = query.where(KEY_USAGE.c.day <= until)
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [KeyUsage(**row) for row in rows]


def _key_not_found(key_id: str) -> NotFound:
    return NotFound(f"key not found: {key_id!r}; list them with: podium keys list")


def _dump_rules(rules: Rules) -> str:
    return json.dumps(_rules_adapter().dump_python(rules, mode="json"), separators=(",", ":"))


def _read_key(row: SqlRow[Any]) -> Key:
    try:
        rules = _rules_adapter().validate_python(json.loads(row.rules))
    except (ValueError, ConfigError) as error:  # pydantic's errors are ValueErrors
        raise StoreError(
            f"cannot read the rules of key {row.id}; revoke it and create another"
        ) from error
    return Key(**{**row._mapping, "rules": rules})


@cache
def _rules_adapter() -> TypeAdapter[Rules]:
    return TypeAdapter(Rules)
