"""Keys and what was used with them, in the database that keeps the runs.

Made by `sql`, whose transactions it uses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.errors import ConfigError, NotFound, StoreError
from podium.store.keys import Amount, Key, KeyCharges, KeyUsage, Rules
from podium.store.quotas import Rates, RunCharge
from podium.store.sql.quotas import (
    STANDING,
    SqlReservationStore,
    database_time,
    days_of,
    record_usage,
    standing_of,
)
from podium.store.sql.rows import plain
from podium.store.sql.tables import BUCKETS, CHARGES, KEY_USAGE, KEYS, noting, replacing


async def take(
    connection: AsyncConnection, key_id: str, rules: Rules, tokens: Sequence[int], owed: int
) -> list[float]:
    """Take requests of so many tokens, each that can be: 0, or the seconds until it can. What is
    owed is taken first, into debt if need be."""
    row = await _locked(connection, key_id, rules)
    now = max(row.now, row.filled_at)
    rates = Rates(
        rules.requests_per_minute,
        rules.tokens_per_minute,
        row.filled_at,
        (row.requests, row.tokens),
    )
    rates.wait(0, now)
    rates.correct(owed)
    waits = []
    for each in tokens:
        wait = rates.wait(each, now)
        if not wait:
            rates.begin(each)
        waits.append(wait)
    requests, tokens_left = rates.left
    kept = {"requests": requests or 0.0, "tokens": tokens_left or 0.0, "filled_at": now}
    await connection.execute(
        replacing(connection.dialect.name, BUCKETS), [{"key_id": key_id, **kept}]
    )
    return waits


async def _locked(connection: AsyncConnection, key_id: str, rules: Rules) -> Row[Any]:
    """The buckets of the key, which nobody else looks at until the transaction ends, and the time;
    they are full where nobody has ever taken from them."""
    dialect = connection.dialect.name
    if dialect == "sqlite":
        await connection.exec_driver_sql("BEGIN IMMEDIATE")
    now = database_time(dialect)
    found = select(now.label("now"), BUCKETS).where(BUCKETS.c.key_id == key_id).with_for_update()
    row: Row[Any] | None = (await connection.execute(found)).one_or_none()
    if row is None:
        full = {
            "key_id": key_id,
            "requests": rules.requests_per_minute or 0.0,
            "tokens": rules.tokens_per_minute or 0.0,
            "filled_at": 0.0,
        }
        await connection.execute(noting(dialect, BUCKETS), [full])
        row = (await connection.execute(found)).one()
    return row


Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]


class SqlKeyStore:
    """Keeps keys in SQLite or Postgres."""

    def __init__(self, transaction: Transaction, clock: Callable[[], str]) -> None:
        self._transaction = transaction
        self._clock = clock

    async def add(self, key: Key) -> None:
        """Write a key that was made."""
        row = {
            "id": key.id,
            "name": plain(key.name),
            "digest": key.digest,
            "created_at": key.created_at,
            "expires_at": key.expires_at,
            "revoked_at": key.revoked_at,
            "rules": _written(key.rules),
        }
        async with self._transaction() as connection:
            await connection.execute(insert(KEYS), row)

    async def key(self, key_id: str) -> Key | None:
        """The key with that id, revoked ones included, or None."""
        async with self._transaction() as connection:
            found = await connection.execute(select(KEYS).where(KEYS.c.id == plain(key_id)))
            row = found.one_or_none()
        return None if row is None else _key(row)

    async def keys(self) -> list[Key]:
        """Every key, revoked ones included, the newest first."""
        newest_first = select(KEYS).order_by(KEYS.c.created_at.desc(), KEYS.c.id)
        async with self._transaction() as connection:
            rows = (await connection.execute(newest_first)).all()
        return [_key(row) for row in rows]

    async def revoke(self, key_id: str) -> None:
        """Revoke a key for good; again is no fault. Raises `NotFound` when there is none."""
        first = func.coalesce(KEYS.c.revoked_at, self._clock())
        revoking = update(KEYS).where(KEYS.c.id == plain(key_id)).values(revoked_at=first)
        async with self._transaction() as connection:
            if (await connection.execute(revoking)).rowcount == 0:
                raise _none(key_id)

    async def allow_training(self, key_id: str, *, allowed: bool) -> None:
        """Set whether what was and will be asked with a key may become training data."""
        which = KEYS.c.id == plain(key_id)
        async with self._transaction() as connection:
            row = (await connection.execute(select(KEYS).where(which))).one_or_none()
            if row is None:
                raise _none(key_id)
            rules = replace(_key(row).rules, training=allowed)
            await connection.execute(update(KEYS).where(which).values(rules=_written(rules)))

    async def record(
        self,
        used: Sequence[KeyUsage],
        runs: Sequence[RunCharge] = (),
        closed: Sequence[str] = (),
    ) -> None:
        """Add to what was used, charge runs what they have not been charged yet, and close tabs:
        all of it, or nothing where an error is raised."""
        if not used and not runs and not closed:
            return
        async with self._transaction() as connection:
            await record_usage(connection, runs, used, closed)

    def reservations(self, process: str, lease_seconds: float) -> SqlReservationStore:
        """The tabs of a process of that name, among others that share the store."""
        return SqlReservationStore(
            self._transaction, self._clock, process=process, lease_seconds=lease_seconds
        )

    async def take(
        self, key_id: str, rules: Rules, tokens: Sequence[int], owed: int = 0
    ) -> list[float]:
        """Take requests of so many tokens from the key's buckets, each that can be: 0, or the
        seconds until it can."""
        async with self._transaction() as connection:
            return await take(connection, key_id, rules, tokens, owed)

    async def standing(self, key_id: str, day: str) -> KeyCharges:
        """What the key has been charged, as of that day."""
        async with self._transaction() as connection:
            found = await connection.execute(STANDING, days_of(key_id, day))
            return standing_of(found.mappings().one())

    async def charged_for(self, run_id: str) -> Amount:
        """What a key has been charged for that run so far."""
        query = select(CHARGES).where(CHARGES.c.run_id == plain(run_id))
        async with self._transaction() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            return Amount()
        tokens = row.input_tokens + row.output_tokens + row.assumed_tokens
        return Amount(row.cost_usd + row.assumed_usd, tokens)

    async def usage(
        self, *, key_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> list[KeyUsage]:
        """What was used, by day, key and model; `since` and `until` are days, both included."""
        query = select(KEY_USAGE).order_by(KEY_USAGE.c.day, KEY_USAGE.c.key_id, KEY_USAGE.c.model)
        if key_id is not None:
            query = query.where(KEY_USAGE.c.key_id == key_id)
        if since is not None:
            query = query.where(KEY_USAGE.c.day >= since)
        if until is not None:
            query = query.where(KEY_USAGE.c.day <= until)
        async with self._transaction() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [KeyUsage(**row) for row in rows]


def _none(key_id: str) -> NotFound:
    return NotFound(f"no key {key_id!r} in the store; see them with: podium keys list")


def _written(rules: Rules) -> str:
    return json.dumps(_rules().dump_python(rules, mode="json"), separators=(",", ":"))


def _key(row: Row[Any]) -> Key:
    try:
        rules = _rules().validate_python(json.loads(row.rules))
    except (ValueError, ConfigError) as error:  # what pydantic raises is a ValueError, too
        raise StoreError(
            f"the rules of the key {row.id} cannot be read; upgrade Podium if a newer one made "
            f"it, else revoke it and make another"
        ) from error
    return Key(
        id=row.id,
        name=row.name,
        digest=row.digest,
        created_at=row.created_at,
        rules=rules,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


@cache
def _rules() -> TypeAdapter[Rules]:
    return TypeAdapter(Rules)
