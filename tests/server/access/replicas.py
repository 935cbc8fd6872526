"""Several gatekeepers over one real database, any of which may be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Connection, event, select, update
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from podium.core.budget import Budget, CallReservation, Ledger
from podium.core.errors import StoreError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import NO_USAGE, Price, Request, Usage, user
from podium.server.access import KeyAuthenticator, Principal, RequestCost
from podium.server.access.keys import NewKey, make_key
from podium.store.keys import Amount, Rules
from podium.store.sql.database import locate
from podium.store.sql.run_store import SqlRunStore
from podium.store.sql.tables import PROCESS_LEASES, RESERVATIONS

WORKER = WorkerProfile(name="worker", price=Price(input=100.0, output=1000.0))
LEASE_SECONDS = 600.0
SEEN_SECONDS = 20.0
CRUMB = 1e-6


class Replica:
    """A process that serves a key: its store, and its gatekeeper."""

    def __init__(self, store: SqlRunStore) -> None:
        self.store = store
        self.access = KeyAuthenticator(
            store.keys, Pool((WORKER,)), shared=True, lease_seconds=LEASE_SECONDS
        )
        self._is_dead = False
        event.listen(store.database.engine.sync_engine, "commit", self._commit)

    @property
    def process(self) -> str:
        """What other processes know it by."""
        name = getattr(self.access._reservations, "_process")  # noqa: B009 - it has no other name
        assert isinstance(name, str)
        return name

    def die(self) -> None:
        """Begin no transaction any more, and end none: a dead process commits nothing, however
        long ago it asked for a lock."""
        self._is_dead = self.store.database.is_closed = True

    def _commit(self, _: Connection) -> None:
        if self._is_dead:
            raise StoreError("its process was killed before this could be committed")

    async def has_stopped(self) -> None:
        """Wait for what it was writing as it died: that was committed, or never is."""
        pool = self.store.database.engine.pool
        assert isinstance(pool, AsyncAdaptedQueuePool)
        while pool.checkedout():
            await asyncio.sleep(0.001)

    async def begin(self, made: NewKey, tokens: int = 1, model: str = "worker") -> Principal:
        """A request is let in and begins."""
        principal = await self.access.authenticate(made.token)
        return await self.access.reserve(principal, model=model, tokens=tokens)

    async def settle(self, principal: Principal, usd: float = 0.0, tokens: int = 0) -> None:
        """That request used so much."""
        await self.access.settle(
            principal, model="worker", cost=RequestCost(Usage(tokens, 0, 0, 0, 0), NO_USAGE, usd)
        )


class Replicas:
    """Some replicas over one database, and a key."""

    def __init__(self, location: str, made: NewKey) -> None:
        self._location = location
        self.made = made
        self.all: list[Replica] = []
        self._dead: list[Replica] = []

    async def start(self) -> Replica:
        """One more replica."""
        replica = Replica(await SqlRunStore.open(self._location))
        self.all.append(replica)
        return replica

    def kill(self, replica: Replica) -> None:
        """The replica writes nothing any more, and says nothing either."""
        self.all.remove(replica)
        self._dead.append(replica)
        replica.die()

    async def let_leases_run_out(self) -> None:
        """Advance the clock until all leases of dead replicas have expired. Live replicas
        renew theirs meanwhile: an expired one would let others spend what a live one holds."""
        for replica in self._dead:
            await replica.has_stopped()
        dead = PROCESS_LEASES.c.process.in_([replica.process for replica in self._dead])
        database = create_async_engine(locate(self._location).url)
        async with database.begin() as connection:
            await connection.execute(update(PROCESS_LEASES).where(dead).values(expires_at=0.0))
        await database.dispose()

    async def rows(self) -> list[dict[str, object]]:
        """The reservations that everybody sees."""
        database = create_async_engine(locate(self._location).url)
        async with database.begin() as connection:
            found = (await connection.execute(select(RESERVATIONS))).mappings().all()
        await database.dispose()
        return [dict(row) for row in found]

    async def see(self, usd: float) -> None:
        """Wait until everybody sees a reservation that has used so much."""
        async with asyncio.timeout(SEEN_SECONDS):
            while usd not in [row["used_usd"] for row in await self.rows()]:
                await asyncio.sleep(0.001)

    async def charged(self) -> Amount:
        """What the key was charged in all."""
        return (await self.all[0].store.keys.quotas.charges(self.made.key.id, "2026-01-02")).total

    async def close(self) -> None:
        for replica in self.all:
            await replica.access.close()
            await replica.store.close()
        for replica in self._dead:
            await replica.access.close()
            await replica.store.close()


@asynccontextmanager
async def replicas_of(location: str, rules: Rules, count: int) -> AsyncIterator[Replicas]:
    """So many replicas, that serve a new key of those rules."""
    made = make_key("Ada", rules)
    replicas = Replicas(location, made)
    try:
        for _ in range(count):
            await replicas.start()
        await replicas.all[0].store.keys.add(made.key)
        yield replicas
    finally:
        await replicas.close()


def asking(max_tokens: int) -> Request:
    """A request for so much output: a token costs a tenth of a cent."""
    return Request((user("?"),), max_tokens=max_tokens)


async def hold_of(principal: Principal, max_tokens: int) -> tuple[Ledger, CallReservation]:
    """Begin a call of the principal's request."""
    ledger = Ledger(Budget(), shared_budget=principal.quota.shared_budget)
    request = asking(max_tokens)
    reservation = await ledger.wait_for_reservation(
        ledger.reserve(WORKER, request), WORKER, request
    )
    return ledger, reservation
