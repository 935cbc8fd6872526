"""Rates that several replicas hold together, over a real database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from sqlalchemy import ColumnElement, literal

from podium.server.access import quotas
from podium.server.api_error import ApiError
from podium.store.keys import Allowance, Rules
from podium.store.sql import quotas as sql_quotas
from server.access.replicas import Replica, Replicas, replicas_of

A_MINUTE = 60.0


class DatabaseTime:
    """The clock of the database, which stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self, _dialect: str) -> ColumnElement[float]:
        return literal(self.now)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseTime]:
    clock = DatabaseTime()
    monkeypatch.setattr(sql_quotas, "database_time", clock)
    yield clock
    sql_quotas._state_query.cache_clear()  # it may hold this clock


async def wait(replica: Replica, replicas: Replicas, tokens: int = 1) -> float | None:
    """Return the seconds to wait; None if the request may begin."""
    try:
        principal = await replica.begin(replicas.made, tokens)
    except ApiError as refusal:
        if refusal.reason != "rate_limited":
            raise
        return refusal.retry_after
    await replica.settle(principal, tokens=tokens)
    return None


async def test_a_rate_is_that_of_all_replicas_together(where: str, time: DatabaseTime) -> None:
    async with replicas_of(where, Rules(requests_per_minute=6), 3) as replicas:
        waits = [await wait(replica, replicas) for replica in replicas.all * 3]
        assert waits == [None] * 6 + [pytest.approx(10.0)] * 3
        time.now += 9.5
        assert await wait(replicas.all[0], replicas) == pytest.approx(0.5)
        time.now += 0.5
        assert await wait(replicas.all[1], replicas) is None
        assert await wait(replicas.all[2], replicas) == pytest.approx(10.0)


async def test_tokens_that_were_guessed_wrongly_are_put_right_for_all(
    where: str, time: DatabaseTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "CORRECTION_SECONDS", 0.0)
    async with replicas_of(where, Rules(tokens_per_minute=600), 2) as replicas:
        one, other = replicas.all
        principal = await one.begin(replicas.made, tokens=10)
        await one.settle(principal, tokens=590)
        await one.access.close()
        assert await wait(other, replicas, 20) == pytest.approx(1.0)
        assert await wait(other, replicas, 10) is None


async def test_a_request_refused_for_its_budget_takes_no_tokens(
    where: str, time: DatabaseTime
) -> None:
    rules = Rules(tokens_per_minute=600, in_total=Allowance(usd=1.0))
    async with replicas_of(where, rules, 1) as replicas:
        (replica,) = replicas.all
        await replica.settle(await replica.begin(replicas.made, tokens=0), usd=1.0)
        for _ in range(3):
            with pytest.raises(ApiError, match="total budget of key 'Ada' is spent"):
                await replica.begin(replicas.made, tokens=500)


async def test_a_database_clock_that_is_set_back_grants_no_quota(
    where: str, time: DatabaseTime
) -> None:
    async with replicas_of(where, Rules(requests_per_minute=1), 2) as replicas:
        one, other = replicas.all
        assert await wait(one, replicas) is None
        time.now -= 1000.0
        assert await wait(other, replicas) == pytest.approx(60.0)
        time.now += 1000.0
        assert await wait(one, replicas) == pytest.approx(60.0)


async def test_a_key_with_a_rate_is_refused_while_the_store_cannot_be_asked(where: str) -> None:
    async with replicas_of(where, Rules(requests_per_minute=60), 1) as replicas:
        (replica,) = replicas.all
        principal = await replica.access.authenticate(replicas.made.token)
        replica.store.database.is_closed = True
        with pytest.raises(ApiError, match="cannot be looked up") as caught:
            await replica.access.reserve(principal, model="worker", tokens=1)
        assert (caught.value.status, caught.value.retry_after) == (503, 1.0)
        replica.store.database.is_closed = False


@pytest.mark.parametrize("seed", range(3))
async def test_no_minute_sees_more_than_a_burst_and_the_rate_however_replicas_are_asked(
    where: str, time: DatabaseTime, seed: int
) -> None:
    dice = random.Random(seed)
    rate = dice.choice([5, 12, 30])
    began: list[float] = []
    async with replicas_of(where, Rules(requests_per_minute=rate), 2) as replicas:
        for _ in range(12):
            asked = [dice.choice(replicas.all) for _ in range(dice.randint(1, 6))]
            waits = await asyncio.gather(*(wait(replica, replicas) for replica in asked))
            began += [time.now] * waits.count(None)
            values = [item for item in waits if item is not None]
            if values and dice.random() < 0.5:
                time.now += min(values) + 1e-6
                assert await wait(replicas.all[0], replicas) is None, "it was told to come now"
                began.append(time.now)
            time.now += dice.choice([0.0, 0.5, 3.0])
    for first, since in enumerate(began):
        for count, until in enumerate(began[first:], 1):
            assert count <= rate + rate * (until - since) / A_MINUTE + 1e-3
    assert len(began) >= rate, "a rate that nobody reaches says nothing"
