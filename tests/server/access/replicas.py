"""Several gatekeepers over one real database, any of which may be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import create_async_engine

from podium.pool import Pool, WorkerProfile
from podium.server.access import Gatekeeper, Visitor
from podium.server.access.keys import Made, make_key
from podium.store.database import locate
from podium.store.keys import Charged, Rules
from podium.store.sql import SqlRunStore
from podium.store.tables import LEASES, TABS
from podium.usage import NO_USAGE, Price, Usage

WORKER = WorkerProfile(name="worker", price=Price(input=100.0, output=1000.0))
LEASE_SECONDS = 600.0


class Replica:
    """A process that serves a key: its store, and its gatekeeper."""

    def __init__(self, store: SqlRunStore) -> None:
        self.store = store
        self.door = Gatekeeper(
            store.keys, Pool((WORKER,)), shared=True, lease_seconds=LEASE_SECONDS
        )

    async def begin(self, made: Made, tokens: int = 1, model: str = "worker") -> Visitor:
        """A request is let in and begins."""
        visitor = await self.door.admit(made.token)
        await self.door.begin(visitor, tier_or_worker=model, tokens=tokens)
        return visitor

    async def settle(self, visitor: Visitor, usd: float = 0.0, tokens: int = 0) -> None:
        """That request used so much."""
        await self.door.settle(
            visitor,
            model="worker",
            usage=Usage(tokens, 0, 0, 0, 0),
            orchestration=NO_USAGE,
            cost_usd=usd,
        )


class Replicas:
    """Some replicas over one database, and a key."""

    def __init__(self, place: str, made: Made) -> None:
        self._place = place
        self.made = made
        self.all: list[Replica] = []
        self._dead: list[Replica] = []

    async def start(self) -> Replica:
        """One more replica."""
        replica = Replica(await SqlRunStore.open(self._place))
        self.all.append(replica)
        return replica

    def kill(self, replica: Replica) -> None:
        """The replica writes nothing any more, and says nothing either."""
        self.all.remove(replica)
        self._dead.append(replica)
        replica.store._closed = True  # what is being written may still be

    async def let_leases_run_out(self) -> None:
        """Time passes, until nobody takes the dead for living; those renew their tabs."""
        database = create_async_engine(locate(self._place).url)
        async with database.begin() as connection:
            await connection.execute(update(LEASES).values(expires_at=0.0))
        await database.dispose()
        for replica in self.all:
            if replica.door._tabs is not None:
                await replica.door._tabs.renew()

    async def rows(self) -> list[dict[str, object]]:
        """The tabs that everybody sees."""
        database = create_async_engine(locate(self._place).url)
        async with database.begin() as connection:
            found = (await connection.execute(select(TABS))).mappings().all()
        await database.dispose()
        return [dict(row) for row in found]

    async def charged(self) -> Charged:
        """What the key was charged in all."""
        return (await self.all[0].store.keys.standing(self.made.key.id, "2026-01-02")).total

    async def close(self) -> None:
        for replica in self.all:
            await replica.door.close()
            await replica.store.close()
        for replica in self._dead:
            await replica.door.close()
            await replica.store.close()


@asynccontextmanager
async def replicas_of(place: str, rules: Rules, count: int) -> AsyncIterator[Replicas]:
    """So many replicas, that serve a new key of those rules."""
    made = make_key("Ada", rules)
    replicas = Replicas(place, made)
    try:
        for _ in range(count):
            await replicas.start()
        await replicas.all[0].store.keys.add(made.key)
        yield replicas
    finally:
        await replicas.close()
