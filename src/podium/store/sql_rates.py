"""The buckets of keys with limits on their rates, in the database that all processes share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.store.buckets import Rates
from podium.store.keys import Rules
from podium.store.sql_tabs import database_time, lock_key
from podium.store.tables import BUCKETS
from podium.store.upsert import replacing

Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]


async def take(transaction: Transaction, key_id: str, rules: Rules, tokens: int) -> float:
    """Take a request of so many tokens, and return 0; or the seconds until it can be."""
    async with _buckets(transaction, key_id, rules) as (rates, now):
        wait = rates.wait(tokens, now)
        if not wait:
            rates.begin(tokens)
        return wait


async def correct(transaction: Transaction, key_id: str, rules: Rules, tokens: int) -> None:
    """Take so many tokens more, or put them back where that is less than nothing."""
    async with _buckets(transaction, key_id, rules) as (rates, now):
        rates.wait(0, now)
        rates.correct(tokens)


@asynccontextmanager
async def _buckets(
    transaction: Transaction, key_id: str, rules: Rules
) -> AsyncIterator[tuple[Rates, float]]:
    """The buckets of the key, which nobody else looks at meanwhile, and the database's time."""
    async with transaction() as connection:
        await lock_key(connection, key_id)
        dialect = connection.dialect.name
        both = select(database_time(dialect).label("now"), BUCKETS).where(
            BUCKETS.c.key_id == key_id
        )
        row = (await connection.execute(both)).one_or_none()
        if row is None:
            now = (await connection.execute(select(database_time(dialect)))).scalar_one()
            rates = Rates(rules.requests_per_minute, rules.tokens_per_minute, now)
        else:
            now, left = max(row.now, row.filled_at), (row.requests, row.tokens)
            rates = Rates(rules.requests_per_minute, rules.tokens_per_minute, row.filled_at, left)
        yield rates, now
        requests, tokens_left = rates.left
        kept = {"requests": requests or 0.0, "tokens": tokens_left or 0.0, "filled_at": now}
        await connection.execute(replacing(dialect, BUCKETS), [{"key_id": key_id, **kept}])
