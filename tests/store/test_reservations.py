from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from podium.store.keys import Allowance, Amount, Key, ReservationResult, ReservationRow, Rules
from podium.store.sql.database import locate
from podium.store.sql.quotas import ReservationStore
from podium.store.sql.run_store import SqlRunStore
from podium.store.sql.tables import PROCESS_LEASES, RESERVATIONS
from support.postgres import Postgres

A_DOLLAR = Rules(in_total=Allowance(usd=1.0))
KEY = Key(id="key_1", name="Ada", digest="d", created_at="2026-01-02", rules=A_DOLLAR)


class Two:
    """Two processes over one database, and what is in it."""

    def __init__(self, one: SqlRunStore, other: SqlRunStore, database: AsyncEngine) -> None:
        self.one: ReservationStore = one.keys.quotas.reservations("one", 60.0)
        self.other: ReservationStore = other.keys.quotas.reservations("other", 60.0)
        self.database = database

    async def leave_of_lease(self, process: str, seconds: float) -> None:
        """Time passes until so much of the process's lease is left: it did not renew it."""
        one = await self.one_row(
            select(PROCESS_LEASES.c.expires_at).where(PROCESS_LEASES.c.process == process)
        )
        expires_at = float(one["expires_at"]) - 60.0 + seconds  # type: ignore[arg-type]
        async with self.database.begin() as connection:
            change = update(PROCESS_LEASES).where(PROCESS_LEASES.c.process == process)
            await connection.execute(change.values(expires_at=expires_at))

    async def one_row(self, query: object) -> dict[str, object]:
        async with self.database.connect() as connection:
            return dict((await connection.execute(query)).mappings().one())  # type: ignore[call-overload]

    async def reservation(self, tab_id: str) -> dict[str, object]:
        return await self.one_row(select(RESERVATIONS).where(RESERVATIONS.c.id == tab_id))


@asynccontextmanager
async def two_at(where: str) -> AsyncIterator[Two]:
    one, other = await SqlRunStore.open(where), await SqlRunStore.open(where)
    database = create_async_engine(locate(where).url)
    try:
        await one.keys.add(KEY)
        yield Two(one, other, database)
    finally:
        await database.dispose()
        await one.close()
        await other.close()


def needing(tab_id: str, usd: float) -> ReservationRow:
    amount = Amount(usd, 1)
    return ReservationRow(
        id=tab_id,
        key_id=KEY.id,
        model="m",
        withheld_from_requests=amount,
        withheld_from_calls=amount,
        needed=amount,
        calls=1,
    )


async def result(reservations: ReservationStore, *increased: ReservationRow) -> ReservationResult:
    return await reservations.update(KEY.id, KEY.rules, "2026-01-02", increased=increased)


async def test_a_process_that_was_paused_for_longer_than_its_lease_is_granted_nothing_twice(
    where: str,
) -> None:
    async with two_at(where) as two:
        await two.one.renew_lease()
        await two.leave_of_lease("one", -1.0)
        first = await result(two.one, needing("a", 0.9))
        second = await result(two.other, needing("b", 0.9))
    assert (set(first.granted), set(second.granted)) == ({"a"}, set())
    assert second.others.withheld_from_calls == Amount(0.9, 1)


async def test_reservations_are_not_written_under_a_lease_that_is_about_to_run_out(
    where: str,
) -> None:
    async with two_at(where) as two:
        await two.one.renew_lease()
        await two.leave_of_lease("one", 5.0)
        before = await two.one_row(select(PROCESS_LEASES))
        await result(two.one, needing("a", 0.9))
        after = await two.one_row(select(PROCESS_LEASES))
        await result(two.one, replace(needing("a", 0.95), granted=Amount(0.9, 1)))
        assert await two.one_row(select(PROCESS_LEASES)) == after, (
            "a lease that is good is left alone"
        )
    assert float(str(after["expires_at"])) - float(str(before["expires_at"])) > 50


async def test_grants_of_a_paused_process_count_again_for_its_requests(
    where: str,
) -> None:
    async with two_at(where) as two:
        await result(two.one, needing("a", 0.5))
        await two.leave_of_lease("one", -1.0)
        again = await result(two.one, needing("b", 0.9))
    assert again.granted == {}


async def test_a_process_that_renews_while_its_lease_is_swept_keeps_it(where: str) -> None:
    async with two_at(where) as two:
        for _ in range(5):
            await result(two.one, needing("a", 0.1))
            await two.leave_of_lease("one", -1.0)
            async with asyncio.timeout(10):
                await asyncio.gather(
                    result(two.one, replace(needing("a", 0.2), granted=Amount(0.1, 1))),
                    two.other.settle_expired(),
                )
            seen = await result(two.other)
            assert seen.others.withheld_from_calls == Amount(0.2, 1)


async def test_a_process_that_comes_back_just_now_is_not_swept(postgres: Postgres) -> None:
    async with two_at(await postgres.empty()) as two:
        await result(two.one, needing("a", 0.1))
        await two.leave_of_lease("one", -1.0)
        async with two.database.begin() as coming_back:
            change = update(PROCESS_LEASES).values(expires_at=PROCESS_LEASES.c.expires_at + 60.0)
            await coming_back.execute(change.where(PROCESS_LEASES.c.process == "one"))
            async with asyncio.timeout(5):
                assert await two.other.settle_expired() == 0
        assert await two.other.settle_expired() == 0
        await two.leave_of_lease("one", -1.0)
        assert await two.other.settle_expired() == 1


async def test_overuse_of_a_refused_reservation_is_seen_by_all(
    where: str,
) -> None:
    async with two_at(where) as two:
        await result(two.one, needing("a", 0.5))
        wide = replace(
            needing("a", 1.4),
            used=Amount(0.8, 7),
            withheld_from_requests=Amount(0.8, 7),
            granted=Amount(0.5, 1),
        )
        small = needing("small", 0.3)
        refused = await result(two.one, wide, small)
        seen = await result(two.other, needing("b", 0.3))
        row = await two.reservation("a")
    assert (refused.granted, seen.granted) == ({}, {})
    assert (row["used_usd"], row["used_tokens"], row["withheld_from_calls_usd"]) == (0.8, 7, 0.8)
    assert row["calls"] == 0, "the call was not let through"


async def test_a_refused_takeover_keeps_the_runs_earlier_usage(
    where: str,
) -> None:
    async with two_at(where) as two:
        old = replace(needing("old", 0.6), run_id="run_1", used=Amount(0.6, 1))
        await result(two.one, old)
        new = replace(needing("new", 1.5), run_id="run_1", used=Amount(0.6, 1), is_takeover=True)
        refused = await result(two.other, new)
        seen = await result(two.one, needing("b", 0.6))
        row = await two.reservation("new")
    assert (refused.granted, seen.granted) == ({}, {})
    assert (row["used_usd"], row["run_id"]) == (0.6, "run_1")
