"""The real Postgres of the tests: that of `benchmarks.postgres`, with databases to be emptied.
Where there are no programs, the tests that want it are skipped and say why."""

from __future__ import annotations

from typing import Final

import asyncpg

from benchmarks import postgres

MISSING: Final = "there is no Postgres on this machine; apt-get install postgresql"


class Postgres(postgres.Postgres):
    """A server that tests share, each of them with a database that it has for itself."""

    __slots__ = ()

    async def empty(self, database: str = "podium") -> str:
        """A database of that name with nothing in it, and its address."""
        connection = await self._connected("postgres")
        try:
            known = "SELECT 1 FROM pg_database WHERE datname = $1"
            if await connection.fetchval(known, database) is None:
                await connection.execute(f'CREATE DATABASE "{database}"')
                return self.address(database)
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
                database,
            )
        finally:
            await connection.close()
        connection = await self._connected(database)
        try:
            await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        finally:
            await connection.close()
        return self.address(database)

    async def _connected(self, database: str) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(host=self.directory, user="postgres", database=database)
