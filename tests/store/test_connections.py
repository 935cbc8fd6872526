"""How many connections a store has to a real Postgres, and how long they stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg

from podium.run import Run
from podium.store.database import CONNECTIONS
from podium.store.sql import SqlRunStore
from support.postgres import Postgres


async def test_connections_are_made_once_however_many_write_at_the_same_time(
    postgres: Postgres, make_run: Callable[..., Run]
) -> None:
    """One more for each who finds the others busy would be closed again at once, and making it
    takes longer than what it is made for."""
    address = await postgres.empty("connections")
    store = await SqlRunStore.open(address)
    watching = await asyncpg.connect(host=postgres.directory, user="postgres", database="postgres")
    backends: set[int] = set()

    async def look() -> None:
        rows = await watching.fetch(
            "SELECT pid FROM pg_stat_activity WHERE datname = 'connections'"
        )
        backends.update(row["pid"] for row in rows)

    try:
        for turn in range(4):
            runs = [make_run(f"run_{turn:08x}{number:08x}") for number in range(3 * CONNECTIONS)]
            await asyncio.gather(*(store.finish(run) for run in runs), look())
            await look()
    finally:
        await watching.close()
        await store.close()
    assert CONNECTIONS // 2 < len(backends) <= CONNECTIONS
