"""Keys and their usage, in the database of the runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row, func, insert, select, update

from podium.core.errors import ConfigError, NotFound, StoreError
from podium.store.keys import Key, KeyUsage, Rules
from podium.store.sql.database import Transaction
from podium.store.sql.quotas import QuotaStore
from podium.store.sql.tables import KEY_USAGE, KEYS, plain


class KeyStore:
    """Stores keys and their usage; methods raise `StoreError`."""

    def __init__(self, transaction: Transaction, clock: Callable[[], str]) -> None:
        self._transaction = transaction
        self._clock = clock
        self.quotas = QuotaStore(transaction, clock)

    async def add(self, key: Key) -> None:
        """Store a new key."""
        row = {**asdict(key), "name": plain(key.name), "rules": _dump_rules(key.rules)}
        async with self._transaction() as connection:
            await connection.execute(insert(KEYS), row)

    async def key(self, key_id: str) -> Key | None:
        """Return the key, revoked ones included, or None."""
        async with self._transaction() as connection:
            found = await connection.execute(select(KEYS).where(KEYS.c.id == plain(key_id)))
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
        statement = update(KEYS).where(KEYS.c.id == plain(key_id)).values(revoked_at=first)
        async with self._transaction() as connection:
            if (await connection.execute(statement)).rowcount == 0:
                raise _key_not_found(key_id)

    async def change(self, key: Key) -> None:
        """Replace the name, rules and expiry of a key; raises `NotFound`."""
        values = {
            "name": plain(key.name),
            "rules": _dump_rules(key.rules),
            "expires_at": key.expires_at,
        }
        async with self._transaction() as connection:
            statement = update(KEYS).where(KEYS.c.id == plain(key.id)).values(values)
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


def _read_key(row: Row[Any]) -> Key:
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
