"""Many requests at replicas that share a cap, some of which are killed: what was really used."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from podium.core.budget import Budget, CallReservation, Ledger
from podium.core.errors import BudgetExhausted, BudgetUnavailable
from podium.core.request import UNKNOWN_USAGE, Usage
from podium.server.api_error import ApiError
from podium.store.keys import Allowance, Rules
from server.access.replicas import CRUMB, WORKER, Replica, Replicas, asking, replicas_of

pytestmark = pytest.mark.usefixtures("hurry")


class Truth:
    """The real usage, and what calls in flight may still use."""

    def __init__(self, cap: Allowance) -> None:
        assert cap.usd is not None
        self.cap = cap.usd
        self.used = 0.0
        self.held = 0.0
        self.forgiven = 0.0
        self.calls = 0
        self.most = 0.0
        self.at_work: Counter[Replica] = Counter()

    def check(self) -> None:
        self.most = max(self.most, self.used + self.held)
        assert self.used + self.held <= self.cap + self.forgiven + CRUMB


@asynccontextmanager
async def in_flight(
    truth: Truth, reservation: CallReservation, replica: Replica
) -> AsyncIterator[None]:
    truth.calls += 1
    truth.at_work[replica] += 1
    truth.held += reservation.usd
    truth.check()
    try:
        yield
    finally:
        truth.held -= reservation.usd
        truth.at_work[replica] -= 1


async def visit(replicas: Replicas, truth: Truth, dice: random.Random) -> None:
    """One request at any replica: some calls, each of which uses no more than it may or does not
    tell; then it is settled, unless its replica is killed meanwhile."""
    replica = dice.choice(replicas.all)
    try:
        principal = await replica.begin(replicas.made, tokens=dice.choice([1, 40]))
    except ApiError:
        return
    ledger = Ledger(Budget(), shared_budget=principal.quota.shared_budget)
    try:
        for _ in range(dice.randint(1, 4)):
            request = asking(dice.choice([20, 80, 300, 2000]))
            reservation = await ledger.wait_for_reservation(
                ledger.reserve(WORKER, request), WORKER, request
            )
            if replica not in replicas.all:
                return
            async with in_flight(truth, reservation, replica):
                await asyncio.sleep(dice.choice([0.0, 0.001, 0.004]))
            used = reservation.usd * dice.random() ** 2
            truth.used += used
            if dice.random() < 0.1:
                truth.used += reservation.usd - used
                ledger.settle(reservation, UNKNOWN_USAGE, None)
            else:
                ledger.settle(reservation, Usage(1, 1, 0, 0, 0), used)
            truth.check()
    except (BudgetExhausted, BudgetUnavailable):
        pass
    await replica.settle(principal, usd=ledger.spent.usd, tokens=ledger.spent.tokens)


async def kill_one(replicas: Replicas, truth: Truth, dice: random.Random) -> None:
    """A replica is killed. What its calls in flight used, and what of those that had just ended
    was not written yet, is unknown: a cap may be exceeded by that."""
    await asyncio.sleep(dice.uniform(0.0, 0.02))
    for _ in range(100):
        at_work = [item for item in replicas.all if truth.at_work[item]]
        if at_work:
            break
        await asyncio.sleep(0.001)
    killed = dice.choice(at_work or replicas.all)
    replicas.kill(killed)
    rows = [row for row in await replicas.rows() if row["process"] == killed.process]
    truth.forgiven += sum(float(str(row["withheld_from_calls_usd"])) for row in rows)
    truth.forgiven -= sum(float(str(row["used_usd"])) for row in rows)
    await replicas.start()
    await replicas.let_leases_run_out()
    for replica in replicas.all:
        if replica.access._reservations is not None:
            await replica.access._reservations.settle_expired()


@pytest.mark.parametrize("seed", range(3))
async def test_a_cap_holds_for_all_replicas_together_however_their_calls_overlap(
    where: str, seed: int
) -> None:
    dice = random.Random(seed)
    cap = Allowance(usd=2.0)
    truth = Truth(cap)
    async with replicas_of(where, Rules(per_day=cap), 3) as replicas:
        for _ in range(4):
            await asyncio.gather(*(visit(replicas, truth, dice) for _ in range(8)))
        for replica in replicas.all:
            await replica.access.close()
        assert (await replicas.charged()).usd == pytest.approx(truth.used)
        assert await replicas.rows() == []
    assert truth.calls >= 2, "one call alone overlaps with nothing"
    assert truth.most > 0.9 * truth.cap, "a cap that nobody comes near says nothing"


@pytest.mark.parametrize("seed", range(2))
async def test_replicas_that_die_let_a_cap_be_passed_by_no_more_than_their_calls_in_flight(
    where: str, seed: int
) -> None:
    dice = random.Random(100 + seed)
    cap = Allowance(usd=8.0)
    truth = Truth(cap)
    async with replicas_of(where, Rules(per_day=cap), 3) as replicas:
        for _ in range(3):
            visits = [visit(replicas, truth, dice) for _ in range(12)]
            await asyncio.gather(*visits[:8], kill_one(replicas, truth, dice), *visits[8:])
    assert truth.forgiven > 0, "nobody died at work"
