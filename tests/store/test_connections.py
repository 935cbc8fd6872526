"""How many connections a store has to a real Postgres, and how long they stay."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from podium.core.errors import StoreError
from podium.core.run import Run
from podium.store.sql import database
from podium.store.sql.database import CONNECTIONS
from podium.store.sql.run_store import SqlRunStore
from support.postgres import Postgres


async def watching(postgres: Postgres) -> asyncpg.Connection[asyncpg.Record]:
    """A connection of our own, to another database."""
    return await asyncpg.connect(host=postgres.directory, user="postgres", database="postgres")


async def test_connections_are_made_once_however_many_write_at_the_same_time(
    postgres: Postgres, make_run: Callable[..., Run]
) -> None:
    """One more for each who finds the others busy would be closed again at once, and making it
    takes longer than what it is made for."""
    address = await postgres.empty("connections")
    store = await SqlRunStore.open(address)
    outside = await watching(postgres)
    backends: set[int] = set()

    async def look() -> None:
        rows = await outside.fetch("SELECT pid FROM pg_stat_activity WHERE datname = 'connections'")
        backends.update(row["pid"] for row in rows)

    try:
        for turn in range(4):
            runs = [make_run(f"run_{turn:08x}{number:08x}") for number in range(3 * CONNECTIONS)]
            await asyncio.gather(*(store.finish(run) for run in runs), look())
            await look()
    finally:
        await outside.close()
        await store.close()
    assert CONNECTIONS // 2 < len(backends) <= CONNECTIONS


async def cut_off(postgres: Postgres, name: str) -> int:
    """End every connection to that database from its side; how many there were."""
    connection = await asyncpg.connect(
        host=postgres.directory, user="postgres", database="postgres"
    )
    try:
        gone = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name
        )
        return len(gone)
    finally:
        await connection.close()


async def test_a_database_that_was_away_is_reached_again(
    postgres: Postgres, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PING_AFTER_SECONDS", 0.0)
    store = await SqlRunStore.open(await postgres.empty("connections"))
    try:
        runs = [make_run(f"run_{number:016x}") for number in range(6)]
        await asyncio.gather(*(store.finish(run) for run in runs[:3]))
        assert await cut_off(postgres, "connections") >= 2
        await asyncio.gather(*(store.finish(run) for run in runs[3:]))
        assert len(await store.list()) == 6
    finally:
        await store.close()


async def test_a_connection_that_is_in_use_is_not_tried_before_every_write(
    postgres: Postgres, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0
    ping: Callable[..., bool] = PGDialect_asyncpg.do_ping

    def counted(dialect: PGDialect_asyncpg, connection: Any) -> bool:
        nonlocal tried
        tried += 1
        return ping(dialect, connection)

    monkeypatch.setattr(PGDialect_asyncpg, "do_ping", counted)
    monkeypatch.setattr(database, "PING_AFTER_SECONDS", 60.0)
    store = await SqlRunStore.open(await postgres.empty("connections"))
    try:
        for number in range(5):
            await store.finish(make_run(f"run_{number:016x}"))
        assert tried == 0
        monkeypatch.setattr(database, "PING_AFTER_SECONDS", 0.0)
        await store.finish(make_run())
        assert tried == 1
    finally:
        await store.close()


async def test_a_hanging_database_blocks_no_lease(
    postgres: Postgres, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MIN_TIMEOUT_SECONDS", 0.2)
    store = await SqlRunStore.open(await postgres.empty("connections"), lease_seconds=1.0)
    run = make_run(status="running", answer=None)
    await store.begin(run)
    async with store._transaction() as connection:
        query = await connection.exec_driver_sql("SELECT pg_backend_pid()")
        backend: int = query.scalar_one()
    os.kill(backend, signal.SIGSTOP)
    try:
        async with asyncio.timeout(10):
            with pytest.raises(StoreError, match="did not answer in time"):
                await store.heartbeat([run.id])
            assert list(await store.heartbeat([run.id])) == [], "over another connection"
    finally:
        os.kill(backend, signal.SIGCONT)
        await store.close()
