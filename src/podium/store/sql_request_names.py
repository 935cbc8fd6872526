"""The names of requests, in the database that keeps the runs. Made by `sql`, whose transactions it
uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.run import timestamp
from podium.store.documents import plain
from podium.store.names import NamedRequest
from podium.store.sql_keys import Transaction
from podium.store.tables import REQUESTS
from podium.store.upsert import noting

KEPT_HOURS: Final = 24
"""How long a name stands for its run."""


class SqlNameStore:
    """Keeps names of requests in SQLite or Postgres. `is_held` says whether a process is at work
    that has said so at a given moment."""

    def __init__(
        self,
        transaction: Transaction,
        clock: Callable[[], str],
        is_held: Callable[[str, str], bool],
    ) -> None:
        self._transaction = transaction
        self._clock = clock
        self._is_held = is_held

    async def give(self, request: NamedRequest) -> NamedRequest:
        """Write the request down unless one of its name is there already; give the one that is."""
        row = {**asdict(request), "name": plain(request.name), "created_at": self._clock()}
        theirs = (REQUESTS.c.owner == request.owner) & (REQUESTS.c.name == row["name"])
        async with self._transaction() as connection:
            await self.prune(connection, theirs)
            await connection.execute(noting(connection.dialect.name, REQUESTS), [row])
            found = (await connection.execute(select(REQUESTS).where(theirs))).mappings().one()
        return NamedRequest(**found)

    async def take_up(self, found: NamedRequest, process: str) -> NamedRequest | None:
        """Have that process begin the run of a request whose own process ended before."""
        if self._is_held(found.process, found.created_at):
            return None
        taken = replace(found, process=process, created_at=self._clock())
        now = {"process": taken.process, "created_at": taken.created_at}
        async with self._transaction() as connection:
            taking = update(REQUESTS).where(_is(found)).values(now)
            return taken if (await connection.execute(taking)).rowcount else None

    async def drop(self, request: NamedRequest) -> None:
        """Forget a request that came to no run, unless somebody has taken it up meanwhile."""
        async with self._transaction() as connection:
            await connection.execute(delete(REQUESTS).where(_is(request)))

    async def prune(
        self, connection: AsyncConnection, among: ColumnElement[bool] | None = None
    ) -> None:
        """Forget the names that have stood for long enough, or those among some."""
        now = datetime.fromisoformat(self._clock())
        old = REQUESTS.c.created_at < timestamp(now - timedelta(hours=KEPT_HOURS))
        await connection.execute(delete(REQUESTS).where(old if among is None else old & among))


def _is(found: NamedRequest) -> ColumnElement[bool]:
    return (
        (REQUESTS.c.owner == found.owner)
        & (REQUESTS.c.name == plain(found.name))
        & (REQUESTS.c.run_id == found.run_id)
        & (REQUESTS.c.process == found.process)
        & (REQUESTS.c.created_at == found.created_at)
    )
