"""The buckets of keys with limits on their rates, in the database that all processes share.

Whoever takes from them locks the row first, and time is the database's own: the clocks of replicas
need not agree, and one that is set back fills no bucket twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.store.buckets import Rates
from podium.store.keys import Rules
from podium.store.sql_tabs import database_time
from podium.store.tables import BUCKETS
from podium.store.upsert import noting, replacing


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
